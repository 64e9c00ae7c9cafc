"""The work of experiments, their runs and computations: find what is done, do the rest once.

A digest of its content names each run and computation. So two experiments that plan the same run
under different names share it, in one call and in one folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FlatlabError, StoreError
from ..files.store import run_directories
from ..jobs import Backend, Care, Job, OnEvent, Outcome, run_jobs
from ..jobs.costs import CostModel, kernels
from ..training.config import RunConfig
from ..training.run import OVER, Run, is_whole, load_run, read_result, read_store
from .computing import Computed, load_computed, starts_from
from .contract import Computation, Experiment, Planned

Made = Run | Computed


@dataclasses.dataclass(frozen=True)
class Work:
    """One distinct run or computation."""

    name: str  # its first name, made unique
    names: tuple[str, ...]  # all names it was planned under
    planned: Planned | Computation
    before: str  # the digest of the work it comes after, or ""
    path: Path
    made: Made | None  # None if it is still to do

    def job(self, earlier: Work | None, fresh: bool) -> Job:
        """Return the job that does it; `earlier` is the work it comes after."""
        payload: dict[str, Any] = {"out": str(self.path), "fresh": fresh}
        if earlier is not None:
            payload["after"] = str(earlier.path)
        if isinstance(self.planned, Computation):
            target = "flatlab.experiments.computing:compute"
            payload["asked"] = asked_of(self.planned, self.before)
        else:
            target = "flatlab.training.session:run_job"
            payload["config"] = self.planned.config.to_dict()
            if earlier is not None:
                target = "flatlab.experiments.computing:train_on"
        waits = earlier is not None and earlier.made is None
        return Job(self.name, target, payload, after=(earlier.name,) if earlier and waits else ())


@dataclasses.dataclass(frozen=True)
class Done:
    """Results of the work by digest, and how each started job ended."""

    made: Mapping[str, Made]
    outcomes: Mapping[str, Outcome]


@dataclasses.dataclass(frozen=True)
class Item:
    """A line of a plan: its digest, the digest of the work it comes after or "", and what to do."""

    key: str
    before: str
    planned: Planned | Computation


def planned_work(experiment: Experiment, settings: Any) -> dict[str, Item]:
    """Return an experiment's plan as name → item; an item follows the one it comes after.

    Raises:
        UserError: A network does not fit into this machine's memory.
        ValueError: A name is not unique, or `after` is not the name of a planned item.
    """
    plan = experiment.plan(settings)
    by_name = {p.name: p for p in plan}
    if len(by_name) < len(plan):
        raise ValueError(f"{experiment.id} plans two runs with the same name")
    items: dict[str, Item] = {}

    def item_of(p: Planned | Computation, above: tuple[str, ...] = ()) -> Item:
        if p.name in above or (p.after and p.after not in by_name):
            raise ValueError(f"{experiment.id}: {p.name} cannot come after {p.after!r}")
        if p.name not in items:
            before = item_of(by_name[p.after], (*above, p.name)).key if p.after else ""
            items[p.name] = Item(p.identity(before), before, p)
        return items[p.name]

    for p in plan:
        item_of(p)
        if isinstance(p, Planned):
            p.config.check_size(p.config.data.get("d", 1))
    return items


def asked_of(planned: Computation, before: str) -> dict[str, Any]:
    """Return the plain data that identifies a computation."""
    return {"target": planned.target, "payload": dict(planned.payload), "after": before}


def find_work(plans: Iterable[Mapping[str, Item]], out: Path, fresh: bool) -> dict[str, Work]:
    """Return digest → work, in the order of the plans.

    A run goes to `out/runs/<name>-<digest>`, or to its existing directory under another of its
    planned names. A directory with this digest under a name not planned here is used if the run is
    finished; otherwise it is left to the experiment that made it.
    """
    names: dict[str, list[str]] = {}
    items: dict[str, Item] = {}
    for plan in plans:
        for name, item in plan.items():
            items.setdefault(item.key, item)
            if name not in names.setdefault(item.key, []):
                names[item.key].append(name)
    there: dict[str, list[Path]] = {}
    for path in sorted((out / "runs").glob("*-*")):
        there.setdefault(path.name.rpartition("-")[2], []).append(path)
    first = [called[0] for called in names.values()]
    work: dict[str, Work] = {}
    for key, called in names.items():
        own = [out / "runs" / f"{name}-{key}" for name in called]
        known = [path for path in own if path.exists()]
        name = called[0] if first.count(called[0]) == 1 else f"{called[0]}-{key}"
        item = items[key]
        one = Work(name, tuple(called), item.planned, item.before, (known or own)[0], None)
        earlier = work.get(item.before)
        if not fresh and (earlier is None or earlier.made is not None):
            one = _over(one, [*known, *there.get(key, [])], earlier)
        work[key] = one
    return work


def carry_out(
    work: Mapping[str, Work],
    *,
    workers: int | Backend | None = None,
    fresh: bool = False,
    on_event: OnEvent | None = None,
    until: float | None = None,
    order: Sequence[str] | None = None,
    care: Care | None = None,
) -> Done:
    """Do the work that is not done yet. Work that comes after other work waits for it.

    `fresh` starts work in progress again. `on_event` is called for each event of a job, and with
    "reused" for each finished piece of work. `until` is the `time.monotonic()` at which to stop,
    `order` the digests in the order of execution, by default that of `work`. `workers` and `care`
    are those of `run_jobs`.
    """
    made: dict[str, Made] = {}
    for key, one in work.items():
        if one.made is not None:
            made[key] = one.made
            if on_event:
                on_event(Job(one.name, "", {}), "reused", {})
    waiting = [key for key in order or work if work[key].made is None]
    if until is None:
        waiting = _first_of_each_kernel_first(waiting, work)
    jobs = [work[key].job(work.get(work[key].before), fresh) for key in waiting]
    outcomes = dict(zip(waiting, run_jobs(jobs, workers, on_event, until, care), strict=True))
    made |= {key: _load(work[key]) for key in waiting if outcomes[key].status == "done"}
    return Done(made, outcomes)


def estimate(work: Mapping[str, Work], out: Path) -> dict[str, float]:
    """Return digest → expected seconds for the work that is not done."""
    missing = {key: one.planned for key, one in work.items() if one.made is None}
    model = CostModel.calibrated(finished(out)) if missing else CostModel()
    return {
        key: p.seconds if isinstance(p, Computation) else model.seconds(p.config)
        for key, p in missing.items()
    }


def finished(out: Path) -> Iterator[tuple[RunConfig, float]]:
    """Yield the configuration and the training seconds of every finished run in a folder."""
    for path in run_directories(out / "runs"):
        with contextlib.suppress(FlatlabError):
            store = read_store(path)
            result = read_result(store)
            if result and result["status"] == "done":
                yield RunConfig.from_dict(store.config), float(result["seconds"])


def _load(one: Work) -> Made:
    if isinstance(one.planned, Planned):
        return load_run(one.path)
    made = load_computed(one.path, asked_of(one.planned, one.before))
    if made is None:
        raise StoreError(f"{one.path} holds no result of {one.name}: run the same command again")
    return made


def _first_of_each_kernel_first(keys: Sequence[str], work: Mapping[str, Work]) -> list[str]:
    """Move one run for each kernel to the front, so that no two runs compile the same kernel."""
    seen: set[tuple[object, ...]] = set()
    first = []
    for key in keys:
        planned = work[key].planned
        needed = kernels(planned.config) if isinstance(planned, Planned) else frozenset()
        if not needed <= seen:
            first.append(key)
            seen |= needed
    return [*first, *(key for key in keys if key not in first)]


def _over(one: Work, paths: Iterable[Path], earlier: Work | None) -> Work:
    """Return the work with the first finished result.

    A damaged result, and a run that a kill at its end left without a file, are for the job to mend.
    """
    for path in paths:
        with contextlib.suppress(FlatlabError):
            there = dataclasses.replace(one, path=path)
            if isinstance(one.planned, Computation):
                return dataclasses.replace(there, made=_load(there))
            if _holds(path, one.planned.config, earlier):
                made = _load(there) if is_whole(read_store(path)) else None
                return dataclasses.replace(there, made=made)
    return one


def _holds(path: Path, config: RunConfig, earlier: Work | None) -> bool:
    """Return whether a directory holds a finished run of a configuration."""
    store = read_store(path)
    if load_run(path).status not in OVER:
        return False
    there = RunConfig.from_dict(store.config)
    if earlier is None:
        return there.digest() == config.digest()
    return starts_from(there, config, earlier.path)
