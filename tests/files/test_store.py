import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from flatlab.errors import BusyError, FlatlabError, StoreError, UserError
from flatlab.files import store
from flatlab.files.durable import locked
from flatlab.files.store import RunStore, ensure_directory, run_directories, write_atomically
from flatlab.specs import digest

CONFIG = {"model": {"width": 5, "bias": True}, "phases": [{"lr": 0.1}, {"lr": 1e-3}], "seed": 0}


@pytest.fixture
def run(tmp_path):
    return RunStore.open(tmp_path / "run", CONFIG)


def tensors(step=0):
    generator = np.random.default_rng(step)
    return {
        "weight": generator.standard_normal((6, 7)).astype(np.float32),
        "transposed": generator.standard_normal((3, 4)).T,
        "step": np.array(step),
        "none": np.zeros((0, 2)),
        "signs": np.array([True, False]),
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape
        assert found[name].tobytes() == value.tobytes()


def names(path):
    return sorted(entry.name for entry in path.iterdir())


# The directory and its config


def test_open_creates_finds_and_reads_the_same_run(tmp_path):
    path = tmp_path / "a" / "b"
    made = RunStore.open(path, CONFIG)
    assert (made.path, made.config) == (path, CONFIG)
    assert "format = 2" in (path / "config.toml").read_text()
    again = RunStore.open(str(path), dict(reversed(CONFIG.items())))
    assert again.config == RunStore.read(path).config == CONFIG
    assert names(path) == ["config.toml", "lock"]


@pytest.mark.parametrize(
    "value", [0.1 + 0.2, 5e-324, 1e300, 2**70, "ü \n\r\"'\\", [], {}, [[1], []]]
)
def test_a_config_survives_the_disk_bit_for_bit(tmp_path, value):
    RunStore.open(tmp_path / "run", {"a.b": value})
    assert RunStore.open(tmp_path / "run", {"a.b": value}).config == {"a.b": value}


@pytest.mark.parametrize("bad", [{"a": None}, {"a": float("nan")}, {"a": {1}}, {"format": 2}])
def test_a_config_of_other_than_plain_values_is_refused_before_anything_is_made(tmp_path, bad):
    with pytest.raises((TypeError, ValueError)):
        RunStore.open(tmp_path / "run", bad)
    assert names(tmp_path) == []


def test_another_config_is_refused_with_the_keys_that_differ(run):
    other = {"model": {"width": 6, "bias": 1}, "phases": [{"lr": 0.1}, {"lr": 0.5}], "new": "x"}
    with pytest.raises(UserError) as caught:
        RunStore.open(run.path, other)
    message = str(caught.value)
    assert "model.width is 5 there, 6 here; model.bias is true there, 1 here" in message
    assert "phases.1.lr is 0.001 there, 0.5 here; and 2 more" in message
    assert "choose another directory" in message and "--fresh" in message


def test_a_place_that_is_not_a_run_is_left_alone(tmp_path):
    file, foreign, project = tmp_path / "file", tmp_path / "foreign", tmp_path / "project"
    file.write_text("mine")
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    project.mkdir()
    (project / "config.toml").write_text("[tool]\nformat = 'x'\n")
    for path, words in [
        (file, "is a file"),
        (file / "below", "is not a directory"),
        (foreign, "not a run directory"),
        (project, "was not written by flatlab"),
    ]:
        for fresh in (False, True):
            with pytest.raises(UserError, match=words):
                RunStore.open(path, CONFIG, fresh=fresh)
        with pytest.raises(UserError):
            RunStore.read(path)
    with pytest.raises(UserError, match="not a run directory"):
        RunStore.read(tmp_path / "absent")
    assert names(tmp_path) == ["file", "foreign", "project"]
    assert (names(foreign), names(project)) == (["notes.txt"], ["config.toml"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"format = 3\nseed = 0\n", "newer flatlab .format 3, this one reads 2.: upgrade"),
        (b"format = 1\nseed = ", "config.toml is damaged"),
        (b"format = 1\n\xff\xfe", "config.toml is damaged"),
    ],
)
@pytest.mark.parametrize("fresh", [False, True])
def test_a_newer_or_damaged_config_is_named_and_kept(run, text, words, fresh):
    (run.path / "config.toml").write_bytes(text)
    with pytest.raises(FlatlabError, match=words):
        RunStore.open(run.path, CONFIG, fresh=fresh)
    with pytest.raises(FlatlabError, match=words):
        RunStore.read(run.path)
    assert (run.path / "config.toml").read_bytes() == text


