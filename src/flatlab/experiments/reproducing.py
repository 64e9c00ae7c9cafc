"""Running everything of a source: one pool of runs, then each experiment's analysis."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..errors import unknown
from ..jobs import Job, OnEvent, usable_cores
from ..jobs.costs import CostModel
from . import CATALOGUE
from .budget import Choice, Offer, everything, within
from .contract import Experiment, Findings, Planned
from .pool import Slot, Trained, finished, slots, train
from .running import analysed, folder_of, held, planned_runs, settings_of
from .seeds import seeds_of, with_seeds

OnAnalysis = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Share:
    """One experiment's part of a reproduction.

    Attributes:
        experiment: Which.
        settings: Its settings, with the seeds that were run; the preset's if it was left out.
        seeds: How many seeds were run; None if the experiment has none.
        wanted: How many were asked for.
        keys: Name → digest, of the runs behind the findings.
        findings: What came out; without runs if it was left out.
        left_out: Why it was left out, or ran with fewer seeds; empty if it is whole.
        seconds_left: Estimated seconds of training that were left out.
        training_seconds: Time spent training its runs, in all sittings, one after the other.
        wall_seconds: Time in which at least one of its runs was under way, in this sitting.
    """

    experiment: Experiment
    settings: Any
    seeds: int | None
    wanted: int | None
    keys: Mapping[str, str]
    findings: Findings
    left_out: str = ""
    seconds_left: float = 0.0
    training_seconds: float = 0.0
    wall_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """What running a source gives.

    `status` is "done", "out of time" (the budget was over before all chosen runs were done) or
    "interrupted" (nothing is analysed). `skipped` has the experiments without the preset, and why.
    """

    source: str
    preset: str
    folder: Path
    status: Literal["done", "out of time", "interrupted"]
    shares: tuple[Share, ...]
    skipped: Mapping[str, str]
    slots: Mapping[str, Slot]
    trained: Trained
    budget: float | None
    workers: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class _Part:
    """An experiment and its runs with one seed, with two, and so on."""

    experiment: Experiment
    settings: Any
    levels: tuple[tuple[Planned, ...], ...]

    def at(self, level: int) -> Any:
        """Return the settings of a level."""
        whole = level == len(self.levels)
        return self.settings if whole else with_seeds(self.settings, level)

    def keys(self, level: int) -> dict[str, str]:
        """Return name → digest of the runs of a level; the last one has them all."""
        return {p.name: p.config.digest() for p in self.levels[level - 1]}


def find_source(source: str) -> list[Experiment]:
    """Return the experiments of a source, or the one of an id."""
    found = [e for e in CATALOGUE.values() if source in (e.id, e.id.partition("/")[0])]
    if not found:
        sources = {id.partition("/")[0] for id in CATALOGUE}
        raise unknown("source", source, [*sources, *CATALOGUE])
    return found


@dataclasses.dataclass
class Prepared:
    """A reproduction that is ready to run; its folders are held."""

    source: str
    preset: str
    folder: Path
    parts: list[_Part]
    skipped: dict[str, str]
    slots: dict[str, Slot]
    seconds: dict[str, float]
    choice: Choice
    budget: float | None
    workers: int
    fresh: bool
    started: float

    @property
    def expected(self) -> dict[str, float]:
        """Name → estimated seconds, of the runs to be trained."""
        return {self.slots[key].name: self.seconds[key] for key in self.choice.order}

    @property
    def runs(self) -> int:
        """How many runs there are, those that are done included."""
        return len(self._chosen())

    def _chosen(self) -> dict[str, Slot]:
        keys = {
            key: self.slots[key]
            for part in self.parts
            if (level := self.choice.levels[part.experiment.id])
            for key in part.keys(level).values()
        }
        return keys

    def run(
        self, on_event: OnEvent | None = None, on_analysis: OnAnalysis | None = None
    ) -> Reproduction:
        """Train what is chosen and not done, and analyse what is complete."""
        clock, until = _Clock(on_event), None if self.budget is None else self.started + self.budget
        trained = train(
            self._chosen(),
            workers=self.workers,
            fresh=self.fresh,
            on_event=clock,
            until=until,
            order=self.choice.order,
        )
        stopped = any(o.status == "interrupted" for o in trained.outcomes.values())
        late = until is not None and time.monotonic() >= until
        shares: list[Share] = []
        if not stopped or late:
            for part in self.parts:
                if on_analysis:
                    on_analysis(part.experiment.id)
                shares.append(self._share(part, trained, clock, late and stopped))
        return Reproduction(
            self.source,
            self.preset,
            self.folder,
            "done" if not stopped else "out of time" if late else "interrupted",
            tuple(shares),
            self.skipped,
            self._chosen(),
            trained,
            self.budget,
            self.workers,
            time.monotonic() - self.started,
        )

    def _share(self, part: _Part, trained: Trained, clock: _Clock, late: bool) -> Share:
        chosen = level = self.choice.levels[part.experiment.id]
        if late:
            level = complete(part.levels[:chosen], trained.runs)
        settings = part.at(level or len(part.levels))
        asked = part.keys(level) if level else {}
        keys = {name: key for name, key in asked.items() if key in trained.runs}
        runs = {name: trained.runs[key] for name, key in keys.items()}
        findings = analysed(part.experiment, settings, self.preset, runs, len(asked))
        left = {k for k in part.keys(len(part.levels)).values() if k not in trained.runs}
        seconds_left = sum(self.seconds.get(key, 0.0) for key in left)
        why = ""
        if level < len(part.levels):
            why = "the budget was over" if level < chosen else "it did not fit the budget"
            why = f"{why}, some {seconds_left:.0f} s of training are left (estimated)"
        if failed := [name for name in asked if name not in keys]:
            why = "; ".join(filter(None, (why, f"these runs failed: {', '.join(failed)}")))
        if not level:
            findings = _without(findings, f"left out: {why}")
        wanted = seeds_of(part.settings)
        return Share(
            part.experiment,
            settings,
            None if wanted is None else level if level < len(part.levels) else wanted,
            wanted,
            keys,
            findings,
            why,
            seconds_left if why else 0.0,
            sum(run.seconds for run in {key: trained.runs[key] for key in keys.values()}.values()),
            clock.seconds({self.slots[key].name for key in keys.values()}),
        )


@contextlib.contextmanager
def prepare(
    source: str,
    preset: str,
    out: Path,
    *,
    workers: int | None = None,
    budget: float | None = None,
    fresh: bool = False,
    seeds: int | None = None,
) -> Iterator[Prepared]:
    """Plan a reproduction and hold its folders.

    Args:
        source: The first part of an experiment's id, or a whole id.
        preset: Which preset; experiments without it are skipped.
        out: Folder for results.
        workers: Runs at a time; None is one for each core.
        budget: Seconds of wall-clock for preparation and training; None is no end.
        fresh: Whether to run again what is done.
        seeds: Number of seeds, if not the preset's.
    """
    started, found = time.monotonic(), find_source(source)
    experiments = [e for e in found if preset in e.presets]
    if not experiments:
        raise unknown("preset", preset, {name for e in found for name in e.presets})
    parts = [_part(e, preset, seeds, budget is not None, e.id == source) for e in experiments]
    skipped = {
        e.id: f"it has no preset {preset} (it has {', '.join(e.presets)})"
        for e in found
        if e not in experiments
    }
    folder = out / f"reproduce-{source.replace('/', '-')}-{preset}"
    folders = [folder, *(folder_of(e, preset, out) for e in experiments)]
    workers = usable_cores() if workers is None else workers
    with held(folders, out):
        made = slots((p for part in parts for p in part.levels[-1]), out, fresh)
        model = CostModel.calibrated(finished(out))
        seconds = {key: model.seconds(s.config) for key, s in made.items() if s.run is None}
        offers = [_offer(part, preset, made, budget is not None) for part in parts]
        if budget is None:
            choice = everything(offers, seconds)
        else:
            spent = time.monotonic() - started
            choice = within(offers, seconds, budget - spent, max(workers, 1))
        yield Prepared(
            source, preset, folder, parts, skipped, made, seconds, choice, budget, workers, fresh,
            started,
        )  # fmt: skip


def complete(levels: Sequence[Sequence[Planned]], there: Mapping[str, Any]) -> int:
    """Return the largest level whose runs are all there, by digest."""
    whole = [all(p.config.digest() in there for p in level) for level in levels]
    return max((k + 1 for k, all_there in enumerate(whole) if all_there), default=0)


def _part(
    experiment: Experiment, preset: str, seeds: int | None, by_seed: bool, alone: bool
) -> _Part:
    """Return an experiment's runs; seeds for one that has none are an error if it is `alone`."""
    settings = experiment.presets[preset]
    if seeds is not None and (alone or seeds_of(settings) is not None):
        settings = settings_of(experiment, preset, seeds, [])
    most = seeds_of(settings) or 1
    numbers = range(1, most) if by_seed else ()
    levels = [planned_runs(experiment, with_seeds(settings, k)) for k in numbers]
    levels.append(planned_runs(experiment, settings))
    return _Part(experiment, settings, tuple(tuple(level) for level in levels))


