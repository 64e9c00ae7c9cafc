"""What an experiment is, what it plans, and the data it returns.

`report` draws, and the command line prints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from ..outside.tables import html_table, interval, number
from ..plots import Plot
from ..specs import digest
from ..training.config import RunConfig

UNDECIDED = ("quick",)  # presets for a first look

# Ranges of quantities, to which intervals are clipped.
ANYTHING, FRACTION, POSITIVE = (-np.inf, np.inf), (0.0, 1.0), (0.0, np.inf)


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

    def __repr__(self) -> str:
        row = self.row()
        return f"Verdict({self.claim} {self.word}: {row['measured']}, paper {row['paper']})"

    def _repr_html_(self) -> str:
        """Return a table of one row for a notebook."""
        return html_table([self.row()])

    def row(self) -> dict[str, str]:
        """Return the verdict as a row of texts."""
        return {
            "verdict": self.word,
            "claim": self.claim,
            "measured": interval(self.measured, self.low, self.high),
            "paper": number(self.paper),
            "what and why": f"{self.statement}: {self.reason}",
        }


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether results can decide a claim: they can unless `why` says what is in the way.

    >>> bool(Fit()), bool(Fit("seeds is 1 (needs 3)"))
    (True, False)
    """

    why: str = ""

    def __bool__(self) -> bool:
        return not self.why


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
    """A training run of an experiment."""

    name: str  # unique in the experiment
    config: RunConfig
    ours: bool = False  # it is ours, and not in the source
    after: str = ""  # the planned run whose final parameters it starts from

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

    The target is "package.module:function", called as `function(payload, report)`. `report(info)`
    shows progress; info["done"] is the fraction done, from 0 to 1. If `after` names a planned run
    or computation, the function finds its directory in `payload["after"]`.
    """

    name: str  # unique in the experiment
    target: str
    payload: Mapping[str, Any]
    after: str = ""
    seconds: float = 1.0  # expected; decides the order, and what fits a budget
    ours: bool = False  # it is ours, and not in the source

    @property
    def epochs(self) -> int:
        """A computation trains nothing."""
        return 0

    def identity(self, before: str = "") -> str:
        """Return the digest that names it; `before` is the identity of what it comes after."""
        fields = {"target": self.target, "payload": dict(self.payload)}
        return digest({**fields, "after": before} if before else fields)


def measurement(
    name: str,
    run: str,
    measures: Sequence[str],
    examples: int | None = None,
    mode: str = "eval",
    **options: Any,
) -> Computation:
    """Return the job that measures the end of a planned run; measures are as for `fl.measure`.

    `examples` is the number of training examples to measure on, evenly spaced; None is all of them.
    The options are `seconds` and `ours` of a `Computation`.
    """
    payload: dict[str, Any] = {"measures": list(measures)}
    payload |= {} if examples is None else {"examples": examples}
    payload |= {} if mode == "eval" else {"mode": mode}
    target = "flatlab.experiments.computing:measure_end"
    return Computation(name, target, payload, after=run, **options)


def seeds_in(settings: Any) -> range:
    """Return the seeds of settings: `seeds` of them from `first_seed`, by default from 0."""
    first = getattr(settings, "first_seed", 0)
    return range(first, first + settings.seeds)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An entry of the catalogue; its id is "source/figure", and its claim is one sentence.

    Attributes:
        presets: Name → settings (a spec); a field of the settings can be set by `--set`.
        plan: Settings → runs and computations, the longest first.
        analyse: (settings, preset, results by name) → findings. A run gives a `Run`, a computation
            a `Computed`; failed ones are missing.
        module: The file that defines it; its docstring is the experiment's header.
        least: Setting → the smallest value that can decide a claim, in every preset. By default
            each preset has its own (`least_of`).
        undecided: Presets for a first look, which decide nothing even with larger settings.
        complete: Settings → settings with the values that follow from others.
        require: Raises a `UserError` if the settings cannot run here, as without a data file. A
            plan is made without it.
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
    complete: Callable[[Any], Any] = lambda settings: settings
    require: Callable[[Any], None] = lambda settings: None

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
        least = least_of(preset, presets, undecided)
    said = [
        f"{name} is {have:,} (needs {needs:,})"
        for name, needs in least.items()
        if (have := getattr(settings, name)) < needs
    ]
    if said:
        return f"too small to decide: {', '.join(said)}"
    if preset in undecided:
        return f"the preset {preset} is for a first look and decides nothing: run another"
    return ""


def least_of(
    preset: str, presets: Mapping[str, Any], undecided: Sequence[str] = UNDECIDED
) -> dict[str, float]:
    """Return the sizes that decide a claim in a preset: those of `lab`, or its own if smaller.

    So the preset `paper` decides with one seed where the paper shows one run. A preset for a first
    look has the sizes of `lab`.
    """
    least = sizes(presets["lab"]) if "lab" in presets else {}
    if preset in undecided or preset not in presets:
        return least
    own = sizes(presets[preset])
    return {name: min(value, own.get(name, value)) for name, value in least.items()}


def sizes(settings: Any) -> dict[str, float]:
    """Return the settings that are sizes: seeds, dimensions, examples, widths and epochs."""
    return {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name in ("seeds", "d", "n")
        or field.name.startswith("n_")
        or "epochs" in field.name
        or "width" in field.name
    }