def test_an_empty_config_is_damaged_if_there_are_files_of_a_run(run):
    (run.path / "config.toml").write_bytes(b"")
    with pytest.raises(UserError, match="was not written by flatlab"):
        RunStore.read(run.path)
    run.save_checkpoint(tensors(), {"config": digest(CONFIG)})
    with pytest.raises(StoreError, match=r"config\.toml is damaged \(it names no format\)"):
        RunStore.read(run.path)
    assert RunStore.open(run.path, CONFIG).load_checkpoint() is not None
    assert RunStore.read(run.path).config == CONFIG


def test_fresh_removes_the_files_of_the_run_and_nothing_else(run):
    with run.lock():
        run.save_checkpoint(tensors(), {})
        run.save_checkpoint(tensors(), {})
        run.save_history({"epoch": np.arange(3)})
        run.save_result({"status": "done"})
    (run.path / "my notes.txt").write_text("mine")
    again = RunStore.open(run.path, {"seed": 1}, fresh=True)
    assert again.config == RunStore.read(run.path).config == {"seed": 1}
    assert names(run.path) == ["config.toml", "lock", "my notes.txt"]
    assert (again.load_checkpoint(), again.load_history(), again.load_result()) == (None,) * 3
    with pytest.raises(BusyError, match="has replaced the run"), run.lock():
        pass


def test_a_creation_that_was_killed_can_be_repeated(tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / ".config.toml.0123456789ab.tmp").write_text("form")
    assert RunStore.open(tmp_path, CONFIG).config == CONFIG
    assert names(tmp_path) == ["config.toml", "lock"]


# The lock


def test_two_processes_cannot_work_on_one_run(run):
    code = f"""
        from flatlab.files.store import RunStore
        with RunStore.read({str(run.path)!r}).lock():
            print("held", flush=True)
            input()
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        words = rf"another process \(pid {holder.pid}\) is working on .*run: wait for it or choose"
        with pytest.raises(BusyError, match=words), run.lock():
            pass
        run_files = names(run.path)
        with pytest.raises(BusyError, match=words):
            RunStore.open(run.path, CONFIG, fresh=True)
        assert names(run.path) == run_files
        RunStore.open(run.path, CONFIG)  # finding and reading it is allowed
        holder.kill()
    with run.lock():
        assert (run.path / "lock").read_text() == str(os.getpid())
    assert (run.path / "lock").read_text() == ""


def test_the_lock_sweeps_leftovers_and_nothing_else(run):
    ours = run.path / ".checkpoint.safetensors.0123456789ab.tmp"
    others = [run.path / ".tmp", run.path / "a.tmp", run.path / ".notes.txt.0123456789ab.tmp"]
    for path in (ours, *others):
        path.touch()
    with run.lock():
        assert not ours.exists() and all(path.exists() for path in others)
    with pytest.raises(RuntimeError), run.lock():
        raise RuntimeError
    with run.lock():
        pass


# Checkpoints


def test_a_checkpoint_comes_back_as_it_was_and_is_ones_own(run):
    assert run.load_checkpoint() is None
    meta = {"epoch": 3, "best": 0.1 + 0.2, "loss": float("inf"), "name": "ü"}
    run.save_checkpoint(tensors(), meta)
    found = run.load_checkpoint()
    assert_same(found.tensors, tensors())
    assert (found.meta, found.warnings) == (meta, ())
    found.tensors["weight"][0, 0] = 7.0
    run.save_checkpoint({}, {})
    assert run.load_checkpoint().tensors == {}


def test_every_flipped_byte_is_detected_or_harmless(run):
    run.save_checkpoint(tensors(1), {"step": 1})
    run.save_checkpoint(tensors(2), {"step": 2})
    path = run.path / "checkpoint.safetensors"
    data = path.read_bytes()
    generator = random.Random(0)
    detected = 0
    for position in [*range(16), *generator.sample(range(len(data)), 300)]:
        damaged = bytearray(data)
        damaged[position] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        found = run.load_checkpoint()
        if found.warnings:
            detected += 1
            assert str(path) in found.warnings[0] and "previous" in found.warnings[0]
        assert found.meta["step"] == (1 if found.warnings else 2)
        assert_same(found.tensors, tensors(found.meta["step"]))
    assert detected > 250  # the rest fell on padding


def test_every_truncation_is_detected(run):
    run.save_checkpoint(tensors(1), {"step": 1})
    run.save_checkpoint(tensors(2), {"step": 2})
    path = run.path / "checkpoint.safetensors"
    data = path.read_bytes()
    for length in [*range(0, len(data), 7), len(data) - 1]:
        path.write_bytes(data[:length])
        found = run.load_checkpoint()
        assert found.warnings and found.meta == {"step": 1}
    path.write_bytes(data + b"\0")
    assert run.load_checkpoint().warnings


@pytest.mark.parametrize(
    ("written", "read"),
    [(b'"F32"', b'"I32"'), (b'"shape":[6,7]', b'"shape":[7,6]'), (b'"weight"', b'"height"')],
)
def test_the_same_bytes_under_another_header_are_detected(run, written, read):
    """A dtype, a shape or a name that changed leaves the tensors' own bytes as they were."""
    run.save_checkpoint(tensors(1), {"step": 1})
    run.save_checkpoint(tensors(2), {"step": 2})
    path = run.path / "checkpoint.safetensors"
    data = path.read_bytes()
    assert data.count(written) == 1
    path.write_bytes(data.replace(written, read))
    found = run.load_checkpoint()
    assert "its checksum does not match" in found.warnings[0] and found.meta == {"step": 1}


