"""`flatlab measure` and `flatlab explain`, as a user types them."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path

import pytest

from conftest import TRAIN
from flatlab.cli.targets import target_of
from flatlab.errors import UserError
from flatlab.training import session, sitting

EXAMPLES = Path(__file__).parents[2] / "examples"

FACTORY = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Linear(3, 1), nn.MSELoss(), (torch.eye(3), torch.ones(3, 1))

def pair():
    return make()[:2]

def boom():
    raise ValueError("inner")

def leave():
    raise SystemExit(5)

def needs(width, depth=2):
    return make()

nothing = 3
"""


@pytest.fixture
def factory(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FACTORY)
    (tmp_path / "bad.py").write_text("x = 1\ndef (\n")
    (tmp_path / "failing.py").write_text("x = 1 / 0\n")
    return path


NETWORK = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Linear(3, 1), nn.Flatten(0))
"""


def test_a_stored_run_whose_code_has_changed(main, tmp_path):
    file = tmp_path / "net.py"
    file.write_text(NETWORK)
    phase = "sgd:lr=0.01,epochs=1"
    arch = f"module:factory={file}:make"
    given = ("--arch", arch, "--data", "xor:d=8,n=20", "--phase", phase, "--out", "run")
    assert main("train", *given)[0] == 0
    asked = ("measure", "run", "--measure", "trace")
    assert "note" not in main(*asked)[1]
    file.write_text(NETWORK.replace("ReLU", "Tanh"))
    code, out, err = main(*asked)
    assert (code, err) == (0, "") and f"note: the code of {arch} has changed" in " ".join(
        out.split()
    )


def test_a_stored_run(main):
    assert main(*TRAIN, "--out", "run")[0] == 0
    code, out, err = main(
        "measure", "run", "--measures", "trace", "--measures", "distance", "--json"
    )
    assert (code, err) == (0, "")
    found = json.loads(out)["measures"]
    shown = json.loads(main("show", "run", "--json")[1])
    # The run is in float32: the engine's closed form and the measure agree to its rounding.
    assert found["trace"]["value"] == pytest.approx(shown["history"]["trace"][-1], rel=1e-5)
    assert found["trace"]["exact"] and found["distance"]["value"] > 0
    code, out, _ = main("measure", "run", "--data", "xor:d=8,n=50,seed=3", "--measures", "trace")
    assert code == 0 and "50 examples" in out and "Tr = " in out


def test_distances_are_from_where_a_run_began(main):
    """After one step of 1e-9 from another run's end; without that run there is no reference."""
    assert main(*TRAIN, "--out", "first")[0] == 0
    step = ("--phase", "sgd:lr=1e-9,epochs=1", "--dtype", "float64")
    assert main("train", "--start", "first", *step, "--out", "second")[0] == 0
    ask = "measure", "second", "--measure", "distance"
    found = json.loads(main(*ask, "--json")[1])["measures"]["distance"]["value"]
    assert 0 < found < 1e-6
    Path("first").rename("elsewhere")
    code, _, stderr = main(*ask)
    assert code == 2 and "reference" in stderr


def test_a_factory_in_a_file_and_in_a_module(main, factory):
    for target in (f"{factory}:make", "mine:make"):
        code, out, _ = main("measure", target, "--measures", "lambda_max", "--json")
        assert code == 0
        # L = (1/3) Σ (w·e_i + b − 1)², so ∇²L = (2/3) [[I, 1], [1ᵀ, 3]] with largest value 8/3.
        assert json.loads(out)["measures"]["lambda_max"]["value"] == pytest.approx(8 / 3, rel=1e-6)


def test_a_loss_that_exits_is_a_failure(main, tmp_path):
    (tmp_path / "leaving.py").write_text(
        f"import sys\n{FACTORY}\ndef f():\n"
        "    return make()[0], lambda o, y: sys.exit(0), make()[2]\n"
    )
    code, out, err = main("measure", f"{tmp_path}/leaving.py:f")
    assert (code, out) == (2, "") and "SystemExit: 0" in err and err.count("\n") == 1


def test_everything_that_applies(main, factory):
    code, out, _ = main("measure", f"{factory}:make", "--measures", "all", "--json")
    document = json.loads(out)
    assert code == 0
    assert "trace" in document["measures"] and "distance" in document["skipped"]


def test_all_beside_others(main, factory):
    code, out, _ = main(
        "measure", f"{factory}:make", "--measures", "top_k:k=2", "--measures", "all", "--json"
    )
    document = json.loads(out)
    assert code == 0 and "distance" in document["skipped"]
    assert {"top_k:k=2", "top_k", "trace"} <= set(document["measures"])


def test_measures_between_commas_and_limits(main, factory):
    code, out, _ = main(
        *("measure", f"{factory}:make", "--measures", "trace,top_k:k=2,tolerance=1e-4,lambda_max"),
        *("--products", "1", "--budget", "60", "--batch-size", "2", "--json"),
    )
    found = json.loads(out)["measures"]
    assert code == 0 and list(found) == ["trace", "top_k:k=2,tolerance=1e-4", "lambda_max"]
    assert found["top_k:k=2,tolerance=1e-4"]["card"]["settings"]["tolerance"] == 1e-4
    assert found["trace"]["card"]["batches"] == 2
    assert not found["lambda_max"]["complete"]
    assert found["lambda_max"]["stopped"] == "the budget of 1 product was spent"


