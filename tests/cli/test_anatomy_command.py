"""`flatlab anatomy`, as a user types it."""

from __future__ import annotations

import contextlib
import json
import threading

import numpy as np
import pytest

from conftest import TRAIN, bits
from flatlab.errors import StoreError
from flatlab.training import session as training
from flatlab.training.dissecting import dissect
from flatlab.training.run import load_run

PICTURES = [f"anatomy-{name}.png" for name in ("gallery", "activations", "scores")]


def test_it_prints_scores_and_neurons_and_draws_into_the_run(main, tmp_path):
    assert main(*TRAIN, "--out", "run")[0] == 0
    code, out, err = main("anatomy", "run")
    assert (code, err) == (0, "")
    assert "the 10 largest neurons of 20" in out and "memorisation" in out and "features" in out
    for name in PICTURES:
        assert f"picture: run/{name}" in out and (tmp_path / "run" / name).exists()
    # The run is still the run.
    assert main("show", "run")[0] == 0 and main(*TRAIN, "--out", "run")[0] == 0


def test_json_agrees_with_the_history(main, tmp_path):
    assert main(*TRAIN, "--out", "run")[0] == 0
    code, out, _ = main("anatomy", "run", "--out", "pictures", "--most", "3", "--json")
    found = json.loads(out)
    last = json.loads(main("show", "run", "--json")[1])["final"]
    assert code == 0
    assert (found["memorisation"], found["features"]) == (last["memorisation"], last["features"])
    assert found["chance"] == 0.25 and found["layers"] == [found["memorisation"]]
    assert found["groups"] == pytest.approx(1 + 19 * found["memorisation"])
    assert [set(row) for row in found["neurons"]] == 3 * [
        {"neuron", "share", "output", "points", "relevant", "angle", "feature", "bias"}
    ]
    assert sorted(p.name for p in (tmp_path / "pictures").iterdir()) == sorted(PICTURES)
    assert not (tmp_path / "run" / PICTURES[0]).exists()


def test_a_construction_memorises(main):
    data = "xor:d=8,n=20,distinct=true"
    assert main("construct", "memorising:depth=3", "--data", data, "--out", "c")[0] == 0
    code, out, _ = main("anatomy", "c", "--json")
    found = json.loads(out)
    assert code == 0 and found["memorisation"] == 1.0 and found["layers"] == [1.0, 1.0]
    assert len(found["pictures"]) == 2  # nothing was trained
    assert "by hidden layer: 1, 1" in main("anatomy", "c")[1]


def test_mistakes_are_one_line(main, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    assert main(*TRAIN, "--out", "run")[0] == 0
    for arguments, said in (
        (["nowhere"], "nowhere is not a run directory"),
        (["folder"], "folder is not a run directory"),
        (["file"], "file is a file, not a run directory"),
        (["run", "--out", "file"], "file is not a directory"),
        (["run", "--most", "0"], "--most"),
    ):
        code, out, err = main("anatomy", *arguments)
        assert (code, out) == (2, "") and said in err and err.count("\n") == 1


class Soon(threading.Event):
    """Ctrl-C after two chunks."""

    looks = 2

    def is_set(self):
        self.looks -= 1
        return self.looks < 0


def test_an_interrupted_run_is_dissected_and_said_to_be_unfinished(main, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(training, "interrupts", lambda *_: contextlib.nullcontext(Soon()))
        assert main(*TRAIN, "--out", "run")[0] == 130
    last, epochs = load_run("run").final["epoch"], load_run("run").config.epochs
    assert last < epochs
    said = f"unfinished: epoch {last} of {epochs} is the last one logged; run the command"
    code, out, err = main("anatomy", "run")
    assert code == 0 and "memorisation" in out and err.startswith(f"flatlab: run: {said}")
    found = json.loads(main("anatomy", "run", "--json")[1])
    assert found["status"] == "interrupted" and found["notes"][0].startswith(said)
    assert main(*TRAIN, "--out", "run")[0] == 0
    assert main("anatomy", "run")[2] == ""


def test_what_a_run_lacks_is_said_and_mended_by_the_same_command(main, tmp_path):
    assert main(*TRAIN, "--out", "run")[0] == 0
    before = bits("run")
    for name, said in (
        ("result.json", "it has no result.json: run the command"),
        ("history.parquet", "it has no history.parquet"),
    ):
        (tmp_path / "run" / name).unlink()
        code, out, err = main("anatomy", "run")
        assert code == 0 and "memorisation" in out
        assert err.startswith(f"flatlab: run: {said}") and err.count("\n") == 1
        assert main(*TRAIN, "--out", "run")[0] == 0
        assert main("anatomy", "run")[2] == "" and bits("run") == before


def test_a_damaged_history_is_an_error_until_it_is_written_anew(main, tmp_path):
    assert main(*TRAIN, "--out", "run")[0] == 0
    before, table = bits("run"), tmp_path / "run" / "history.parquet"
    table.write_bytes(table.read_bytes()[:200])
    code, out, err = main("anatomy", "run")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert (
        "run/history.parquet is damaged" in err and "run the command that trained it again" in err
    )
    with pytest.raises(StoreError, match=r"history\.parquet is damaged"):
        dissect(tmp_path / "run")
    assert main(*TRAIN, "--out", "run")[0] == 0
    assert main("anatomy", "run")[0] == 0 and bits("run") == before


def test_a_run_whose_data_file_is_gone(main, tmp_path):
    x = np.eye(4)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=np.ones(4), x_test=x, y_test=np.ones(4))
    train = [part.replace("xor:d=8,n=20,n_test=50", "mine.npz") for part in TRAIN]
    assert main(*train, "--out", "run")[0] == 0
    assert "features" not in main("anatomy", "run")[1]
    (tmp_path / "mine.npz").unlink()
    code, out, err = main("anatomy", "run")
    assert (code, out) == (2, "") and "no such file" in err and "cannot be made again" in err
