"""The overhead of `train` over bare training: chunks, progress, checkpoints, the run directory.

There are two figures. The direct figure compares two runs,

    (T_train − T_bare − points × T_point) / T_bare

T_train is the wall-clock of `flatlab.training.train` with a progress callback and a run directory,
T_bare the wall-clock of one `CompiledTrainer.advance` over the same units. T_point is the time of
measuring losses, test error and trace once, and `points` the number of log points. The two runs
alternate and the fastest of each counts. Two runs of the same work can differ by more than the
target, so this figure is shown and not judged.

The judged figure is measured inside a single run, so that noise cancels:

    (T_train − T_kernel − T_points + calls × T_call) / (T_kernel − calls × T_call)

T_kernel and T_points are the seconds of that run spent in `advance` and in measuring. T_call is the
time of an `advance` over no units, the cost of one more kernel call. A short run comes first, so
that imports are not counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from flatlab.engine import CompiledTrainer
from flatlab.training import rows
from flatlab.training import session as training
from flatlab.training.config import RunConfig
from flatlab.training.run import Run
from flatlab.training.schedule import Phase

from . import timing
from .cases import CASES, SEED, Engine
from .rows import Row, Target, Tell

SECONDS = 8.0
ROUNDS = 2
TARGET = Target("value", "<", 2.0)


def benchmark(tell: Tell) -> list[Row]:
    """Compare `train` with the bare kernel."""
    engine = Engine(CASES["sam"])
    with tempfile.TemporaryDirectory() as out:
        train(20, out)
    timing.slice_seconds(engine, 500)
    epochs = round(500 * SECONDS / timing.slice_seconds(engine, 500))
    bare, runs = [], []
    for turn in range(ROUNDS):
        tell(f"overhead: round {turn + 1} of {ROUNDS}, {2 * SECONDS:.0f} s each")
        bare.append(timing.slice_seconds(engine, epochs, time.perf_counter))
        runs.append(_measured_run(epochs))
    whole, points = min(run.whole for run in runs), runs[0].points
    point, call = _point_seconds(), _call_seconds(engine)
    direct = (whole - min(bare) - points * point) / min(bare)
    inside = min(run.overhead(call) for run in runs)
    return [
        Row("overhead", f"{epochs:,} epochs of 1-SAM, one bare call", min(bare), "s"),
        Row("overhead", "the same by train(): progress, checkpoints, log", whole, "s",
            whole / min(bare)),
        Row("overhead", f"of that, {points} log points of {1e3 * point:.2g} ms",
            points * point, "s"),
        Row("overhead", "train() − bare call − log points, over bare call", 100 * direct, "%"),
        Row("overhead", "inside train(): all but kernel and log points, over kernel",
            100 * inside, "%", target=TARGET),
    ]  # fmt: skip


@dataclass(frozen=True)
class _Measured:
    """A run's seconds in total, in the kernel and in measuring; its kernel calls and log points."""

    whole: float
    kernel: float
    measuring: float
    calls: int
    points: int

    def overhead(self, call: float) -> float:
        """Return the time outside kernel and measuring over the time of a single kernel call."""
        entering = self.calls * call
        return (self.whole - self.kernel - self.measuring + entering) / (self.kernel - entering)


def _measured_run(epochs: int) -> _Measured:
    kernel = _Stopwatch(CompiledTrainer.advance)
    measuring = _Stopwatch(rows.row_of)
    with (
        tempfile.TemporaryDirectory() as out,
        mock.patch.object(CompiledTrainer, "advance", lambda *args: kernel(*args)),
        mock.patch.object(training, "row_of", measuring),
    ):
        whole = _seconds(lambda: train(epochs, out))
    return _Measured(whole, kernel.seconds, measuring.seconds, kernel.calls, measuring.calls)


class _Stopwatch:
    """A function that adds up the seconds and the number of its calls."""

    def __init__(self, function: Callable[..., Any]):
        self.function, self.seconds, self.calls = function, 0.0, 0

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        clock = time.perf_counter()
        answer = self.function(*args)
        self.seconds += time.perf_counter() - clock
        self.calls += 1
        return answer


def _point_seconds() -> float:
    case = CASES["sam"]
    params = case.start()
    params = {name: value.astype(np.float32) for name, value in params.items()}
    config = RunConfig(case.arch, case.data.spec, (case.phase,))
    return min(
        _seconds(lambda: rows.chain_row(config, case.arch, params, case.data)) for _ in range(30)
    )


def _call_seconds(engine: Engine) -> float:
    phase = engine.case.phase
    return min(_seconds(lambda: engine.trainer.advance(phase, 0, 0, 0)) for _ in range(1000))


def train(epochs: int, out: str) -> Run:
    """Train the two-layer 1-SAM case by `flatlab.training.train` into a run directory."""
    case = CASES["sam"]
    phase = Phase("sam", lr=case.phase.lr, rho=case.phase.rho, batch_size=1, epochs=epochs)
    run = training.train(
        case.arch, case.data, schedule=[phase], seed=SEED, out=out, report=lambda info: None
    )
    if run.status == "interrupted":  # train() turns Ctrl-C into a status
        raise KeyboardInterrupt
    if run.status != "done":
        raise RuntimeError(f"the run of the benchmark 'overhead' ended as {run.status}")
    return run


def _seconds(call: Callable[[], Any]) -> float:
    clock = time.perf_counter()
    call()
    return time.perf_counter() - clock
