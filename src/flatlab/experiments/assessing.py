"""Turn finished work into the parts of `Results`: analyses, omissions, run records and seconds."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import StoreError, UserError
from ..files.store import RunStore, plain
from ..jobs import Job, OnEvent
from .budget import Offer
from .catalogue import hours_per_epoch, paper_epochs, seeds_of, with_seeds
from .computing import Computed
from .contract import Experiment, Findings, Planned
from .results import Judged, LeftOut, Part, Results, RunRecord
from .work import Done, Item, Work, planned_work

PICTURES = "pictures"


def analysed(
    experiment: Experiment, settings: Any, preset: str, made: Mapping[str, Any], planned: int
) -> Findings:
    """Return an experiment's findings.

    No claim is decided if results are missing or the settings are too small.

    Args:
        experiment: The experiment.
        settings: Its settings.
        preset: The preset they come from.
        made: Results by name.
        planned: How many results there should be.
    """
    findings = experiment.analyse(settings, preset, made)
    if len(made) < planned:
        reason = f"without {planned - len(made)} of its {planned} runs nothing is decided"
        return _undecided(findings, reason)
    reason = experiment.too_small(settings, preset)
    return _undecided(findings, reason, measured=True) if reason else findings


def _undecided(findings: Findings, reason: str, measured: bool = False) -> Findings:
    """Return findings with no claim decided.

    With `measured`, a verdict without a measured number keeps its own reason.
    """
    verdicts = (
        v
        if measured and v.measured is None
        else dataclasses.replace(v, holds=None, reason=reason, because="")
        for v in findings.verdicts
    )
    return dataclasses.replace(findings, verdicts=tuple(verdicts))


@dataclasses.dataclass(frozen=True)
class _Level:
    """An experiment with a given number of seeds: its settings, and name → planned item."""

    settings: Any
    plan: Mapping[str, Item]

    @property
    def keys(self) -> dict[str, None]:
        """The digests of all its work, each once, in the order of the plan."""
        return dict.fromkeys(item.key for item in self.plan.values())


@dataclasses.dataclass(frozen=True)
class Levels:
    """An experiment with one seed, with two, and so on; without a budget only with all seeds."""

    experiment: Experiment
    preset: str
    levels: tuple[_Level, ...]

    @property
    def whole(self) -> _Level:
        """The experiment with all its seeds."""
        return self.levels[-1]

    def complete(self, made: Mapping[str, Any], most: int) -> int:
        """Return the largest level up to `most` whose results are all there."""
        levels = enumerate(self.levels[:most], 1)
        return max((k for k, level in levels if level.keys.keys() <= made.keys()), default=0)

    def findings(self, level: int, made: Mapping[str, Any]) -> Findings:
        """Analyse the results of a level; level 0 has no results and decides nothing."""
        at = self.levels[level - 1] if level else self.whole
        plan = at.plan if level else {}
        there = {name: made[item.key] for name, item in plan.items() if item.key in made}
        return analysed(self.experiment, at.settings, self.preset, there, len(plan))

    def offer(self, made: Mapping[str, Any], asked: bool) -> Offer:
        """Return the experiment as an offer to `budget`; its verdicts count only if `asked`."""
        levels = tuple(tuple(level.keys) for level in self.levels)
        if not asked:
            return Offer(self.experiment.id, levels, 0, 0)
        verdicts = self.findings(self.complete(made, len(levels)), made).verdicts
        undecided = sum(verdict.holds is None for verdict in verdicts)
        return Offer(self.experiment.id, levels, undecided, len(verdicts))


def levels_of(experiment: Experiment, settings: Any, preset: str, by_seed: bool) -> Levels:
    """Plan an experiment: with `by_seed` for each number of seeds, otherwise only for all seeds."""
    most = seeds_of(settings) or 1
    each = [with_seeds(settings, k) for k in range(1, most)] if by_seed else []
    levels = tuple(_Level(s, planned_work(experiment, s)) for s in (*each, settings))
    return Levels(experiment, preset, levels)


@dataclasses.dataclass(frozen=True)
class Assessed:
    """The results of one experiment, for the document and for the pictures."""

    part: Part
    verdicts: tuple[Judged, ...]
    left_out: LeftOut | None
    plots: tuple[Any, ...]


def assess(
    part: Levels,
    chosen: int,
    level: int,
    work: Mapping[str, Work],
    done: Done,
    seconds: Mapping[str, float],
    clock: Clock,
    sources: int,
) -> Assessed:
    """Analyse one experiment.

    Args:
        part: The experiment.
        chosen: The level that was planned.
        level: The level that is complete.
        work: Digest → work of all experiments.
        done: The results of the work.
        seconds: Digest → expected seconds.
        clock: When each run was under way.
        sources: From how many sources the experiments are.
    """
    experiment, at = part.experiment, part.levels[level - 1] if level else part.whole
    findings = part.findings(level, done.made)
    keys = [key for key in at.keys if key in done.made] if level else []
    left = sum(seconds.get(key, 0.0) for key in part.whole.keys if key not in done.made)
    why = []
    if level < len(part.levels):
        what = "the budget ran out" if level < chosen else "it did not fit the budget"
        why.append(f"{what}; about {left:.0f} s of training are left (estimated)")
    failed = [name for name, item in at.plan.items() if item.key not in done.made] if level else []
    if failed:
        why.append(f"these runs failed: {', '.join(failed)}")
    if not level:
        findings = Findings(_undecided(findings, f"left out: {why[0]}").verdicts, {}, ())
    plots = _named(experiment, findings.plots, sources) if keys or not at.plan else ()
    wanted = seeds_of(part.whole.settings)
    seeds = None if wanted is None else level if level < len(part.levels) else wanted
    made = [done.made[key] for key in keys]
    found = Part(
        id=experiment.id,
        source=experiment.source,
        figure=experiment.figure,
        claim=experiment.claim,
        settings=plain(dataclasses.asdict(at.settings)),
        seeds=seeds,
        of=wanted,
        runs=len(keys),
        digests=tuple(keys),
        epochs=sum(epochs_of(one) for one in made),
        training_seconds=round(sum(one.seconds for one in made), 2),
        wall_seconds=round(clock.seconds({work[key].name for key in keys}), 2),
        **paper_hours([experiment]),
        paper_hours_per_epoch=hours_per_epoch(experiment),
        finding=findings.finding,
        notes=findings.notes,
        tables=plain(findings.tables),
        figures=tuple(f"{PICTURES}/{plot.name}.png" for plot in plots),
    )
    out = LeftOut(
        experiment=experiment.id,
        seeds=seeds if keys else 0,
        of=wanted,
        estimated_seconds=round(left, 1),
        reason="; ".join(why),
    )
    verdicts = tuple(Judged.of(v, experiment.id, part.preset) for v in findings.verdicts)
    return Assessed(found, verdicts, out if why else None, plots)


def _named(experiment: Experiment, plots: Sequence[Any], sources: int) -> tuple[Any, ...]:
    """Return the pictures with unique names, which start with the name of their experiment.

    With experiments of several sources, the source comes first.
    """
    source, _, name = experiment.id.partition("/")
    before = f"{source}-" if sources > 1 else ""
    return tuple(
        dataclasses.replace(
            plot,
            name=before + (plot.name if plot.name.startswith(name) else f"{name}-{plot.name}"),
        )
        for plot in plots
    )


def record(key: str, work: Work, done: Done, users: Mapping[str, Sequence[str]]) -> RunRecord:
    """Return the document's record of a run; `users` is experiment → digests."""
    made, outcome = done.made.get(key), done.outcomes.get(key)
    failed = outcome if outcome is not None and outcome.status == "failed" else None
    status: Any = made.status if made else outcome.status if outcome else None
    return RunRecord(
        name=work.name,
        names=work.names,
        kind="training" if isinstance(work.planned, Planned) else "computation",
        experiments=tuple(id for id, keys in users.items() if key in keys),
        digest=key,
        path=f"runs/{work.path.name}",
        status=status,
        error=failed.error if failed else None,
        exit_code=failed.exit_code if failed else 0,
        reused=work.made is not None,
        epochs=work.planned.epochs,
        seconds=round(made.seconds, 3) if made else None,
        sha256=RunStore(work.path, {}).result_checksum() if made else None,
    )