@pytest.mark.parametrize("both", [False, True])
def test_without_a_valid_checkpoint_the_error_names_the_files(run, both):
    run.save_checkpoint(tensors(), {})
    paths = [run.path / "checkpoint.safetensors"]
    if both:
        run.save_checkpoint(tensors(), {})
        paths.append(run.path / "checkpoint.previous.safetensors")
    for path in paths:
        path.write_bytes(b"rubbish")
    with pytest.raises(StoreError, match="start again with --fresh") as caught:
        run.load_checkpoint()
    assert all(str(path) in str(caught.value) for path in paths)


@pytest.mark.parametrize("load_first", [False, True])
def test_a_damaged_checkpoint_never_pushes_out_the_valid_one(run, load_first):
    run.save_checkpoint(tensors(1), {"step": 1})
    run.save_checkpoint(tensors(2), {"step": 2})
    (run.path / "checkpoint.safetensors").write_bytes(b"rubbish")
    again = RunStore.read(run.path)
    if load_first:
        again.load_checkpoint()
    again.save_checkpoint(tensors(3), {"step": 3})
    assert again.load_checkpoint().meta == {"step": 3}
    (run.path / "checkpoint.safetensors").unlink()
    assert again.load_checkpoint().meta == {"step": 1}


@pytest.mark.parametrize("calls", range(8))
def test_stopping_at_any_system_call_leaves_a_valid_checkpoint(run, monkeypatch, calls):
    """Freeze the directory as a kill before the n-th call would leave it, and read it there."""
    run.save_checkpoint(tensors(1), {"step": 1})
    run.save_checkpoint(tensors(2), {"step": 2})
    left, frozen = [calls], run.path.with_name("frozen")

    def counted(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == -1:
                shutil.copytree(run.path, frozen)
            return function(*arguments, **options)

        return call

    for name in ("replace", "fsync", "open", "close"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    run.save_checkpoint(tensors(3), {"step": 3})
    monkeypatch.undo()
    assert (left[0] >= 0) == (not frozen.exists())
    reader = RunStore.read(frozen if frozen.exists() else run.path)
    with reader.lock():
        found = reader.load_checkpoint()
        assert found.meta["step"] in (2, 3) and not found.warnings
        assert_same(found.tensors, tensors(found.meta["step"]))


@pytest.mark.slow
def test_kill_9_never_loses_a_confirmed_checkpoint(run):
    code = f"""
        import numpy as np
        from flatlab.files.store import RunStore
        run = RunStore.read({str(run.path)!r})
        with run.lock():
            found = run.load_checkpoint()
            step = found.meta["step"] if found else 0
            print(step, flush=True)
            while True:
                step += 1
                run.save_checkpoint({{"w": np.full(50_000, step)}}, {{"step": step}})
                print(step, flush=True)
    """
    generator, confirmed = random.Random(0), 0
    for _ in range(25):
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE
        )
        with writer:
            assert int(writer.stdout.readline()) >= confirmed
            # A number of saves and then a fraction of one, so that the kill falls anywhere.
            for _ in range(generator.randrange(1, 6)):
                confirmed = int(writer.stdout.readline())
            time.sleep(generator.uniform(0, 0.004))
            os.kill(writer.pid, signal.SIGKILL)
            lines = writer.stdout.read().split(b"\n")
        confirmed = max([confirmed, *(int(line) for line in lines[:-1])])
        found = run.load_checkpoint()
        assert found.warnings == () and found.meta["step"] >= confirmed
        assert np.array_equal(found.tensors["w"], np.full(50_000, found.meta["step"]))
    with run.lock():
        assert not [name for name in names(run.path) if name.endswith(".tmp")]
    assert confirmed > 25


# History and result


def test_history_comes_back_as_it_was(run):
    assert run.load_history() is None
    columns = {
        "epoch": np.arange(4),
        "loss": np.array([1.0, np.nan, np.inf, 5e-324]),
        "trace": np.arange(4, dtype=np.float32),
        "phase": np.array(["sgd", "sam", "sam", "ü"]),
        "done": np.array([False, False, False, True]),
    }
    run.save_history(columns)
    found = run.load_history()
    assert_same(found, columns)
    assert list(found) == list(columns)
    found["loss"][0] = 2.0
    run.save_history({"epoch": np.zeros(0)})
    assert run.load_history()["epoch"].shape == (0,)


def test_a_damaged_history_or_result_is_named(run):
    run.save_history({"loss": np.arange(1000.0)})
    path = run.path / "history.parquet"
    data = path.read_bytes()
    for damaged in (b"", data[:-1], data[: len(data) // 2], b"x" * len(data)):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"history.parquet is damaged"):
            run.load_history()
    flipped = bytearray(data)
    flipped[100] ^= 1  # within the values: only the page checksum knows
    path.write_bytes(flipped)
    with pytest.raises(StoreError, match=r"history.parquet is damaged"):
        run.load_history()
    for damaged in (b"", b'{"a": ', b"[1]", b"\xff"):
        (run.path / "result.json").write_bytes(damaged)
        with pytest.raises(StoreError, match=r"result.json is damaged"):
            run.load_result()


def test_a_result_is_strict_json(run):
    assert run.load_result() is None
    run.save_result(
        {
            "loss": float("nan"),
            "pair": (np.float32(0.5), np.int64(2)),
            "curve": np.array([1.0, np.inf]),
            "more": {"deep": [-np.inf]},
        }
    )
    expected = {"loss": None, "pair": [0.5, 2], "curve": [1.0, None], "more": {"deep": [None]}}
    assert run.load_result() == expected

    def refuse(name):
        raise AssertionError(name)

    json.loads((run.path / "result.json").read_text(), parse_constant=refuse)


# Writing


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(code):
        def call(*_):
            raise OSError(code, os.strerror(code))

        return call

    for code, kind, words in [
        (errno.ENOSPC, StoreError, f"no space left to write {path}: free some space and run"),
        (errno.EDQUOT, StoreError, "what was saved before is intact"),
        (errno.EIO, StoreError, "cannot write"),
        (errno.EACCES, UserError, "is not writable"),
        (errno.EROFS, UserError, "is not writable"),
    ]:
        for name in ("fsync", "replace"):
            with monkeypatch.context() as patch, pytest.raises(kind, match=words):
                patch.setattr(os, name, fail(code))
                write_atomically(path, b"new")
            assert (path.read_bytes(), names(tmp_path)) == (b"old", ["file"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", lambda *_: signal.raise_signal(signal.SIGINT))
        write_atomically(path, b"new")
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["file"])
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.fixture
def calls(monkeypatch):
    """Return the list of renames and syncs, which grows with each."""
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def call(*arguments, name=name, real=real):
            is_directory = name == "fsync" and os.path.isdir(f"/proc/self/fd/{arguments[0]}")
            calls.append(f"{name} {'directory' if is_directory else 'file'}")
            return real(*arguments)

        monkeypatch.setattr(os, name, call)
    return calls


def test_a_write_is_synced_before_and_after_the_rename(tmp_path, calls):
    write_atomically(tmp_path / "file", b"data")
    assert calls == ["fsync file", "replace file", "fsync directory"]


def test_a_checkpoint_is_synced_before_and_after_the_renames(run, calls):
    for renames in (1, 2):  # the second time the current one becomes the previous
        calls.clear()
        run.save_checkpoint(tensors(), {})
        assert calls == ["fsync file", *["replace file"] * renames, "fsync directory"]


@pytest.fixture
def mount(tmp_path):
    """A real file system of one megabyte, where the system lets us have one."""
    path = tmp_path / "tiny"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_keeps_what_was_saved(mount):
    run = RunStore.open(mount / "run", CONFIG)
    small, large = {"w": np.zeros(20_000)}, {"w": np.ones(100_000)}
    with run.lock():
        run.save_checkpoint(small, {"step": 1})
        run.save_checkpoint(small, {"step": 2})
        for _ in range(3):
            with pytest.raises(StoreError, match="no space left to write"):
                run.save_checkpoint(large, {"step": 3})
        assert run.load_checkpoint().meta == {"step": 2}
        run.save_checkpoint(small, {"step": 4})  # what failed holds no space
    assert not [name for name in names(run.path) if name.endswith(".tmp")]
    with pytest.raises(StoreError, match="no space left"):
        write_atomically(mount / "file", bytes(2_000_000))


def test_a_read_only_file_system_is_a_plain_error_but_can_be_read(mount):
    run = RunStore.open(mount / "run", CONFIG)
    run.save_result({"status": "done"})
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    assert RunStore.open(run.path, CONFIG).load_result() == {"status": "done"}
    for act in (
        lambda: ensure_directory(mount),
        lambda: ensure_directory(mount / "new"),
        lambda: RunStore.open(mount / "new", CONFIG),
        lambda: run.save_result({}),
        lambda: RunStore.open(run.path, CONFIG, fresh=True),
    ):
        with pytest.raises(UserError, match="is not writable"):
            act()


# Directories


def test_ensure_directory(tmp_path):
    ensure_directory(tmp_path / "a" / "b")
    ensure_directory(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to(tmp_path / "nowhere")
    for path in (file, file / "x" / "y"):
        with pytest.raises(UserError, match=f"{file} is not a directory"):
            ensure_directory(path)
    with pytest.raises(UserError, match=f"{link} is a link to .*/nowhere, which does not exist"):
        ensure_directory(link)
    with pytest.raises(StoreError, match="cannot write"):
        ensure_directory(tmp_path / ("x" * 300))


def test_run_directories(tmp_path):
    for path in (tmp_path / "b", tmp_path / "a" / "deep"):
        RunStore.open(path, CONFIG)
    for name, text in [("newer", "format = 9"), ("foreign", "x = 1"), ("damaged", "x = ")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(text)
    expected = [tmp_path / "a" / "deep", tmp_path / "b", tmp_path / "newer"]
    assert run_directories(tmp_path) == expected
    assert run_directories(tmp_path / "b") == [tmp_path / "b"]
    assert run_directories(tmp_path / "absent") == []


def test_importing_the_store_stays_light():
    heavy = "[m for m in ('pyarrow', 'numpy') if m in sys.modules]"
    code = f"import sys, flatlab.files.store; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert store.FORMAT == 2


def test_an_unlock_that_fails_is_no_error(tmp_path, monkeypatch):
    """As on a network file system that is gone: the file is closed all the same."""
    import fcntl

    real = fcntl.flock

    def flock(file, operation):
        if operation == fcntl.LOCK_UN:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    for _ in range(2):
        with locked(tmp_path):
            pass
