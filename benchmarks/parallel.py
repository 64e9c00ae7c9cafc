"""Two simultaneous runs on two cores, compared with one run alone.

Short runs alternate, alone and together. The time of a pair is the time of its slower run, and the
fastest pair counts. The target is on wall-clock. On a busy machine the runs share their cores with
other work; the row on processor time then shows how much they disturb each other.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

from threadpoolctl import threadpool_limits

from .cases import CASES, Engine
from .rows import Row, Target, Tell

ROUNDS = 16
EPOCHS = 1_500
TARGET = Target("ratio", "<=", 1.1)

Times = dict[str, list[tuple[float, float]]]
"""Wall-clock and processor seconds of each run, under "alone" and "both"."""


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def benchmark(tell: Tell) -> list[Row]:
    """Compare the wall-clock of the slower of two simultaneous runs with a single run's."""
    if cores() < 2:
        return [Row("parallel", "skipped: two cores are needed")]
    tell(f"parallel: two processes of {EPOCHS:,} epochs, {ROUNDS} rounds")
    spawn = multiprocessing.get_context("spawn")
    barrier, answers = spawn.Barrier(2), spawn.Queue()
    workers = [spawn.Process(target=_work, args=(n, barrier, answers)) for n in range(2)]
    for worker in workers:
        worker.start()
    try:
        times = _collect(workers, answers)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    runs = f"{EPOCHS:,} epochs of 1-SAM"
    alone, both = _fastest(times, 0)
    alone_cpu, both_cpu = _fastest(times, 1)
    return [
        Row("parallel", f"{runs}, one run alone", alone, "s"),
        Row("parallel", "two such runs at once; ratio: over one alone", both, "s",
            both / alone, TARGET),
        Row("parallel", "the same in processor time of the slower run", both_cpu, "s",
            both_cpu / alone_cpu),
    ]  # fmt: skip


def _fastest(times: dict[int, Times], clock: int) -> tuple[float, float]:
    """Return the fastest run alone and the fastest pair by one of the two clocks."""
    alone = min(run[clock] for worker in times.values() for run in worker["alone"])
    pairs = zip(*(worker["both"] for worker in times.values()), strict=True)
    return alone, min(max(run[clock] for run in pair) for pair in pairs)


def _collect(workers: list[Any], answers: Any) -> dict[int, Times]:
    """Wait for both answers; a worker that died without one is an error, not a hang."""
    times: dict[int, Times] = {}
    while len(times) < len(workers):
        if not answers.empty():
            number, measured = answers.get()
            times[number] = measured
        elif any(worker.exitcode not in (None, 0) for worker in workers):
            raise RuntimeError("a worker of the benchmark 'parallel' failed: see its message above")
        else:
            time.sleep(0.05)
    return times


def _work(number: int, barrier: Any, answers: Any) -> None:
    """Run alone, then together, in turns; the other process sleeps while one runs alone."""
    engine = Engine(CASES["sam"])
    times: Times = {"alone": [], "both": []}

    def run(kind: str) -> None:
        engine.reset()
        wall, cpu = time.perf_counter(), time.process_time()
        engine.run(EPOCHS)
        times[kind].append((time.perf_counter() - wall, time.process_time() - cpu))
        engine.check()

    with threadpool_limits(1):
        engine.run(EPOCHS)  # compile and warm up
        for turn in range(ROUNDS):
            barrier.wait()
            if turn % 2 == number:
                run("alone")
            barrier.wait()
            run("both")
    answers.put((number, times))
