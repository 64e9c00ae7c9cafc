"""What a job costs on Ray beyond a local process, on a cluster of this machine.

Both backends run the same jobs, which do nothing, two at a time and in turns; the fastest round of
each counts. Both are warm: starting Ray, its workers and the processes that jobs are forked from is
a cost of a command, not of a job, and has a row of its own.
"""

from __future__ import annotations

import importlib.util
import time

from flatlab.jobs import Backend, Cluster, Job, LocalProcesses, run_jobs

from .rows import Row, Target, Tell

JOBS = 200
ROUNDS = 5
TARGET = Target("value", "<=", 20.0)


def installed() -> bool:
    """Return whether Ray is there."""
    return importlib.util.find_spec("ray") is not None


def benchmark(tell: Tell) -> list[Row]:
    """Compare milliseconds a job."""
    if not installed():
        return [Row("ray", "skipped: ray is not installed")]
    from flatlab.jobs.ray_tasks import RayTasks

    tell("ray: starting a cluster on this machine")
    began = time.perf_counter()
    with RayTasks(Cluster()) as cluster, LocalProcesses() as local:
        started = time.perf_counter() - began
        backends: dict[str, Backend] = {"local": local, "ray": cluster}
        best = dict.fromkeys(backends, float("inf"))
        for turn in range(-1, ROUNDS):
            tell(f"ray: round {turn + 1} of {ROUNDS}, {JOBS} jobs each")
            for name, backend in backends.items():
                seconds = _seconds(backend)
                if turn >= 0:  # the round before the first warms up
                    best[name] = min(best[name], seconds)
    each = {name: 1e3 * seconds / JOBS for name, seconds in best.items()}
    at_once = f"{cluster.slots} at a time"
    return [
        Row("ray", f"an empty job in a local process, {at_once}", each["local"], "ms"),
        Row("ray", f"the same on Ray, {at_once}; ratio: over local", each["ray"], "ms",
            each["ray"] / each["local"]),
        Row("ray", "a job on Ray beyond a local process", each["ray"] - each["local"], "ms",
            None, TARGET),
        Row("ray", "starting a cluster on this machine, once a command", started, "s"),
    ]  # fmt: skip


def _seconds(backend: Backend) -> float:
    """Return the wall-clock of all jobs; each must be done."""
    jobs = [Job(str(k), "benchmarks.idle:nothing", {}) for k in range(JOBS)]
    began = time.perf_counter()
    outcomes = run_jobs(jobs, backend)
    seconds = time.perf_counter() - began
    if any(outcome.status != "done" for outcome in outcomes):
        raise RuntimeError(f"a job failed: {next(o.error for o in outcomes if o.error)}")
    return seconds
