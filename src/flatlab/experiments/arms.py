"""Comparisons: the same question put to several arms, each with some seeds.

An arm is a network, a data set and a schedule. What every comparison shares (the runs, the table,
the picture of final values) is made here; a file of its own says which arms, and what they tell.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.catalogue import make
from ..plots import Curve, Curves, Dot, Dots, Plot, Reference
from ..training.config import RunConfig
from ..training.run import Run
from .analysis import curves
from .contract import Experiment, Findings, Interval, Planned, Verdict
from .evidence import Evidence, by_seed, diverged, large_enough
from .judging import FRACTION

CAPTION = "Large dots: mean over seeds with its 95 % interval. Small dots: seeds."
CURVES = "Lines: mean over seeds. Bands: smallest to largest."
RunName = Callable[[str, int], str]  # (an arm's key, seed) → a run's name


@dataclasses.dataclass(frozen=True)
class Arm:
    """One line of a comparison.

    Attributes:
        key: Its name in files and code.
        label: Its name in tables and pictures.
        config: Seed → what to run.
        floor: Data → the trace to compare with, or None where none is known.
        role: What picks its colour; arms of one kind share it. Empty takes the key.
    """

    key: str
    label: str
    config: Callable[[int], RunConfig]
    floor: Callable[[Dataset], float] | None = None
    role: str = ""


@dataclasses.dataclass(frozen=True)
class Derived:
    """A line of a comparison read off the runs of another arm, as stopping them early.

    Attributes:
        key: Its name in files and code.
        label: Its name in tables and pictures.
        of: The key of the arm whose runs, and whose floor, it takes.
        change: Run → what it would have been.
        role: As in `Arm`.
    """

    key: str
    label: str
    of: str
    change: Callable[[Run], Run]
    role: str = ""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An experiment made of arms.

    Attributes:
        id: "source/name".
        source: What asks the question.
        figure: Where, in a few words.
        title: The picture's title.
        claim: What is asked or claimed, in one sentence.
        presets: Name → settings, which have `seeds`.
        arms: Settings → arms.
        verdicts: What is judged.
        finding: Evidence → what came out in plain language, made from the numbers.
        plots: Evidence → pictures beside that of the final values; none by default.
        derived: Lines that need no runs of their own; they follow the arms.
        overview: Evidence → the picture in place of that of the final values, for many arms.
    """

    id: str
    source: str
    figure: str
    title: str
    claim: str
    presets: Mapping[str, Any]
    arms: Callable[[Any], Sequence[Arm]]
    verdicts: Callable[[Evidence], list[Verdict]]
    finding: Callable[[Evidence], str]
    plots: Callable[[Evidence], tuple[Plot, ...]] = lambda found: ()
    derived: tuple[Derived, ...] = ()
    overview: Callable[[Evidence], Plot] | None = None

    @property
    def name(self) -> str:
        """The part of the id after the slash."""
        return self.id.partition("/")[2]

    def run_name(self, key: str, seed: int) -> str:
        """Return a run's name."""
        return f"{self.name}-{key}-seed{seed}"

    def plan(self, s: Any) -> list[Planned]:
        """Return all runs, those with most updates first."""
        return plan(self.arms(s), s.seeds, self.run_name)

    def collect(self, s: Any, preset: str, runs: Mapping[str, Run]) -> Evidence:
        """Sort the runs by arm and seed."""
        made = collect(self.arms(s), s, preset, self.presets["lab"], runs, self.run_name)
        found, floors = dict(made.runs), dict(made.floors)
        for line in self.derived:
            found[line.key] = {seed: line.change(run) for seed, run in found[line.of].items()}
            floors[line.key] = floors[line.of]
        return dataclasses.replace(made, runs=found, floors=floors)

    def analyse(self, s: Any, preset: str, runs: Mapping[str, Run]) -> Findings:
        """Turn runs into a table, pictures, verdicts and a finding."""
        evidence = self.collect(s, preset, runs)
        arms: list[Arm | Derived] = [*self.arms(s), *self.derived]
        overview = self.overview or (lambda found: final_values(self, arms, found))
        return Findings(
            tuple(self.verdicts(evidence)),
            {self.name: table(arms, evidence)},
            (overview(evidence), *self.plots(evidence)),
            diverged(runs),
            self.finding(evidence) if all(evidence.runs.values()) else "",
        )

    def experiment(self, module: str) -> Experiment:
        """Return it as an entry of the catalogue."""
        return Experiment(
            id=self.id,
            source=self.source,
            figure=self.figure,
            claim=self.claim,
            presets=self.presets,
            plan=self.plan,
            analyse=self.analyse,
            module=module,
        )


def plan(arms: Sequence[Arm], seeds: int, run_name: RunName) -> list[Planned]:
    """Return all runs of some arms, those with most updates first."""
    planned = [
        Planned(run_name(arm.key, seed), arm.config(seed)) for arm in arms for seed in range(seeds)
    ]
    return sorted(planned, key=lambda p: -updates(p.config))


