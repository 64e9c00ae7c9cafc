"""A figure's runs, part by part and seed by seed, and the numbers that its verdicts need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ....run import Run

if TYPE_CHECKING:
    from .figure import Figure, Part


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What there is to judge a figure by.

    Attributes:
        figure: The figure.
        settings: Its settings.
        runs: Part's key → seed → run; runs that failed are missing.
        floors: Part's key → seed → the trace to compare with; empty where none is known.
        decisive: Whether the sizes are large enough to decide anything.
    """

    figure: Figure
    settings: Any
    runs: Mapping[str, Mapping[int, Run]]
    floors: Mapping[str, Mapping[int, float]]
    decisive: bool

    def fit(self, *keys: str) -> bool:
        """Return whether these parts can be judged: sizes are large enough, no run diverged."""
        return self.decisive and all(
            run.status == "done" for key in keys for run in self.runs[key].values()
        )

    def as_long_as(self, preset: str, key: str) -> bool:
        """Return whether a part has at least the epochs that it has in a preset."""
        other = self.figure.presets[preset]
        return all(
            getattr(self.settings, field.name) >= getattr(other, field.name)
            for field in dataclasses.fields(other)
            if field.name.startswith(f"{key}_epochs")
        )

    def part(self, key: str) -> Part:
        """Return a part by its key."""
        return next(part for part in self.figure.parts if part.key == key)

    def each(self, key: str, value: Callable[[Run], float]) -> list[float]:
        """Return a number of each run of a part, in the order of seeds."""
        return [value(run) for run in self.runs[key].values()]

    def final(self, key: str, column: str) -> list[float]:
        """Return a column's last value in each run of a part."""
        return self.each(key, lambda run: run.final[column])

    def pairs(self, one: str, other: str, column: str) -> list[tuple[float, float]]:
        """Return the last values of two parts in the seeds that both have."""
        a, b = self.runs[one], self.runs[other]
        return [(a[seed].final[column], b[seed].final[column]) for seed in a if seed in b]

    def over_floor(self, key: str) -> list[float]:
        """Return the final Gauss–Newton trace over the floor of the same data set."""
        floors = self.floors[key]
        return [run.final["trace_ggn"] / floors[seed] for seed, run in self.runs[key].items()]


def collect(figure: Figure, s: Any, preset: str, runs: Mapping[str, Run]) -> Evidence:
    """Sort a figure's runs by part and seed."""
    found = {
        part.key: {
            seed: runs[name]
            for seed in range(s.seeds)
            if (name := figure.run_name(part.key, seed)) in runs
        }
        for part in figure.parts
    }
    data = {seed: figure.data_of(seed, s) for seed in range(s.seeds)}
    floors = {
        part.key: {seed: part.floor(data[seed], s) for seed in data} if part.floor else {}
        for part in figure.parts
    }
    lab = figure.presets["lab"]
    sizes = [
        field.name
        for field in dataclasses.fields(lab)
        if field.name in ("width", "d", "n", "n_test") or "_epochs" in field.name
    ]
    large = all(getattr(s, name) >= getattr(lab, name) for name in sizes)
    return Evidence(figure, s, found, floors, decisive=large and preset != "quick")


def at(run: Run, epoch: int, column: str) -> float:
    """Return a column at the logged epoch nearest to one."""
    nearest = int(np.argmin(np.abs(run.columns["epoch"] - epoch)))
    return float(run.columns[column][nearest])


def over_largest(run: Run, column: str) -> float:
    """Return a column's last value over its largest in the run."""
    return float(run.columns[column][-1] / run.columns[column].max())
