"""The runs of a comparison, sorted by arm and seed, and the numbers that verdicts need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..training.run import Run
from .contract import Interval

if TYPE_CHECKING:
    from .arms import AnyArm, Comparison

LIMITS = {"test_error": (0.0, 1.0)}


@dataclasses.dataclass(frozen=True)
class Compared:
    """The runs of a comparison, with the floors of their traces.

    Attributes:
        comparison: The comparison.
        settings: Its settings.
        arms: Key → arm, in their order.
        runs: Arm's key → seed → run; runs that failed are missing.
        floors: Arm's key → seed → the trace to compare with; empty if none is known.
        decisive: Whether the sizes are large enough to decide anything.
    """

    comparison: Comparison
    settings: Any
    arms: Mapping[str, AnyArm]
    runs: Mapping[str, Mapping[int, Run]]
    floors: Mapping[str, Mapping[int, float]]
    decisive: bool

    def fit(self, *keys: str) -> bool:
        """Return whether these arms can be judged: large enough, no run diverged or missed."""
        return self.decisive and all(
            run.status in ("done", "reached") for key in keys for run in self.runs[key].values()
        )

    def each(self, key: str, value: Callable[[Run], float]) -> list[float]:
        """Return a number for each run of an arm, in the order of seeds."""
        return [value(run) for run in self.runs[key].values()]

    def final(self, key: str, column: str) -> list[float]:
        """Return a column's last value in each run of an arm."""
        return self.each(key, lambda run: run.final[column])

    def mean(self, key: str, column: str) -> float:
        """Return the mean of a column's last values; NaN without runs."""
        values = self.final(key, column)
        return float(np.mean(values)) if values else float("nan")

    def interval(self, key: str, column: str) -> Interval | None:
        """Return the interval of a column's last value over the seeds."""
        return Interval.of(self.final(key, column), *LIMITS.get(column, (-np.inf, np.inf)))

    def pairs(self, one: str, other: str, column: str) -> list[tuple[float, float]]:
        """Return pairs of the last values of two arms, for the seeds that both have."""
        a, b = self.runs[one], self.runs[other]
        return [(a[seed].final[column], b[seed].final[column]) for seed in a if seed in b]

    def floor(self, key: str) -> float | None:
        """Return the trace that an arm is compared with: the mean over the seeds' data sets."""
        floors = list(self.floors[key].values())
        return float(np.mean(floors)) if floors else None

    def excess(self, key: str) -> list[float]:
        """Return how far each run of an arm ends above the smallest possible training loss."""
        return self.each(key, lambda run: run.final["train_loss"] - run.config.loss.least)

    def over_floor(self, key: str) -> list[float]:
        """Return each run's final Gauss–Newton trace divided by the floor of the same data set."""
        floors = self.floors[key]
        return [run.final["trace_ggn"] / floors[seed] for seed, run in self.runs[key].items()]


def by_seed(runs: Mapping[str, Run], name: Callable[[int], str], seeds: int) -> dict[int, Run]:
    """Return seed → run for the seeds that have a run.

    >>> by_seed({}, "run-seed{}".format, 3)
    {}
    """
    return {seed: runs[name(seed)] for seed in range(seeds) if name(seed) in runs}


def lost(runs: Mapping[str, Run]) -> tuple[str, ...]:
    """Return a note on each run that diverged, or ended without reaching its target."""
    said = {
        "diverged": "{} diverged in epoch {}; its last finite state is used",
        "missed": "{} missed its target",
    }
    return tuple(
        said[run.status].format(name, run.diverged_at)
        for name, run in runs.items()
        if run.status in said
    )


def nearest(run: Run, epoch: int) -> int:
    """Return the row of the history whose epoch is nearest to `epoch`."""
    return int(np.argmin(np.abs(run.columns["epoch"] - epoch)))


def at(run: Run, epoch: int, column: str) -> float:
    """Return a column at the logged epoch nearest to `epoch`."""
    return float(run.columns[column][nearest(run, epoch)])


def after_first_phase(run: Run, column: str) -> float:
    """Return a column at the end of a run's first phase."""
    return at(run, run.config.schedule[0].epochs, column)


def cut(run: Run, last: int) -> Run:
    """Return a run cut after the row `last` of its history."""
    columns = {name: column[: last + 1] for name, column in run.columns.items()}
    return dataclasses.replace(run, columns=columns)


def first_phase(run: Run) -> Run:
    """Return a run as it was at the end of its first phase."""
    return cut(run, nearest(run, run.config.schedule[0].epochs))


def falling(runs: Iterable[Run], column: str) -> bool:
    """Return whether a column fell by a tenth of itself in the second half of training.

    The column is averaged over seeds. Without runs the answer is no.
    """
    pairs = [(at(run, run.config.epochs // 2, column), run.final[column]) for run in runs]
    half, end = np.mean(pairs, axis=0) if pairs else (0.0, 0.0)
    return bool(end < 0.9 * half)


def course(runs: Iterable[Run], column: str) -> str:
    """Describe a column through training, averaged over seeds: its minimum, its range, its end.

    Only the logged epochs that all runs have count.
    """
    columns = [run.columns for run in runs]
    rows = min(len(c["epoch"]) for c in columns)
    values = np.mean([c[column][:rows] for c in columns], axis=0)
    epochs = columns[0]["epoch"]
    late = values[epochs[:rows] >= epochs[rows - 1] / 2]
    least = int(values.argmin())
    return (
        f"was smallest at epoch {epochs[least]:,}, {values[least]:.3g}, was between "
        f"{late.min():.3g} and {late.max():.3g} in the second half of training and ended at "
        f"{values[-1]:.3g}"
    )


def over_initial(run: Run, column: str) -> float:
    """Return a column's last value divided by its value before the first step."""
    return float(run.columns[column][-1] / run.columns[column][0])
