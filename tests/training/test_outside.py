"""What comes from outside: paths, pipes, devices, files of numbers too large, numba's switches."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import flatlab as fl
from conftest import TRAIN, command, environment
from flatlab.cli.from_flags import config_from_flags
from flatlab.errors import UserError
from flatlab.training.optimizers import SGD, SAMSpec
from flatlab.training.run import examine
from flatlab.training.schedule import FirstLayer, StepVariation

ARCH, DATA = fl.models.TwoLayer(width=3), fl.data.xor(d=4, n=6, n_test=5)
OPTIONS = {"schedule": [fl.Phase("sgd", lr=0.1, epochs=1)]}
HUGE = 10**400


def phase(optimizer="sgd", **options):
    return fl.Phase(optimizer, lr=0.1, epochs=1, **options)


def train(**changes):
    return fl.train(ARCH, DATA, **{**OPTIONS, **changes})


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: train(log=10), "log must be a LogGrid, got 10"),
        (lambda: train(track="lambda_max"), "track must be a Tracker such as .*, got 'lambda_max'"),
        (lambda: train(out=5), "out must be a directory, got 5"),
        (lambda: train(out=b"run"), "out must be a directory, got bytes"),
        (lambda: train(out="a\0b"), r"out must be a directory, got 'a\\x00b', which has a null"),
        (
            lambda: train(start="a\0b"),
            "start must be the directory of a run, got .* null",
        ),
        (lambda: fl.load_run(None), "a run must be its directory, got None"),
        (lambda: fl.load_run("a\0b"), "null character"),
        (lambda: fl.dissect("a\0b"), "null character"),
        (lambda: fl.data.load("a\0b"), "path must be a path, got .* null character"),
        (lambda: train(out=""), "out must be a directory, got '': name one"),
        (
            lambda: train(schedule=np.array([OPTIONS["schedule"][0]] * 9)),
            "schedule must be a non-empty list of Phase, got array",
        ),
        (lambda: train(schedule=3), "schedule must be a non-empty list of Phase, got 3$"),
        (lambda: train(dtype="f8"), "dtype must be float32 or float64, got 'f8'$"),
        (lambda: train(dtype=np.float16), "dtype must be float32 or float64, got 'float16'$"),
        (lambda: train(dtype=None), "dtype must be float32 or float64, got None$"),
        (
            lambda: train(measures=[fl.Tracked("lambda_max", examples=7)]),
            "examples of lambda_max must be <= n = 6, got 7: leave it out to take all",
        ),
        (
            lambda: train(measures={"measure": "lambda_max", "mode": "train", "batch_size": 7}),
            "batch_size of lambda_max must be <= n = 6, got 7",
        ),
        (
            lambda: phase(first_layer=FirstLayer(max_norm=1.0), max_first_layer_norm=2.0),
            r"max_first_layer_norm is given twice, 1\.0 and 2\.0, once as first_layer\.max_norm",
        ),
        (
            lambda: phase(variation=StepVariation(input_noise=1.0), input_noise=2.0),
            r"input_noise is given twice, 1\.0 and 2\.0",
        ),
        (
            lambda: phase(SAMSpec(rho=0.1), rho=0.2),
            r"rho is given twice, 0\.1 and 0\.2: give it once",
        ),
        (
            lambda: phase(SAMSpec(rho=0.1, base=SGD(momentum=0.5)), momentum=0.9),
            r"momentum is given twice, 0\.5 and 0\.9",
        ),
        (
            lambda: phase("sam", rho=0.1, base=SGD(momentum=0.5), momentum=0.9),
            r"momentum is given twice, 0\.5 and 0\.9",
        ),
        (lambda: train(threads=HUGE), "threads must be a whole number from 1 to 1024"),
        (lambda: train(threads=True), "threads must be a whole number from 1 to 1024"),
        (lambda: train(fresh="no"), "fresh must be True or False, got 'no'"),
        (lambda: fl.train(fl.models.TwoLayer(width=HUGE), DATA, **OPTIONS), "a network of 1e.300"),
        (lambda: fl.Phase("sgd", lr=HUGE, epochs=1), "lr: input should be a valid number"),
        (lambda: fl.Phase("sgd", lr=0.1, epochs=HUGE), r"epochs must be <= 1e\+12"),
        (lambda: fl.data.xor(d=4, n=HUGE), r"n \* d must be <= 2\^31"),
    ],
)
def test_a_mistake_of_python_is_one_line(call, message):
    with pytest.raises(UserError, match=f"^.*{message}") as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_large_seed_is_a_seed(tmp_path):
    """Seeds are hashed, so any size will do; it is stored and read back."""
    data = fl.data.xor(d=4, n=6, n_test=5, seed=HUGE)
    run = fl.train(ARCH, data, **OPTIONS, seed=HUGE, out=tmp_path / "run")
    assert fl.load_run(tmp_path / "run").config == run.config


@pytest.fixture(params=["pipe", "device"])
def endless(request, tmp_path):
    """A path whose reading would block, or never end."""
    path = tmp_path / "endless"
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


def test_what_has_no_end_is_not_read(endless, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    os.rename(endless, folder / "config.toml")
    endless = folder / "config.toml"
    said = re.escape(f"{endless} is a pipe or a device: give a file")
    for call in (
        lambda: fl.data.load(endless),
        lambda: config_from_flags(endless, {}),
        lambda: fl.load_run(folder),
        lambda: examine(folder),
        lambda: train(out=folder),
    ):
        with pytest.raises(UserError, match=said):
            call()
    with pytest.raises(UserError, match="is a file, not a run directory"):
        fl.load_run(endless)


@pytest.mark.parametrize(
    "text, message",
    [
        ("seed = 1" + "0" * 5000, "cannot be read: Exceeds the limit"),
        ("a = " + "[" * 5000 + "]" * 5000, "cannot be read: maximum recursion depth"),
        ("[[schedule]]\noptimizer = 'sgd'\nepochs = 1\nlr = 1" + "0" * 400, "lr: input should be"),
    ],
)
def test_a_toml_file_of_absurd_values_is_one_line(text, message, main, tmp_path):
    (tmp_path / "run.toml").write_text(text)
    code, out, err = main("train", "run.toml", "--arch", "two_layer", "--data", "xor:d=4,n=6")
    assert (code, out) == (2, "") and err.count("\n") == 1 and message in err


def test_flags_of_absurd_values_are_one_line(main):
    for width in ("1" + "0" * 5000, "[" * 5000):
        code, out, err = main(*TRAIN, "--arch", f"two_layer:width={width}")
        assert (code, out) == (2, "") and err.count("\n") == 1 and "width: " in err


def test_training_works_without_numbas_compiler(tmp_path):
    """NUMBA_DISABLE_JIT=1 is for debugging: the same steps, rounded in another order."""
    finals = []
    for off in ("0", "1"):
        flags = [*TRAIN, "--dtype", "float64", "--json", "--out", tmp_path / off]
        done = subprocess.run(
            command(*flags), env=environment(NUMBA_DISABLE_JIT=off), capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        finals.append(json.loads(done.stdout)["final"])
    assert finals[0] == pytest.approx(finals[1], rel=1e-9)


OFFLINE = """
import sys
from pathlib import Path
import flatlab as fl

offline = []
def hook(event, given):
    if event == "import" and offline and given[0] not in sys.modules:
        raise ImportError(f"{given[0]} is imported after the first step")
sys.addaudithook(hook)

def report(info):
    offline.append(True)

kind, out = sys.argv[1:]
data = fl.data.xor(d=4, n=6, n_test=5)
arch = fl.models.TwoLayer(width=3) if kind == "engine" else fl.models.MLP(widths=(3,))
phases = [fl.Phase("sam", lr=0.1, rho=0.1, epochs=2), fl.Phase("sgd", lr=0.1, epochs=2)]
options = {"schedule": phases, "measures": ["lambda_max"], "out": out, "report": report}
run = fl.train(arch, data, **options)
assert offline and run.status == "done" and Path(out, "result.json").exists()
"""


@pytest.mark.parametrize("kind", ["engine", "torch"])
def test_nothing_is_imported_after_the_first_step(kind, tmp_path):
    """A package that is upgraded or removed during a run must not cost its end."""
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, kind, tmp_path / "run"],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
