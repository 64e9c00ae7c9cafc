"""What an experiment is, and the data it returns. Drawing is for `report`, printing for the CLI."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import special

from ..plots import Plot
from ..training.config import RunConfig
from ..training.run import Run


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % Student interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(
        cls, values: list[float], floor: float = -np.inf, ceiling: float = np.inf
    ) -> Interval | None:
        """Return the interval, clipped to what the quantity can be; None with one value or none.

        >>> Interval.of([1.0, 2.0, 3.0])
        Interval(mean=2.0, low=-0.484..., high=4.484...)
        """
        if len(values) < 2:
            return None
        mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
        half = float(special.stdtrit(len(values) - 1, 0.975) * spread / np.sqrt(len(values)))
        return cls(mean, max(mean - half, floor), min(mean + half, ceiling))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One claim and what came out.

    `holds` is True, False, or None for "not assessed"; `reason` says by which rule. `because` says,
    where the runs can tell, what happened in them; it is made from their numbers.
    """

    claim: str
    statement: str
    paper: str | float
    measured: float | None
    low: float | None
    high: float | None
    holds: bool | None
    reason: str
    because: str = ""

    @property
    def word(self) -> str:
        """The verdict in words."""
        return {True: "holds", False: "fails", None: "not assessed"}[self.holds]


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything an analysis says: verdicts, tables (rows of plain values) and plots.

    `finding` is what came out, in plain language; it is made from the numbers.
    """

    verdicts: tuple[Verdict, ...]
    tables: Mapping[str, list[dict[str, Any]]]
    plots: tuple[Plot, ...]
    notes: tuple[str, ...] = ()
    finding: str = ""


@dataclasses.dataclass(frozen=True)
class Planned:
    """One run of an experiment: a name that is unique in it, and what to run.

    `ours` marks a run that the source does not have.
    """

    name: str
    config: RunConfig
    ours: bool = False


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An entry of the catalogue.

    Attributes:
        id: "source/figure".
        source: The paper.
        figure: Which figure or table of it.
        claim: What it claims, in one sentence.
        presets: Name → settings (a spec); a field of the settings can be set by `--set`.
        plan: Settings → runs, the longest first.
        analyse: (settings, preset, runs by name) → findings. Runs that failed are missing.
        module: The file that defines it; its docstring is the experiment's header.
    """

    id: str
    source: str
    figure: str
    claim: str
    presets: Mapping[str, Any]
    plan: Callable[[Any], list[Planned]]
    analyse: Callable[[Any, str, Mapping[str, Run]], Findings]
    module: str
