"""What an experiment is, what it plans, and the data it returns.

`report` draws, and the command line prints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from ..plots import Plot
from ..specs import digest
from ..training.config import RunConfig

UNDECIDED = ("quick",)  # presets for a first look


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
        """Return the interval, clipped to the quantity's range; None for fewer than two values.

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
    """One claim and the answer.

    `holds` is True, False, or None for "not assessed"; `reason` says by which rule. `because` says
    what happened in the runs, if they show it; it is written from their numbers.
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
    """Everything an analysis returns: verdicts, tables (rows of plain values) and plots.

    `finding` is the result in plain language, written from the numbers.
    """

    verdicts: tuple[Verdict, ...]
    tables: Mapping[str, list[dict[str, Any]]]
    plots: tuple[Plot, ...]
    notes: tuple[str, ...] = ()
    finding: str = ""


@dataclasses.dataclass(frozen=True)
class Planned:
    """A training run of an experiment.

    Attributes:
        name: Unique in the experiment.
        config: What to train.
        ours: Whether the run is ours and not in the source.
        after: The name of the planned run whose final parameters it starts from, or "".
    """

    name: str
    config: RunConfig
    ours: bool = False
    after: str = ""

    @property
    def epochs(self) -> int:
        """How many epochs it trains for."""
        return self.config.epochs

    def identity(self, before: str = "") -> str:
        """Return the digest that names it; `before` is the identity of what it comes after."""
        if not before:
            return self.config.digest()
        return digest({"config": self.config.to_dict(), "after": before})


@dataclasses.dataclass(frozen=True)
class Computation:
    """A function's name and the plain data to call it with; the dict that it returns is stored.

    Attributes:
        name: Unique in the experiment.
        target: "package.module:function", called as `function(payload, report)`. `report(info)`
            shows progress; info["done"] is the fraction done, from 0 to 1.
        payload: Plain data. If `after` is set, the function finds the directory of that run or
            computation in `payload["after"]`.
        after: The name of the planned run or computation whose result it needs, or "".
        seconds: Its expected duration; decides the order, and what fits a budget.
        ours: Whether the computation is ours and not in the source.
    """

    name: str
    target: str
    payload: Mapping[str, Any]
    after: str = ""
    seconds: float = 1.0
    ours: bool = False

    @property
    def epochs(self) -> int:
        """A computation trains nothing."""
        return 0

    def identity(self, before: str = "") -> str:
        """Return the digest that names it; `before` is the identity of what it comes after."""
        fields = {"target": self.target, "payload": dict(self.payload)}
        return digest({**fields, "after": before} if before else fields)


def measurement(name: str, run: str, measures: Sequence[str], **options: Any) -> Computation:
    """Return the job that measures the end of a planned run.

    Args:
        name: Unique in the experiment.
        run: The name of the planned run.
        measures: Names of measures, as for `fl.measure`.
        options: `seconds` and `ours` of a `Computation`.
    """
    target = "flatlab.experiments.computing:measure_end"
    return Computation(name, target, {"measures": list(measures)}, after=run, **options)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An entry of the catalogue.

    Attributes:
        id: "source/figure".
        source: The paper.
        figure: Which figure or table of it.
        claim: What it claims, in one sentence.
        presets: Name → settings (a spec); a field of the settings can be set by `--set`.
        plan: Settings → runs and computations, the longest first.
        analyse: (settings, preset, results by name) → findings. A run gives a `Run`, a computation
            a `Computed`; failed ones are missing.
        module: The file that defines it; its docstring is the experiment's header.
        least: Setting → the smallest value that can decide a claim. By default the sizes and
            epochs of the preset `lab`; the number of seeds does not matter.
        undecided: Presets for a first look, which decide nothing even with larger settings.
    """

    id: str
    source: str
    figure: str
    claim: str
    presets: Mapping[str, Any]
    plan: Callable[[Any], Sequence[Planned | Computation]]
    analyse: Callable[[Any, str, Mapping[str, Any]], Findings]
    module: str
    least: Mapping[str, float] | None = None
    undecided: tuple[str, ...] = UNDECIDED

    def too_small(self, settings: Any, preset: str) -> str:
        """Say which settings are too small to decide a claim; empty if none is."""
        return too_small(settings, preset, self.presets, self.least, self.undecided)


def too_small(
    settings: Any,
    preset: str,
    presets: Mapping[str, Any],
    least: Mapping[str, float] | None = None,
    undecided: Sequence[str] = UNDECIDED,
) -> str:
    """Say why settings cannot decide a claim; empty if they can. The arguments are `Experiment`'s.

    An analysis calls this before it judges, and `run` reports the reason.
    """
    if least is None:
        least = sizes(presets["lab"]) if "lab" in presets else {}
    short = shortfalls(settings, least)
    if short:
        said = [f"{name} is {have:,} (needs {needs:,})" for name, have, needs in short]
        more = [f"{len(said) - 3} more"] if len(said) > 3 else []
        return f"too small to decide: {', '.join([*said[:3], *more])}"
    if preset in undecided:
        return f"the preset {preset} is for a first look and decides nothing: run another"
    return ""


def sizes(settings: Any) -> dict[str, float]:
    """Return the settings that are sizes: dimensions, examples, widths and epochs."""
    return {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name in ("d", "n")
        or field.name.startswith("n_")
        or "epochs" in field.name
        or "width" in field.name
    }


def shortfalls(settings: Any, least: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Return (name, value, required value) for each setting that is too small."""
    values = ((name, getattr(settings, name), needs) for name, needs in least.items())
    return [(name, have, needs) for name, have, needs in values if have < needs]
