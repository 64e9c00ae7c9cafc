"""The runs of a comparison, sorted by arm and seed, and the numbers that verdicts need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..training.run import Run
from .contract import Fit

if TYPE_CHECKING:
    from .arms import AnyArm, Comparison


@dataclasses.dataclass(frozen=True)
class Compared:
    """The runs of a comparison, with the floors of their traces; all mappings are by arm's key."""

    comparison: Comparison
    settings: Any
    arms: Mapping[str, AnyArm]
    runs: Mapping[str, Mapping[int, Run]]  # by seed; runs that failed are missing
    floors: Mapping[str, Mapping[int, float]]  # by seed; empty if none is known
    decisive: Fit  # whether the sizes are large enough to decide anything
    # Arm's key and label → seed → the result of what was computed from the end of a run.
    computed: Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]] = dataclasses.field(
        default_factory=dict
    )

    def claim(self, name: str) -> str:
        """Return the id of one of the comparison's claims: "source.comparison.name"."""
        return f"{self.comparison.id.replace('/', '.').replace('-', '_')}.{name}"

    def fit(self, *keys: str) -> Fit:
        """Return whether these arms can be judged: large enough, no run diverged or missed."""
        if not self.decisive:
            return self.decisive
        return unfit({self.run_name(k, s): run for k in keys for s, run in self.runs[k].items()})

    def run_name(self, key: str, seed: int) -> str:
        """Return the name of an arm's run; a derived arm has the runs of another."""
        return self.comparison.run_name(getattr(self.arms[key], "of", key), seed)

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

    def along(self, keys: Sequence[str], column: str) -> dict[int, list[float]]:
        """Return seed → a column's last value in each of these arms, for seeds that all have."""
        runs = [self.runs[key] for key in keys]
        seeds = [seed for seed in runs[0] if all(seed in part for part in runs)]
        return {seed: [part[seed].final[column] for part in runs] for seed in seeds}

    def pairs(self, one: str, other: str, column: str) -> list[tuple[float, float]]:
        """Return pairs of the last values of two arms, for the seeds that both have."""
        return [(a, b) for a, b in self.along((one, other), column).values()]

    def ratios(self, one: str, other: str, column: str) -> list[float]:
        """Return the other arm's last values over the first's; a seed whose first is 0 has none."""
        return [b / a for a, b in self.pairs(one, other, column) if a]

    def floor(self, key: str) -> float | None:
        """Return the trace that an arm is compared with: the mean over the seeds' data sets."""
        floors = list(self.floors[key].values())
        return float(np.mean(floors)) if floors else None

    def excess(self, key: str) -> list[float]:
        """Return how far each run of an arm ends above the smallest possible training loss."""
        return self.each(key, lambda run: run.final["train_loss"] - run.config.loss.least)

    def over_floor(self, key: str) -> list[float]:
        """Return each run's final Gauss–Newton trace divided by the floor of the same data set.

        A run whose floor is 0 has none.
        """
        floors, runs = self.floors[key], self.runs[key]
        return [run.final["trace_ggn"] / floors[seed] for seed, run in runs.items() if floors[seed]]


def lost(runs: Mapping[str, Run]) -> dict[str, str]:
    """Return name → words for each run that diverged, or ended without reaching its target."""
    said = {
        "diverged": "{} diverged in epoch {}",
        "missed": "{} missed its target",
    }
    return {
        name: said[run.status].format(name, run.diverged_at)
        for name, run in runs.items()
        if run.status in said
    }


def unfit(runs: Mapping[str, Run]) -> Fit:
    """Return the fit of runs by name: none unless every run came to its end."""
    return Fit("; ".join(lost(runs).values()))


def nearest(run: Run, epoch: int) -> int:
    """Return the row of the history whose epoch is nearest to `epoch`."""
    return int(np.argmin(np.abs(run.columns["epoch"] - epoch)))


def at(run: Run, epoch: int, column: str) -> float:
    """Return a column at the logged epoch nearest to `epoch`."""
    return float(run.columns[column][nearest(run, epoch)])


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
    """Return a column's last value divided by its value before the first step; NaN if that is 0."""
    first, last = float(run.columns[column][0]), float(run.columns[column][-1])
    return last / first if first else float("nan")