def test_a_factory_may_have_a_dataclass_in_its_file(main, tmp_path):
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        f"@dataclass\nclass Options:\n    width: int = 3\n{FACTORY}"
    )
    assert main("measure", "own.py:make", "--measures", "trace", "--json")[0] == 0


MISTAKES = {
    "neither": (["measure", "nowhere"], "neither a run directory nor MODULE:FACTORY"),
    "no module": (["measure", "nowhere:make"], "cannot import nowhere"),
    "no file": (["measure", "nowhere.py:make"], "cannot import nowhere.py"),
    "no function": (["measure", "mine.py:other"], "mine.py has no function 'other'"),
    "not callable": (["measure", "mine.py:nothing"], "has no function 'nothing'"),
    "not three": (["measure", "mine.py:pair"], "must return (model, loss, data), got tuple of 2"),
    "a factory that raises": (
        ["measure", "mine.py:boom"], "mine.py:boom failed: ValueError: inner (in "),
    "a factory that leaves": (["measure", "mine.py:leave"], "mine.py:leave failed: SystemExit: 5"),
    "a factory with arguments": (
        ["measure", "mine.py:needs"], "mine.py:needs needs the arguments width: it is called"),
    "a syntax error": (["measure", "bad.py:make"], "cannot import bad.py: invalid syntax in "),
    "an error in the file": (
        ["measure", "failing.py:make"], "cannot import failing.py: ZeroDivisionError"),
    "an error in the module": (
        ["measure", "failing:make"], "cannot import failing: ZeroDivisionError"),
    "measure": (["measure", "mine.py:make", "--measures", "trase"], "did you mean 'trace'"),
    "mode": (["measure", "mine.py:make", "--mode", "tarin"], "unknown mode 'tarin'"),
    "params": (["measure", "mine.py:make", "--params", "conv"], "'conv' matches nothing"),
    "budget": (["measure", "mine.py:make", "--budget", "0"], "budget seconds must be > 0"),
    "products": (["measure", "mine.py:make", "--products", "0"], "budget products must be > 0"),
    "batch size": (["measure", "mine.py:make", "--batch-size", "0"], "batch_size must be"),
    "a measure among others": (
        ["measure", "mine.py:make", "--measures", "trace,lamda_max"], "did you mean 'lambda_max'"),
    "explain": (["explain", "trase"], "did you mean 'trace'"),
    "an empty directory": (["measure", "."], "config.toml"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line(name, main, factory):
    arguments, says = MISTAKES[name]
    code, out, err = main(*arguments)
    assert (code, out) == (2, "")
    assert says in err and err.count("\n") == 1 and err.startswith("flatlab: ")


def test_explain(main):
    code, out, _ = main("explain", "trace")
    assert code == 0 and "ReLU rescaling" in out and "what it is not" in out
    assert json.loads(main("explain", "trace", "--json")[1])["relu"] == "moves"
    assert "tolerance=0.0001" in main("explain", "lambda_max:tolerance=1e-4")[1]
    assert "lambda_max" in main("list", "measures")[1]
    assert (
        "FriendlySAM" in main("list", "optimizers")[1]
        or "friendly" in main("list", "optimizers")[1]
    )


def test_the_transformer_can_be_measured(main):
    target = f"{EXAMPLES / 'transformer.py'}:make"
    code, out, _ = main(
        "measure", target, "--measures", "lambda_max", "--measures", "trace", "--json"
    )
    found = json.loads(out)["measures"]
    assert code == 0 and found["lambda_max"]["value"] > 0
    assert not found["trace"]["exact"] and found["trace"]["stderr"] > 0


def test_the_convolutional_network_can_be_measured(main, monkeypatch, tmp_path):
    target = f"{EXAMPLES / 'cnn.py'}:make"
    if not os.environ.get("FLATLAB_DATA"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with pytest.raises(UserError, match="set FLATLAB_DATA"):
            target_of(target)
        return
    code, out, _ = main("measure", target, "--measures", "trace", "--json")
    assert code == 0 and json.loads(out)["measures"]["trace"]["exact"]


def test_a_half_done_run_is_said_to_be_one(main, monkeypatch, tmp_path):
    """And so is one whose newest checkpoint is damaged: the one before it is measured."""

    class Third(threading.Event):
        looks = 3

        def is_set(self):
            self.looks -= 1
            return self.looks < 0

    with monkeypatch.context() as patch:
        patch.setattr(session, "interrupts", lambda: contextlib.nullcontext(Third()))
        patch.setattr(session, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(sitting, "CHUNK_SECONDS", 0.0)
        assert main(*TRAIN, "--out", "run")[0] == 130
    half = "unfinished: epoch 3 of 5 is the last one logged; run the command that trained it again"
    for damage in ("", "checkpoint.safetensors is damaged"):
        if damage:
            path = tmp_path / "run" / "checkpoint.safetensors"
            path.write_bytes(path.read_bytes()[:-1])
        code, out, _ = main("measure", "run", "--measure", "trace")
        assert code == 0 and f"note: {half}" in out and damage in out
        found = json.loads(main("measure", "run", "--measure", "trace", "--json")[1])
        assert found["status"] == "interrupted"
        assert found["notes"][0].startswith(half) and damage in "".join(found["notes"])
    assert main(*TRAIN, "--out", "run")[0] == 0
    assert "unfinished" not in main("measure", "run", "--measure", "trace")[1]
    assert json.loads(main("measure", "run", "--measure", "trace", "--json")[1])["status"] == "done"
