"""`run`: experiments → jobs → analyses → `Results`. Every command that runs anything calls it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError, unknown, whole_number
from ..files.store import ensure_directory, locked, plain
from ..jobs import Care, Cluster, OnEvent, opened
from ..training.run import versions
from .assessing import (
    Assessed,
    Clock,
    Levels,
    assess,
    epochs_of,
    levels_of,
    paper_hours,
    record,
    with_earlier_clock,
)
from .budget import Choice, everything, within
from .catalogue import CATALOGUE, find, settings_of, source_of
from .contract import Experiment
from .outsiders import is_outside
from .provenance import commit, machine
from .results import LeftOut, Results
from .setting import changed, folder_name
from .work import Done, Work, carry_out, estimate, find_work

Status = Literal["done", "out of time", "interrupted"]
# Called with the number of runs, name → expected seconds of the runs to do, and the workers.
OnPlan = Callable[[int, Mapping[str, float], int], None]
# Called with the id of an experiment that is about to be analysed.
OnAnalysis = Callable[[str], None]


def run(
    ids: str | Sequence[str],
    preset: str = "lab",
    *,
    out: str | Path = "results",
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
    workers: int | Cluster | None = None,
    care: Care | None = None,
    budget: float | None = None,
    fresh: bool = False,
    on_plan: OnPlan | None = None,
    on_event: OnEvent | None = None,
    on_analysis: OnAnalysis | None = None,
) -> Results:
    """Run experiments: do the work that is not done yet, analyse it, store the results.

    Args:
        ids: Ids of experiments, sources for all their experiments, or "mine.py:EXPERIMENT" for an
            experiment of the user's own.
        preset: Name of the preset; an experiment without it is left out.
        out: Folder for results.
        seeds: Number of seeds; by default from the preset.
        changes: Setting → value; applies to the experiments that have the setting.
        workers: Runs at a time; None is one for each core, 0 runs all in this process. Or a
            `Cluster`: then they run on Ray.
        care: Timeouts and retries of runs; by default neither.
        budget: Seconds of wall-clock for preparation and training; None for no limit.
        fresh: Whether to run finished work again.
        on_plan: Called with the work to do before it starts.
        on_event: Called for each event of a job, and with "reused" for each run done before.
        on_analysis: Called before each analysis.

    Raises:
        UserError: An id, a preset, a setting or a value is not allowed.
        BusyError: Another process runs one of these experiments in the same folder.
    """
    started = time.monotonic()
    asked, out = (ids,) if isinstance(ids, str) else tuple(ids), Path(out)
    seeds = None if seeds is None else whole_number("seeds", seeds, least=1)
    if workers is not None and not isinstance(workers, Cluster):
        workers = whole_number("workers", workers, least=0)
    found = find(asked)
    parts = _plan(found, preset, seeds, changes, by_seed=budget is not None)
    experiments = [part.experiment for part in parts]
    if budget is not None and not (type(budget) in (int, float) and 0 < budget < inf):
        raise UserError(f"budget must be seconds > 0, got {budget!r}")
    until = None if budget is None else started + budget
    merged = {name: value for part in parts for name, value in part.changes.items()}
    own = iter([e.id for e in found if e.id not in CATALOGUE])
    folder = out / folder_name([next(own) if is_outside(a) else a for a in asked], preset, merged)
    alone = [out / folder_name([p.experiment.id], preset, p.changes) for p in parts]
    with _held([folder, *alone], out), contextlib.ExitStack() as stack:
        work = find_work((part.whole.plan for part in parts), out, fresh)
        missing = any(one.made is None for one in work.values())
        backend, places = stack.enter_context(opened(workers, out, missing))
        seconds = estimate(work, out)
        choice = _choose(parts, work, seconds, until, places)
        chosen = {
            key: work[key]
            for part in parts
            if (level := choice.levels[part.experiment.id])
            for key in part.levels[level - 1].keys
        }
        if on_plan:
            on_plan(len(chosen), {work[k].name: seconds[k] for k in choice.order}, places)
        clock = Clock(on_event)
        done = carry_out(
            chosen,
            workers=backend,
            fresh=fresh,
            on_event=clock,
            until=until,
            order=choice.order,
            care=care,
        )
        stack.close()
        status = _status(done, until)
        made: list[Assessed] = []
        sources = len({source_of(e.id) for e in experiments})
        for part in parts if status != "interrupted" else []:
            if on_analysis:
                on_analysis(part.experiment.id)
            level = choice.levels[part.experiment.id]
            reached = part.complete(done.made, level) if status == "out of time" else level
            made.append(assess(part, level, reached, chosen, done, seconds, clock, sources))
        assessed = [one.part for one in made]
        wall: float | None = round(time.monotonic() - started, 2)
        if status != "interrupted":
            assessed, wall = with_earlier_clock(folder, assessed, wall, chosen)
        users = {part.id: part.digests for part in assessed}
        runs = [record(key, one, done, users) for key, one in chosen.items()]
        results = Results(
            ids=asked,
            preset=preset,
            changes=plain(merged),
            status=status,
            folder=folder.as_posix(),
            experiments=tuple(assessed),
            verdicts=tuple(v for one in made for v in one.verdicts),
            left_out=(
                *(one.left_out for one in made if one.left_out),
                *(_without(preset, e) for e in found if e not in experiments),
            ),
            runs=tuple(runs),
            budget_seconds=budget,
            jobs=places,
            wall_seconds=wall,
            training_seconds=round(sum(run.seconds or 0.0 for run in runs), 2),
            epochs=sum(epochs_of(one) for one in done.made.values()),
            **paper_hours(experiments),
            commit=commit(),
            versions=versions(),
            machine=machine(),
            plots={one.part.id: one.plots for one in made},
        )
        if status != "interrupted":
            results.save()
    return results


def _plan(
    found: Sequence[Experiment],
    preset: str,
    seeds: int | None,
    changes: Mapping[str, Any] | None,
    by_seed: bool,
) -> list[Levels]:
    """Plan the experiments that have the preset; with `by_seed` for each number of seeds."""
    experiments = [e for e in found if preset in e.presets]
    if not experiments:
        raise unknown("preset", preset, {name for e in found for name in e.presets})
    settings = settings_of(experiments, preset, seeds, changes)
    for e in experiments:
        e.require(settings[e.id])
    names = [*(["seeds"] if seeds is not None else []), *(changes or {})]
    return [
        levels_of(e, own, preset, by_seed, changed(e, preset, own, names))
        for e in experiments
        for own in [settings[e.id]]
    ]


def _status(done: Done, until: float | None) -> Status:
    """Return how the work ended; a job is stopped by the end of the budget or an interrupt."""
    if all(outcome.status != "interrupted" for outcome in done.outcomes.values()):
        return "done"
    late = until is not None and time.monotonic() >= until
    return "out of time" if late else "interrupted"


@contextlib.contextmanager
def _held(folders: Sequence[Path], out: Path) -> Iterator[None]:
    """Make the folders and lock them, so that no other process runs the same experiments there."""
    ensure_directory(out)
    ensure_directory(out / "runs")
    with contextlib.ExitStack() as stack:
        for folder in dict.fromkeys(folders):
            ensure_directory(folder)
            stack.enter_context(locked(folder))
        yield


def _choose(
    parts: Sequence[Levels],
    work: Mapping[str, Work],
    seconds: Mapping[str, float],
    until: float | None,
    workers: int,
) -> Choice:
    """Choose what to run: everything, or what fits the time that is left."""
    there = {key: one.made for key, one in work.items() if one.made is not None}
    offers = [part.offer(there, until is not None) for part in parts]
    if until is None:
        return everything(offers, seconds)
    return within(offers, seconds, max(until - time.monotonic(), 0.0), max(workers, 1))


def _without(preset: str, experiment: Experiment) -> LeftOut:
    """Return the record of an experiment that does not have the preset."""
    reason = f"it has no preset {preset} (it has {', '.join(experiment.presets)})"
    return LeftOut(
        experiment=experiment.id, seeds=0, of=None, estimated_seconds=None, reason=reason
    )
