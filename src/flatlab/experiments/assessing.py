"""Turn finished work into the parts of `Results`: analyses, omissions, run records and seconds."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import StoreError, UserError
from ..files.store import RunStore, plain
from ..jobs import Job, OnEvent
from .budget import Offer
from .catalogue import hours_per_epoch, paper_epochs, seeds_of, with_seeds
from .computing import Computed
from .contract import Experiment, Findings, Planned, Verdict
from .results import Judged, LeftOut, Part, Results, RunRecord
from .setting import changes_in_words, file_name, in_words, with_setting
from .work import Done, Item, Work, planned_work

PICTURES = "pictures"


def analysed(
    experiment: Experiment,
    settings: Any,
    preset: str,
    made: Mapping[str, Any],
    planned: Collection[str],
) -> Findings:
    """Return an experiment's findings from its results by name; `planned` names all it needs.

    No claim is decided if results are missing or the settings are too small.
    """
    findings = experiment.analyse(settings, preset, made)
    if missing := [name for name in planned if name not in made]:
        of = f"{len(missing)} of {len(planned)} runs"
        return _undecided(findings, f"nothing is decided without {of}: {_listed(missing)}")
    reason = experiment.too_small(settings, preset)
    return _undecided(findings, reason, measured=True) if reason else findings


def _listed(names: Sequence[str], most: int = 3) -> str:
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


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
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # to the preset

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
        findings = analysed(self.experiment, at.settings, self.preset, there, plan.keys())
        if 0 < level < self.deciding:
            allowed = f"the budget allowed {level} of {len(self.levels)} seeds"
            reason = f"{allowed}: too few to decide (needs {self.deciding})"
            return _undecided(findings, reason, measured=True)
        return findings

    @property
    def deciding(self) -> int:
        """The first level that decides claims; 0 if none does."""
        levels = enumerate(self.levels, 1)
        too_small = self.experiment.too_small
        return next((k for k, one in levels if not too_small(one.settings, self.preset)), 0)

    def offer(self, made: Mapping[str, Any], asked: bool) -> Offer:
        """Return the experiment as an offer to `budget`; its verdicts count only if `asked`."""
        levels = tuple(tuple(level.keys) for level in self.levels)
        if not asked:
            return Offer(self.experiment.id, levels, 0, 0)
        verdicts = self.findings(self.complete(made, len(levels)), made).verdicts
        undecided = sum(verdict.holds is None for verdict in verdicts)
        return Offer(self.experiment.id, levels, undecided, len(verdicts), self.deciding)


def levels_of(
    experiment: Experiment,
    settings: Any,
    preset: str,
    by_seed: bool,
    changes: Mapping[str, Any] | None = None,
) -> Levels:
    """Plan an experiment: with `by_seed` for each number of seeds, otherwise only for all seeds.

    `changes` are the settings that differ from the preset's.
    """
    most = seeds_of(settings) or 1
    each = [with_seeds(settings, k) for k in range(1, most)] if by_seed else []
    levels = tuple(_Level(s, planned_work(experiment, s)) for s in (*each, settings))
    return Levels(experiment, preset, levels, changes or {})


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
    """Analyse one experiment, of which the level `chosen` was planned and `level` is complete.

    `work` and `seconds`, the expected ones, are by digest and of all experiments, which come from
    this number of `sources`.
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
    drawn = findings.plots if keys or not at.plan else ()
    names = [file_name(experiment.id, plot.name, sources > 1) for plot in drawn]
    plots = tuple(dataclasses.replace(p, name=n) for p, n in zip(drawn, names, strict=True))
    setting = in_words((item.planned for item in at.plan.values()), at.settings)
    if part.changes:
        told = changes_in_words(experiment, part.preset, part.changes)
        setting = f"{setting} Changed: {told}.".strip()
    plots = with_setting(plots, setting)
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
        setting=setting,
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
    other = {name: value for name, value in part.changes.items() if name != "seeds"}
    told = changes_in_words(experiment, part.preset, other)
    verdicts = tuple(
        Judged.of(_with_changes(v, told), experiment.id, part.preset) for v in findings.verdicts
    )
    return Assessed(found, verdicts, out if why else None, plots)


def _with_changes(verdict: Verdict, told: str) -> Verdict:
    """Return a verdict that also says which settings were changed, if it is decided."""
    if verdict.holds is None or not told:
        return verdict
    return dataclasses.replace(verdict, reason=f"{verdict.reason} (changed setting: {told})")


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