def _offer(part: _Part, preset: str, made: Mapping[str, Slot], ask: bool) -> Offer:
    """Return what there is to choose; how much is undecided is asked only if it matters."""
    levels = tuple(tuple(part.keys(k + 1).values()) for k in range(len(part.levels)))
    if not ask:
        return Offer(part.experiment.id, levels, 0, 0)
    there = {key: slot.run for key, slot in made.items() if slot.run is not None}
    level = complete(part.levels, there)
    names = part.keys(level) if level else {}
    runs = {name: there[key] for name, key in names.items()}
    settings = part.at(level or len(part.levels))
    verdicts = part.experiment.analyse(settings, preset, runs).verdicts
    undecided = sum(verdict.holds is None for verdict in verdicts)
    return Offer(part.experiment.id, levels, undecided, len(verdicts))


def _without(findings: Findings, reason: str) -> Findings:
    """Return the findings of an experiment that was left out: its claims, each with the reason."""
    verdicts = (dataclasses.replace(v, holds=None, reason=reason) for v in findings.verdicts)
    return Findings(tuple(verdicts), {}, ())


class _Clock:
    """Passes events on, and notes when each run was under way."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self.on_event = on_event
        self.started: dict[str, float] = {}
        self.spans: dict[str, tuple[float, float]] = {}

    def __call__(self, job: Job, kind: str, info: dict[str, Any]) -> None:
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
