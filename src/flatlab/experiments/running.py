"""`run`: experiments → jobs → analyses → `Results`. Every command that runs anything calls it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError, unknown
from ..files.store import ensure_directory, locked
from ..jobs import OnEvent, usable_cores
from ..specs import digest
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
from .catalogue import find, settings_of, source_of
from .provenance import commit, machine
from .results import LeftOut, Results
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
    workers: int | None = None,
    budget: float | None = None,
    fresh: bool = False,
    on_plan: OnPlan | None = None,
    on_event: OnEvent | None = None,
    on_analysis: OnAnalysis | None = None,
) -> Results:
    """Run experiments: do the work that is not done yet, analyse it, store the results.

    Args:
        ids: Ids of experiments, or sources for all their experiments.
        preset: Name of the preset; an experiment without it is left out.
        out: Folder for results.
        seeds: Number of seeds; by default from the preset.
        changes: Setting → value; applies to the experiments that have the setting.
        workers: Runs at a time; None is one for each core, 0 runs all in this process.
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
    if seeds is not None and seeds < 1:
        raise UserError(f"seeds must be >= 1, got {seeds}")
    found = find(asked)
    experiments = [e for e in found if preset in e.presets]
    if not experiments:
        raise unknown("preset", preset, {name for e in found for name in e.presets})
    settings = settings_of(experiments, preset, seeds, changes)
    parts = [levels_of(e, settings[e.id], preset, budget is not None) for e in experiments]
    folder = out / folder_name(asked, preset)
    with _held([folder, *(out / folder_name([e.id], preset) for e in experiments)], out):
        request = _Request(
            asked,
            preset,
            out,
            folder,
            parts,
            usable_cores() if workers is None else workers,
            budget,
            fresh,
            started,
            {e.id: e.presets for e in found if e not in experiments},
        )
        results = request.carry_out(on_plan, on_event, on_analysis)
        if results.status != "interrupted":
            results.save()
    return results


def folder_name(ids: Sequence[str], preset: str) -> str:
    """Return the name of a request's folder, which is in the folder of all results.

    >>> folder_name(["source/figure"], "lab"), folder_name(["one/a", "one/b"], "lab")
    ('source-figure-lab', 'one-a+one-b-lab')
    """
    name = "+".join(id.replace("/", "-") for id in ids)
    if len(name) > 80:
        name = f"{ids[0].replace('/', '-')}+{len(ids) - 1}-more-{digest({'ids': list(ids)})}"
    return f"{name}-{preset}"


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


@dataclasses.dataclass(frozen=True)
class _Request:
    """One call of `run`; its folders are locked."""

    ids: tuple[str, ...]
    preset: str
    out: Path
    folder: Path
    parts: list[Levels]
    workers: int
    budget: float | None
    fresh: bool
    started: float
    skipped: Mapping[str, Mapping[str, Any]]

    def carry_out(
        self, on_plan: OnPlan | None, on_event: OnEvent | None, on_analysis: OnAnalysis | None
    ) -> Results:
        """Do the work and analyse it."""
        work = find_work((part.whole.plan for part in self.parts), self.out, self.fresh)
        seconds = estimate(work, self.out)
        choice = self._choose(work, seconds)
        chosen = {
            key: work[key]
            for part in self.parts
            if (level := choice.levels[part.experiment.id])
            for key in part.levels[level - 1].keys
        }
        if on_plan:
            on_plan(len(chosen), {work[k].name: seconds[k] for k in choice.order}, self.workers)
        clock = Clock(on_event)
        until = None if self.budget is None else self.started + self.budget
        done = carry_out(
            chosen,
            workers=self.workers,
            fresh=self.fresh,
            on_event=clock,
            until=until,
            order=choice.order,
        )
        stopped = any(o.status == "interrupted" for o in done.outcomes.values())
        late = until is not None and time.monotonic() >= until
        status: Status = "done" if not stopped else "out of time" if late else "interrupted"
        made: list[Assessed] = []
        sources = len({source_of(part.experiment.id) for part in self.parts})
        for part in self.parts if status != "interrupted" else []:
            if on_analysis:
                on_analysis(part.experiment.id)
            level = choice.levels[part.experiment.id]
            reached = part.complete(done.made, level) if status == "out of time" else level
            made.append(assess(part, level, reached, chosen, done, seconds, clock, sources))
        return self._results(status, made, chosen, done)

    def _choose(self, work: Mapping[str, Work], seconds: Mapping[str, float]) -> Choice:
        there = {key: one.made for key, one in work.items() if one.made is not None}
        offers = [part.offer(there, self.budget is not None) for part in self.parts]
        if self.budget is None:
            return everything(offers, seconds)
        left = self.budget - (time.monotonic() - self.started)
        return within(offers, seconds, left, max(self.workers, 1))

    def _results(
        self,
        status: Status,
        made: Sequence[Assessed],
        chosen: Mapping[str, Work],
        done: Done,
    ) -> Results:
        parts = [one.part for one in made]
        wall: float | None = round(time.monotonic() - self.started, 2)
        if status != "interrupted":
            parts, wall = with_earlier_clock(self.folder, parts, wall, chosen)
        skipped = [
            LeftOut(
                experiment=id,
                seeds=0,
                of=None,
                estimated_seconds=None,
                reason=f"it has no preset {self.preset} (it has {', '.join(presets)})",
            )
            for id, presets in self.skipped.items()
        ]
        users = {part.id: part.digests for part in parts}
        runs = [record(key, one, done, users) for key, one in chosen.items()]
        return Results(
            ids=self.ids,
            preset=self.preset,
            status=status,
            folder=self.folder.as_posix(),
            experiments=tuple(parts),
            verdicts=tuple(v for one in made for v in one.verdicts),
            left_out=(*(one.left_out for one in made if one.left_out), *skipped),
            runs=tuple(runs),
            budget_seconds=self.budget,
            jobs=self.workers,
            wall_seconds=wall,
            training_seconds=round(sum(run.seconds or 0.0 for run in runs), 2),
            epochs=sum(epochs_of(one) for one in done.made.values()),
            **paper_hours([part.experiment for part in self.parts]),
            commit=commit(),
            versions=versions(),
            machine=machine(),
            plots={one.part.id: one.plots for one in made},
        )
