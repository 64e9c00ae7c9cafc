"""Runs survive kill -9, two processes at once, a full disk and a damaged file."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import tomli_w

import flatlab as fl
from conftest import SIZES, bits, command, environment, holder, tiny, wait_for
from flatlab import cli, experiments, load_run
from flatlab.errors import UserError
from flatlab.files import store
from flatlab.files.store import RunStore
from flatlab.training import session as training
from flatlab.training import sitting

# Two phases, 1-SAM and then SGD, some seconds in all.
LONG = [
    "train",
    *("--arch", "two_layer:width=200"),
    *("--data", "xor:d=30,n=100,n_test=200"),
    *("--dtype", "float32"),
    *("--phase", "sam:lr=0.01,rho=0.05,batch_size=1,epochs=20000"),
    *("--phase", "sgd:lr=0.005,batch_size=1,epochs=20000"),
]
# The same, for what needs less time.
SHORT = [part.replace("epochs=20000", "epochs=1500") for part in LONG]

# 100 epochs in each phase, and a checkpoint after each of them: 200 places to be killed at.
KILLED = [part.replace("epochs=20000", "epochs=100") for part in LONG]

# A process that has done the imports and forks one `flatlab` after another, as starting Python
# twenty times would take a minute. Each child is killed as a whole, after some number of saved
# checkpoints and a few milliseconds, wherever it then is: making data, training, writing a
# checkpoint, renaming it. So the machine's speed decides neither how often it is killed nor in
# which phase. A run that ends before all is seen is followed by another in a folder of its own.
KILLER = """
import os, random, signal, sys, time
from flatlab import cli
from flatlab.training import session as training
from flatlab.training import sitting
from flatlab.files.store import RunStore

def main(out, arguments):
    sys.argv = ["flatlab", *arguments, "--out", out]
    try:
        cli.main()
    except SystemExit as ended:
        return ended.code

def start(out):
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(heard)
        sitting.CHUNK_SECONDS, training.CHECKPOINT_SECONDS = 0.0, 0.0
        save = RunStore.save_checkpoint

        def saved(self, *parts):
            save(self, *parts)
            os.write(told, b".")

        RunStore.save_checkpoint = saved
        os._exit(main(out, arguments))
    os.close(told)
    return pid, heard