def collect(
    arms: Sequence[Arm],
    s: Any,
    preset: str,
    lab: Any,
    runs: Mapping[str, Run],
    run_name: RunName,
) -> Evidence:
    """Sort runs by arm and seed; settings below those of `lab` decide nothing."""
    found, floors = {}, {}
    for arm in arms:
        found[arm.key] = by_seed(runs, functools.partial(run_name, arm.key), s.seeds)
        floors[arm.key] = (
            {seed: arm.floor(make(run.config.data)) for seed, run in found[arm.key].items()}
            if arm.floor
            else {}
        )
    return Evidence(s, found, floors, large_enough(s, lab) and preset != "quick")


def data_spec(name: str, n_test: int, **arguments: Any) -> dict[str, Any]:
    """Return a data set's whole spec; the test set is not drawn for it."""
    return {**make({"name": name, "n_test": 0, **arguments}).spec, "n_test": n_test}


def updates(config: RunConfig) -> int:
    """Return the number of updates of a run."""
    n = int(config.data["n"])
    return sum(phase.epochs * -(-n // (phase.batch_size or n)) for phase in config.schedule)


def table(arms: Sequence[Arm | Derived], found: Evidence) -> list[dict[str, Any]]:
    """Return means over seeds, a row for each arm, with the interval of the test error."""
    rows = []
    for arm in arms:
        runs = found.runs[arm.key]
        ratios = found.over_floor(arm.key) if found.floors[arm.key] else []
        has_error = all("test_error" in run.columns for run in runs.values())
        score = "test_error" if has_error else "test_loss"
        interval = found.interval(arm.key, score) if runs else None
        rows.append(
            {
                "arm": arm.label,
                **{
                    column: found.mean(arm.key, column) if runs else None
                    for column in ("train_loss", "trace", "trace_ggn")
                },
                "trace/floor": sum(ratios) / len(ratios) if ratios else None,
                score: found.mean(arm.key, score) if runs else None,
                f"{score}_low": interval.low if interval else None,
                f"{score}_high": interval.high if interval else None,
                "seeds": len(runs),
            }
        )
    return rows


def final_values(
    comparison: Comparison,
    arms: Sequence[Arm | Derived],
    found: Evidence,
    score: str = "test_error",
) -> Plot:
    """Return the picture of final values: test error, and trace over its floor where known."""
    floors = all(found.floors[arm.key] for arm in arms)

    def dots(values: Callable[[str], list[float]]) -> tuple[Dot, ...]:
        return tuple(Dot(arm.label, arm.role or arm.key, tuple(values(arm.key))) for arm in arms)

    error = Dots(
        "generalisation",
        score.replace("_", " "),
        dots(lambda key: found.final(key, score)),
        (Reference("chance", 0.5),) if score == "test_error" else (),
        within=FRACTION if score == "test_error" else (0.0, float("inf")),
    )
    trace = Dots(
        "sharpness",
        "Gauss–Newton trace over its floor" if floors else "Gauss–Newton trace",
        dots(found.over_floor if floors else lambda key: found.final(key, "trace_ggn")),
        (Reference("floor", 1.0),) if floors else (),
        xscale="log",
        within=(0.0, float("inf")),
    )
    return Plot(comparison.name, comparison.title, ((error, trace),), caption=CAPTION)


def histories(
    name: str, title: str, arms: Sequence[Arm], found: Evidence, columns: Mapping[str, str]
) -> Plot:
    """Return a picture of columns through training, a panel for each: column → its name in words.

    Test error has a linear axis, everything else a logarithmic one.
    """
    groups = {arm.key: list(found.runs[arm.key].values()) for arm in arms}
    labels = {arm.key: arm.label for arm in arms}
    panels = tuple(
        Curves(
            words,
            words,
            curves(groups, labels, column),
            (Reference("chance", 0.5, above=True),) if column == "test_error" else (),
            yscale="linear" if column == "test_error" else "log",
            ylim=(-0.02, 0.6) if column == "test_error" else None,
        )
        for column, words in columns.items()
    )
    return Plot(name, title, (panels,), caption=CURVES)


def against(
    x: Sequence[float],
    lines: Mapping[str, Sequence[str]],
    found: Evidence,
    value: Callable[[Run], float] = lambda run: run.final["test_error"],
) -> tuple[Curve, ...]:
    """Return curves of a final value against a setting.

    Args:
        x: The values of the setting.
        lines: Label → keys of the arms in the order of x; seeds that all of them have are drawn.
        found: The evidence.
        value: What of a run is drawn.
    """
    made = []
    for label, keys in lines.items():
        seeds = [seed for seed in found.runs[keys[0]] if all(seed in found.runs[k] for k in keys)]
        if seeds:
            y = np.array([[value(found.runs[key][seed]) for key in keys] for seed in seeds])
            made.append(Curve(label, label, np.array(x, float), y))
    return tuple(made)


def said(interval: Interval | None, mean: float, places: int = 3) -> str:
    """Write a mean and its interval.

    >>> said(Interval(0.25, 0.2, 0.3), 0.25)
    '0.250 [0.200, 0.300]'
    >>> said(None, 0.25)
    '0.250'
    """
    if interval is None:
        return f"{mean:.{places}f}"
    return f"{mean:.{places}f} [{interval.low:.{places}f}, {interval.high:.{places}f}]"
