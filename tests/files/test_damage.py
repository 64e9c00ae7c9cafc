"""A flipped bit in any file of a run changes nothing, or is named in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import shutil

import pytest

import flatlab as fl
from flatlab.errors import FlatlabError, StoreError
from flatlab.files.store import RunStore
from flatlab.training import session, sitting
from flatlab.training.session import run_config

FILES = (
    "config.toml",
    "result.json",
    "history.parquet",
    "checkpoint.safetensors",
    "checkpoint.previous.safetensors",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of two phases whose previous checkpoint is of an earlier epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(sitting, "CHUNK_SECONDS", 0.0)
        phases = [
            fl.Phase("sam", lr=0.01, rho=0.05, batch_size=3, epochs=2),
            fl.Phase("sgd", lr=0.01, batch_size=6, epochs=1),
        ]
        return fl.train(
            fl.models.TwoLayer(width=3),
            fl.data.xor(d=4, n=6, n_test=5, seed=0),
            schedule=phases,
            log=fl.LogGrid(per_decade=0, regular=2),
            out=tmp_path_factory.mktemp("damage") / "run",
        )


def content(run):
    """Return everything that a run says except its notes."""
    parts = {**run.params, **run.columns}
    arrays = {name: (value.dtype.str, value.tobytes()) for name, value in parts.items()}
    return run.status, run.seconds, run.diverged_at, run.config.to_dict(), arrays


def without_notes(text):
    return {k: v for k, v in json.loads(text).items() if k not in ("notes", "path")}


def flip(path, place, bit):
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def check_reading(run, wanted, name, place, bit, folder):
    """Flip one bit of one file and load the run."""
    damaged, case = folder / "damaged", (name, place, bit)
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(run.path, damaged)
    flip(damaged / name, place, bit)
    try:
        assert content(fl.load_run(damaged)) == wanted, case
    except FlatlabError as error:
        assert str(damaged / name) in str(error) and "\n" not in str(error), (case, error)
    if name == "history.parquet":  # the only file that loading a run does not read
        with contextlib.suppress(StoreError):
            found = RunStore.read(damaged).load_history()
            assert {k: (v.dtype.str, v.tobytes()) for k, v in found.items()}.items() <= set(
                wanted[4].items()
            ), case


def check_using(run, wanted, shown, name, place, bit, folder, main):
    """Show the run whose bit was flipped, and continue it."""
    damaged, case = folder / "damaged", (name, place, bit)
    code, out, err = main("show", damaged, "--json")
    if code == 0:
        assert without_notes(out) == shown, case
    else:
        assert code == 2 and err.count("\n") == 1 and name in err, (case, err)
        assert name in json.loads(out)["error"], (case, out)
    try:
        again = run_config(run.config, out=damaged)
    except FlatlabError as error:
        raise AssertionError(f"{case} is not mended: {error}") from None
    same = content(again)
    assert (same[0], *same[2:]) == (wanted[0], *wanted[2:]), case
    end = fl.load_run(damaged)
    assert content(end)[3:] == wanted[3:], case
    assert RunStore.read(damaged).load_history() is not None
    assert RunStore.read(damaged).load_result() is not None


@pytest.fixture
def damage(run, main, tmp_path):
    """Return a function that checks one flip; the whole run is loaded and shown once."""
    wanted = content(fl.load_run(run.path))
    shown = without_notes(main("show", run.path, "--json")[1])

    def call(name, place, bit, use=True):
        check_reading(run, wanted, name, place, bit, tmp_path)
        if use:
            check_using(run, wanted, shown, name, place, bit, tmp_path, main)

    return call


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_harmless_or_named(run, name, damage):
    size, dice = (run.path / name).stat().st_size, random.Random(0)
    for place in dice.sample(range(size), 25):
        damage(name, place, dice.randrange(8))


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_flipped_byte_is_harmless_or_named(run, name, damage):
    """Every bit of the small files and one bit of every byte of the others; each tenth is used."""
    size, dice = (run.path / name).stat().st_size, random.Random(1)
    for place in range(size):
        bits = range(8) if size < 1000 else [dice.randrange(8)]
        for bit in bits:
            damage(name, place, bit, use=dice.random() < 0.1)


def test_a_cut_file_is_named_or_harmless(run, tmp_path):
    wanted = content(fl.load_run(run.path))
    for name in FILES:
        whole = (run.path / name).read_bytes()
        for length in (0, 1, len(whole) // 2, len(whole) - 1):
            copy = tmp_path / f"{name}-{length}"
            shutil.copytree(run.path, copy)
            (copy / name).write_bytes(whole[:length])
            try:
                assert content(fl.load_run(copy)) == wanted
            except FlatlabError as error:
                assert str(copy) in str(error) and "\n" not in str(error)


def test_a_config_that_is_damaged_beyond_its_checkpoints_is_replaced_by_fresh(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    for name in FILES[:1] + FILES[3:]:
        (copy / name).write_bytes(b"\0\0\0")
    (copy / "mine.txt").write_text("mine")
    for fresh in (False, True):
        with pytest.raises(StoreError, match=r"config\.toml is damaged"):
            run_config(run.config, out=copy, fresh=fresh)  # what is not ours is not overwritten
    (copy / "mine.txt").unlink()
    with pytest.raises(StoreError, match=r"config\.toml is damaged"):
        run_config(run.config, out=copy)
    assert content(run_config(run.config, out=copy, fresh=True))[4] == content(run)[4]


def test_a_config_of_another_run_is_named(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    text = (copy / "config.toml").read_text()
    assert "n = 6" in text
    (copy / "config.toml").write_text(text.partition("\n")[2].replace("n = 6", "n = 7"))
    with pytest.raises(StoreError, match="the checkpoint is of another configuration"):
        fl.load_run(copy)


@pytest.mark.parametrize("left", [FILES, ("config.toml", "checkpoint.safetensors")])
def test_a_checkpoint_of_another_run_is_refused_and_left_alone(run, tmp_path, left):
    here, other = shutil.copytree(run.path, tmp_path / "here"), tmp_path / "other"
    run_config(dataclasses.replace(run.config, seed=run.config.seed + 1), out=other)
    shutil.copy(other / "checkpoint.safetensors", here)
    for name in {*FILES} - {*left}:
        (here / name).unlink()
    before = {path.name: path.read_bytes() for path in here.iterdir() if path.name != "lock"}
    with pytest.raises(StoreError, match="the checkpoint is of another configuration"):
        run_config(run.config, out=here)
    assert before == {p.name: p.read_bytes() for p in here.iterdir() if p.name != "lock"}


def test_directories_without_checksums_are_read(run, tmp_path):
    """As older versions wrote them: no first line, no field, no status in the checkpoint."""
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    config = copy / "config.toml"
    config.write_text(config.read_text().partition("\n")[2])
    result = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps({k: result[k] for k in result if k != "sha256"}))
    store = RunStore.read(copy)
    checkpoint = store.load_checkpoint()
    meta = {k: v for k, v in checkpoint.meta.items() if k not in ("config", "result")}
    store.save_checkpoint(checkpoint.tensors, meta)
    assert content(fl.load_run(copy)) == content(fl.load_run(run.path))
    for change in ((copy / "result.json").unlink, lambda: (copy / "result.json").write_text("{")):
        change()  # the checkpoint is at its end: the run is done
        assert content(fl.load_run(copy))[4] == content(run)[4]
        assert fl.load_run(copy).status == "done"
    assert run_config(run.config, out=copy).notes == ()


@pytest.mark.parametrize("name", ["result.json", "history.parquet"])
def test_a_finished_run_without_a_derived_file_is_finished(run, name, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    (copy / name).unlink()
    assert content(fl.load_run(copy)) == content(fl.load_run(run.path))

    def never(info):
        raise AssertionError("it was trained again")

    again = run_config(run.config, out=copy, report=never)
    assert content(again) == content(fl.load_run(run.path)) and again.notes == ()
    if name == "result.json":
        assert (copy / name).read_bytes() == (run.path / name).read_bytes()


def test_the_checksum_of_a_config_is_what_sha256sum_says(run):
    import hashlib

    first, _, rest = (run.path / "config.toml").read_bytes().partition(b"\n")
    assert first.decode().endswith(hashlib.sha256(rest).hexdigest())
