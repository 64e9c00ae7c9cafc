"""The runs of one experiment or of many: found where they are done, trained once where not.

A run is what its configuration says, so runs are matched by the digest of the configuration. Two
experiments that plan the same run under different names share it, in one pool as in one folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import FlatlabError
from ..files.store import run_directories
from ..jobs import Job, OnEvent, Outcome, run_jobs
from ..jobs.costs import kernels
from ..training.config import RunConfig, config_digest
from ..training.run import OVER, Run, load_run, read_result, read_store
from .contract import Planned


@dataclasses.dataclass(frozen=True)
class Slot:
    """One distinct run of a pool.

    Attributes:
        name: What it is called here: its first name, made unique.
        names: All names it was planned under.
        config: What to run.
        path: Its directory.
        run: What is there, if it is over; None if it must be trained.
    """

    name: str
    names: tuple[str, ...]
    config: RunConfig
    path: Path
    run: Run | None

    def job(self, fresh: bool) -> Job:
        """Return what trains it."""
        payload = {"config": self.config.to_dict(), "out": str(self.path), "fresh": fresh}
        return Job(self.name, "flatlab.training.session:run_job", payload)


@dataclasses.dataclass(frozen=True)
class Trained:
    """What came of a pool, by digest; a run that is not over has an outcome and no run."""

    runs: Mapping[str, Run]
    outcomes: Mapping[str, Outcome]


def slots(planned: Iterable[Planned], out: Path, fresh: bool) -> dict[str, Slot]:
    """Return digest → slot, in the order of the plan.

    A run goes to `out/runs/<name>-<digest>`, or to where it is under another of its names. What is
    there under a name that is not planned here is used if it is over, and otherwise left to those
    who make it.
    """
    names: dict[str, list[str]] = {}
    configs: dict[str, RunConfig] = {}
    for p in planned:
        key = p.config.digest()
        configs[key] = p.config
        if p.name not in names.setdefault(key, []):
            names[key].append(p.name)
    there: dict[str, list[Path]] = {}
    for path in sorted((out / "runs").glob("*-*")):
        there.setdefault(path.name.rpartition("-")[2], []).append(path)
    first = [called[0] for called in names.values()]
    made = {}
    for key, called in names.items():
        own = [out / "runs" / f"{name}-{key}" for name in called]
        known = [path for path in own if path.exists()]
        path, run = (known or own)[0], None
        if not fresh:
            path, run = _over([*known, *there.get(key, [])], configs[key]) or (path, None)
        name = called[0] if first.count(called[0]) == 1 else f"{called[0]}-{key}"
        made[key] = Slot(name, tuple(called), configs[key], path, run)
    return made


def train(
    slots: Mapping[str, Slot],
    *,
    workers: int | None = None,
    fresh: bool = False,
    on_event: OnEvent | None = None,
    until: float | None = None,
    order: Sequence[str] | None = None,
) -> Trained:
    """Train what is not yet done.

    Args:
        slots: Digest → run.
        workers: Processes at once; None is one for each core.
        fresh: Whether runs in progress start again.
        on_event: Hears the events of the jobs, and "reused" for each run that is over.
        until: The `time.monotonic()` at which to stop.
        order: Digests in the order to train in; by default that of the slots.
    """
    jobs = {key: slot.job(fresh) for key, slot in slots.items()}
    for key, slot in slots.items():
        if slot.run is not None and on_event:
            on_event(jobs[key], "reused", {})
    missing = [key for key in order or slots if slots[key].run is None]
    if until is None:
        missing = _first_of_each_kernel_first(missing, slots)
    ran = run_jobs([jobs[key] for key in missing], workers, on_event, until)
    outcomes = dict(zip(missing, ran, strict=True))
    runs = {}
    for key, slot in slots.items():
        if slot.run is not None:
            runs[key], outcomes[key] = slot.run, _reused(jobs[key], slot.run)
        elif outcomes[key].status == "done":
            runs[key] = load_run(slot.path)
    return Trained(runs, outcomes)


def _first_of_each_kernel_first(keys: Sequence[str], slots: Mapping[str, Slot]) -> list[str]:
    """Bring forward a run for each kernel: of two that need the same, one waits for the other."""
    seen: set[tuple[object, ...]] = set()
    first = []
    for key in keys:
        needed = kernels(slots[key].config)
        if not needed <= seen:
            first.append(key)
            seen |= needed
    return [*first, *(key for key in keys if key not in first)]


def finished(out: Path) -> Iterator[tuple[RunConfig, float]]:
    """Yield the configuration and the training seconds of every run in a folder that is done."""
    for path in run_directories(out / "runs"):
        with contextlib.suppress(FlatlabError):
            store = read_store(path)
            result = read_result(store)
            if result and result["status"] == "done":
                yield RunConfig.from_dict(store.config), float(result["seconds"])


def _over(paths: Iterable[Path], config: RunConfig) -> tuple[Path, Run] | None:
    """Return the first run that is over; what is damaged is left to its job."""
    for path in paths:
        with contextlib.suppress(FlatlabError):
            store = read_store(path)
            result = store.load_result() or {}
            over = result.get("status") in OVER
            if over and config_digest(store.config) == config.digest():
                return path, load_run(path)
    return None


def _reused(job: Job, run: Run) -> Outcome:
    result = {**run.result(), "path": str(run.path)}
    return Outcome(job, "done", result, error=None, exit_code=0, seconds=0.0)