def epochs_of(made: Any) -> int:
    """Return the epochs that a run trained for; a computation trains nothing."""
    return 0 if isinstance(made, Computed) else int(made.columns["epoch"][-1])


def paper_hours(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """Return epochs and hours of the paper's own runs; None if the paper states no hours."""
    timed = [(e, rate) for e in experiments if (rate := hours_per_epoch(e))]
    epochs = paper_epochs(*(e for e, _ in timed))
    if not epochs:
        return {"paper_epochs": None, "paper_hours": None}
    return {"paper_epochs": epochs, "paper_hours": timed[0][1] * epochs}


def with_earlier_clock(
    folder: Path, parts: Sequence[Part], wall: float | None, work: Mapping[str, Work]
) -> tuple[list[Part], float | None]:
    """Take the wall-clock seconds of an earlier sitting for parts with nothing left to do.

    If they are unknown, the seconds are None.
    """
    earlier: Results | None = None
    with contextlib.suppress(UserError, StoreError):
        earlier = Results.load(folder)
    parts_before = earlier.experiments if earlier else ()
    before = {(p.id, frozenset(p.digests)): p.wall_seconds for p in parts_before}
    to_do = {key for key, one in work.items() if one.made is None}
    kept = [
        part.model_copy(update={"wall_seconds": before.get((part.id, frozenset(part.digests)))})
        if part.digests and to_do.isdisjoint(part.digests)
        else part
        for part in parts
    ]
    if work and not to_do:
        same = earlier is not None and {run.digest for run in earlier.runs} == set(work)
        wall = earlier.wall_seconds if earlier is not None and same else None
    return kept, wall


class Clock:
    """Passes events on, and records when each run was under way."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self.on_event = on_event
        self.started: dict[str, float] = {}
        self.spans: dict[str, tuple[float, float]] = {}

    def __call__(self, job: Job, kind: str, info: dict[str, Any]) -> None:
        """Take an event of a job."""
        if kind == "started":
            self.started[job.name] = time.monotonic()
        elif kind == "finished" and job.name in self.started:
            self.spans[job.name] = (self.started[job.name], time.monotonic())
        if self.on_event:
            self.on_event(job, kind, info)

    def seconds(self, names: set[str]) -> float:
        """Return the time in which at least one of these runs was under way."""
        total, end = 0.0, 0.0
        for first, last in sorted(span for name, span in self.spans.items() if name in names):
            total += max(0.0, last - max(first, end))
            end = max(end, last)
        return total