whole, killed, *arguments = sys.argv[1:]
say = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
main(whole + "-warm", [part.replace("epochs=100", "epochs=2") for part in arguments])
assert main(whole, arguments) == 0
generator, kills, phases, ends, ended = random.Random(2023), 0, set(), [], False
while kills < 20 or not {0, 1} <= phases or not ended:
    out = f"{killed}-{len(ends)}"
    pid, heard = start(out)
    saves = generator.choice([0, *[generator.randrange(1, 16)] * 4])
    ended = any(os.read(heard, 1) == b"" for _ in range(saves))  # it ended before so many
    if not ended:
        time.sleep(generator.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
        kills += 1
    os.close(heard)
    _, status = os.waitpid(pid, 0)
    if ended:
        ends.append(os.waitstatus_to_exitcode(status))
        continue
    if os.path.exists(os.path.join(out, "config.toml")):
        checkpoint = RunStore.read(out).load_checkpoint()
        phases |= {checkpoint.meta["phase"]} if checkpoint else set()
os.write(say, repr([kills, sorted(phases), ends]).encode())
"""


@pytest.fixture(scope="module")
def short_bits(tmp_path_factory):
    """What an uninterrupted run of `SHORT` comes to."""
    path = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run(
        command(*SHORT, "--out", path), check=True, capture_output=True, env=environment()
    )
    return bits(path)


@pytest.mark.slow
def test_a_run_killed_over_twenty_times_ends_in_the_same_bits(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    ended = subprocess.run(
        [sys.executable, "-c", KILLER, whole, killed, *KILLED],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(),
    )
    assert ended.stderr == "" and ended.returncode == 0
    kills, phases, ends = json.loads(ended.stdout)
    assert kills >= 20 and set(ends) == {0}
    assert {0, 1} <= set(phases)  # it was hit in both
    for path in (tmp_path / f"killed-{i}" for i in range(len(ends))):
        assert bits(path) == bits(whole)
        assert bits(path)[0] == "done"
        assert sorted(entry.name for entry in path.iterdir()) == [
            "checkpoint.previous.safetensors",
            "checkpoint.safetensors",
            "config.toml",
            "history.parquet",
            "lock",
            "result.json",
        ]  # and nothing temporary is left


@pytest.mark.slow
def test_an_experiment_killed_twenty_times_ends_in_the_same_bits(tmp_path):
    """A real `flatlab run`: its children die with it, and no saved work is lost or changed."""
    # Two seconds of work or more for each of the children, a checkpoint every 20 ms.
    longer = {"bias_epochs": 30000, "no_bias_epochs": 30000, "gd_epochs": 20000}
    arguments = [*tiny(**longer), "--seeds", "1", "--json"]
    often = environment(FLATLAB_CHECKPOINT_SECONDS="0.02")
    outs, generator, kills = [tmp_path / "killed-0"], random.Random(7), 0
    while kills < 20:
        process = subprocess.Popen(
            command(*arguments, "--out", outs[-1]), env=often, stdout=subprocess.DEVNULL
        )
        try:
            # From the midst of its imports to well into its work.
            assert process.wait(generator.uniform(0.3, 3.0)) == 0, "it finished and did not fail"
            outs.append(tmp_path / f"killed-{len(outs)}")  # a quick machine: kill another one
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    children = [pid for path in outs[-1].glob("runs/*") if (pid := holder(path))]
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children))  # they follow
    ended = subprocess.run(
        command(*arguments, "--out", outs[-1]),
        env=often,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    changes = {**SIZES, **longer}
    whole = experiments.run(
        "wen2023/table1", "quick", out=tmp_path / "whole", seeds=1, changes=changes, workers=2
    )
    assert len(whole.runs) == 8
    for run in whole.runs:
        for out in outs:
            assert bits(out / run.path) == bits(tmp_path / "whole" / run.path)


def test_of_two_processes_on_one_run_the_second_says_who_works_there(start, main, tmp_path):
    path = tmp_path / "run"
    endless = [part.replace("epochs=20000", "epochs=20000000") for part in LONG]
    first = start(*endless, "--out", path)
    wait_for(lambda: holder(path) == first.pid, first)
    for more in ([], ["--fresh"]):  # nor does --fresh take it away
        assert main(*endless, "--out", path, *more) == (
            2,
            "",
            f"flatlab: another process (pid {first.pid}) is working on {path}: "
            "wait for it or choose another directory\n",
        )
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 130


# A full disk


def test_a_write_that_fails_for_lack_of_space_can_be_continued(
    main, monkeypatch, short_bits, tmp_path
):
    path, sync, room = tmp_path / "run", os.fsync, [12]  # syncs before the disk is full

    def full(descriptor):
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(sitting, "CHUNK_SECONDS", 0.01)
        patch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(store.os, "fsync", full)
        code, stdout, stderr = main(*SHORT, "--out", path)
    assert (code, stdout) == (2, "")
    assert re.fullmatch(
        rf"flatlab: no space left to write {path}/checkpoint\.safetensors: free some space and "
        r"run the same command again; what was saved before is intact\n",
        stderr,
    )
    assert 0 < load_run(path).columns["epoch"][-1] < 3000  # something was saved, not all
    assert main(*SHORT, "--out", path)[0] == 0
    assert bits(path) == short_bits


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 200 KiB: room for the two checkpoints of a run and a third on its way."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], capture_output=True
    )
    if made.returncode:
        pytest.skip("mounting is not permitted")
    yield disk
    subprocess.run(["umount", disk], check=True)


# After its fifth checkpoint the run waits for a line on stdin.
WAITS = """
import sys
from flatlab import cli
from flatlab.files.store import RunStore
from flatlab.training import session, sitting
sitting.CHUNK_SECONDS, session.CHECKPOINT_SECONDS = 0.01, 0.0
save, saves = RunStore.save_checkpoint, []

def saved(self, *parts):
    save(self, *parts)
    saves.append(True)
    if len(saves) == 5:
        sys.stdin.readline()

RunStore.save_checkpoint = saved
cli.main()
"""


def test_a_disk_that_fills_up_stops_the_run_and_space_continues_it(tiny_disk, main, short_bits):
    path, filler = tiny_disk / "run", tiny_disk / "filler"
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, *SHORT, "--out", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        wait_for((path / "checkpoint.previous.safetensors").exists, process)
        with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        stdout, stderr = process.communicate("\n", timeout=60)
    finally:
        process.kill()
    assert (process.returncode, stdout) == (2, "")
    assert re.fullmatch(r"flatlab: no space left to write [^\n]*: free some space [^\n]*\n", stderr)
    filler.unlink()
    assert main(*SHORT, "--out", path)[0] == 0
    assert bits(path) == short_bits


# Damage


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


@pytest.fixture(scope="module")
def half_done(tmp_path_factory):
    """A run of `SHORT` that was interrupted and has two checkpoints."""
    path = tmp_path_factory.mktemp("half") / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(sitting, "CHUNK_SECONDS", 0.01)
        patch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(sys, "argv", ["flatlab", *SHORT, "--out", str(path)])
        save, count = RunStore.save_checkpoint, [0]

        def counted(self, *args):
            save(self, *args)
            count[0] += 1
            if count[0] == 5:
                os.kill(os.getpid(), signal.SIGTERM)  # which a run takes as an interrupt

        patch.setattr(RunStore, "save_checkpoint", counted)
        cli.main()
    assert load_run(path).status == "interrupted"
    return path


@pytest.mark.parametrize("damage", [truncate, flip, empty])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    half_done, short_bits, main, tmp_path, damage
):
    path = tmp_path / "run"
    shutil.copytree(half_done, path)
    damage(path / "checkpoint.safetensors")
    code, stdout, stderr = main(*SHORT, "--out", path, "--json")
    assert (code, stderr) == (0, "")
    (note,) = json.loads(stdout)["notes"]
    assert re.fullmatch(
        rf"{path}/checkpoint\.safetensors is damaged \(.+\): "
        r"continuing from checkpoint\.previous\.safetensors",
        note,
    )
    assert bits(path) == short_bits


def test_two_damaged_checkpoints_say_so_and_fresh_starts_again(
    half_done, short_bits, main, tmp_path
):
    path = tmp_path / "run"
    shutil.copytree(half_done, path)
    truncate(path / "checkpoint.safetensors")
    flip(path / "checkpoint.previous.safetensors")
    code, stdout, stderr = main(*SHORT, "--out", path)
    assert (code, stdout) == (2, "")
    assert stderr.count("is damaged") == 2
    assert stderr.endswith(": start again with --fresh, or without this run's folder\n")
    assert main(*SHORT, "--out", path, "--fresh")[0] == 0
    assert bits(path) == short_bits


def test_a_finished_run_whose_end_is_damaged_is_finished_again(
    half_done, short_bits, main, tmp_path
):
    path = tmp_path / "run"
    shutil.copytree(half_done, path)
    assert main(*SHORT, "--out", path)[0] == 0
    flip(path / "checkpoint.safetensors")
    code, stdout, stderr = main(*SHORT, "--out", path, "--json")
    assert (code, stderr) == (0, "")
    assert "is damaged" in " ".join(json.loads(stdout)["notes"])
    assert bits(path) == short_bits


def test_a_resumed_history_has_its_columns_in_the_order_of_a_new_one(half_done, tmp_path):
    names = ["epoch", "step", "train_loss", "train_error", "trace", "trace_ggn"]
    names += [
        "test_loss",
        "test_error",
        "memorisation",
        "features",
    ]  # xor knows its relevant coordinates
    run = load_run(half_done)
    assert list(run.columns) == list(run.history) == names
    assert np.all(np.diff(run.columns["epoch"]) > 0)


# Directories of the first format


def test_a_directory_of_the_first_format_is_read_and_continued(tmp_path, monkeypatch):
    """Format 1 wrote all options of a phase side by side, every option of a loss, and no starts."""
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(sitting, "CHUNK_SECONDS", 0.0)
    data = fl.data.xor(d=6, n=20, seed=0, n_test=10)
    schedule = [fl.Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=4, momentum=0.9),
                fl.Phase("sgd", lr=0.01, batch_size=5, epochs=4)]  # fmt: skip
    options = {"schedule": schedule, "loss": fl.losses.Logistic(smoothing=0.1)}

    class Stop(Exception):
        pass

    def stop(info):
        if info["epoch"] >= 6:
            raise Stop

    with pytest.raises(Stop):
        fl.train(fl.models.TwoLayer(width=9), data, **options, out=tmp_path / "run", report=stop)
    path = tmp_path / "run" / "config.toml"
    old = tomllib.loads(path.read_text()) | {"format": 1}
    old["loss"] |= {"cutoff": 1.0}
    shared = {"batch_size": 1, "weight_decay": 0.0, "noise": 0.0, "lr": 0.01, "epochs": 4}
    old["schedule"] = [
        {**shared, "algorithm": "sam", "rho": 0.05, "momentum": 0.9},
        {**shared, "algorithm": "sgd", "rho": 0.0, "batch_size": 5},
    ]
    path.write_text(tomli_w.dumps(old))
    checkpoint = RunStore.read(tmp_path / "run").load_checkpoint()
    meta = {name: value for name, value in checkpoint.meta.items() if name != "starts"}
    kept = {name: t for name, t in checkpoint.tensors.items() if "/step" not in name}
    meta["order"] = [name for name in meta["order"] if name in kept]
    store.RunStore.read(tmp_path / "run").save_checkpoint(kept, meta)
    half = load_run(tmp_path / "run")
    assert half.status == "interrupted" and "format 1" in half.notes[-1]
    ended = fl.train(fl.models.TwoLayer(width=9), data, **options, out=tmp_path / "run")
    whole = fl.train(fl.models.TwoLayer(width=9), data, **options)
    assert ended.status == "done"
    for name, column in ended.columns.items():
        assert column.tobytes() == whole.columns[name].tobytes()
    for name, value in ended.params.items():
        assert value.tobytes() == whole.params[name].tobytes()


def test_a_directory_of_the_first_format_that_makes_no_sense_says_so(tmp_path):
    (tmp_path / "config.toml").write_text("format = 1\nseed = 0\n")
    with pytest.raises(UserError, match="written by an older flatlab"):
        load_run(tmp_path)
