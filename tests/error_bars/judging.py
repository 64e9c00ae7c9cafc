"""Readings and truths → verdicts: the share covered, bars exceeded, exact readings that are off.

A reading of many numbers counts as one: its numbers share their random draws. One of them, drawn by
the problem's seed, decides whether the interval covers; all of them must lie within ten bars.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta, t

import flatlab as fl
from flatlab.errors import UserError

from .oracle import Array, Oracle
from .problems import Problem
from .truths import Peak, Truth, matrix_of, truth_of
from .wide import Wide

LEVEL = 0.95
TOO_FAR = 10.0
DIGITS = 6
# An exact number may be off by this much of the size of what it is computed from.
ROUNDING = 1e-9
# Smaller differences are the rounding of a sum of nothing.
NOTHING = 1e-30
# A search is beaten if this test finds a rise larger by more than this share.
BEATEN = 0.01
# Half the width of a normal 95 % interval, in standard errors.
NORMAL = 1.96
# A truth that is itself drawn must be this much finer than the bar it judges.
BLUNT = 0.3


@dataclass(frozen=True)
class Judged:
    """What became of one reading.

    Attributes:
        problem: The problem, in one line with its seed.
        name: The measure.
        exact: Whether it says that it is exact.
        covered: Whether the interval covers the truth; None for exact readings and searches.
        bars: How many bars the worst number is away; 0 for exact readings.
        wrong: What is wrong with this reading by itself; empty if nothing is.
        bar: The bar relative to the value.
        beaten: For searches, how much higher than the reading this test came, relative to it.
    """

    problem: str
    name: str
    exact: bool
    covered: bool | None
    bars: float
    wrong: str
    bar: float
    beaten: float | None = None


@dataclass(frozen=True)
class Findings:
    """What became of one problem.

    Attributes:
        judged: Its readings.
        skipped: Measures that did not apply, and why.
        refused: Why flatlab would not measure the problem at all; empty if it did.
    """

    judged: list[Judged]
    skipped: dict[str, str]
    refused: str = ""

    @property
    def wrong(self) -> list[str]:
        """Everything that is wrong with this problem alone, one line each."""
        found = [f"{each.name}: {each.wrong}" for each in self.judged if each.wrong]
        return [*([f"refused: {self.refused}"] if self.refused else []), *found]


def examine(problem: Problem) -> Findings:
    """Measure a problem with flatlab and hold every reading against its truth."""
    try:
        readings = fl.measure(
            problem.model, problem.loss, (problem.x, problem.y), list(problem.measures),
            seed=problem.seed, progress=False, skip=True, **problem.options,
        )  # fmt: skip
    except UserError as error:
        return Findings([], {}, str(error))
    oracle = Wide(problem) if problem.wide else Oracle(problem)
    judged: list[Judged] = []
    for name, reading in readings.items():
        truth = truth_of(oracle, name, reading)
        if isinstance(truth, Peak):
            judged.append(judge_search(problem, name, reading, truth))
        elif truth is not None:
            judged += judge(problem, name, bool(reading.exact), Numbers.of(reading), truth)
            if "spectrum" in name:
                judged += judge_moments(problem, name, reading, oracle.eigenvalues(matrix_of(name)))
    return Findings(judged, readings.skipped)


@dataclass(frozen=True)
class Numbers:
    """A reading's numbers as arrays of one shape: values, bars and ends of the interval."""

    value: Array
    stderr: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, reading: Any) -> Numbers:
        """Take them from a reading."""
        given = (reading.value, reading.stderr, *reading.interval(LEVEL))
        return cls(*np.broadcast_arrays(*(np.atleast_1d(np.float64(part)) for part in given)))


def judge(
    problem: Problem, name: str, exact: bool, numbers: Numbers, truth: Truth
) -> Iterator[Judged]:
    """Judge a number, or an array of numbers; nothing if the truth is too blunt."""
    value, true = numbers.value, np.broadcast_to(truth.value, numbers.value.shape)
    slack = np.maximum(half_unit(true), ROUNDING * truth.scale)
    if np.size(true) > 1:  # an array is exact relative to its largest entry
        slack = np.maximum(slack, 5e-7 * np.abs(np.nan_to_num(true)).max())
    away = np.where(np.isnan(value) & np.isnan(true), 0.0, np.abs(value - true))
    away = np.where(away < NOTHING, 0.0, away)
    if exact:
        yield Judged(str(problem), name, True, None, 0.0, _off(value, true, away, slack), 0.0)
        return
    if truth.error > BLUNT * float(numbers.stderr.max()) and truth.error > float(slack.max()):
        return
    # The truth's own error widens the interval by at most a few per cent.
    side = np.where(true >= value, numbers.high - value, value - numbers.low)
    covered = away <= np.hypot(side, NORMAL * truth.error) + slack
    # With few degrees of freedom Student's quantile, not the standard error, is two bars.
    bar = np.maximum(np.where(numbers.stderr > 0, numbers.stderr, side), side / NORMAL)
    bar = np.hypot(bar, truth.error)
    with np.errstate(divide="ignore", invalid="ignore"):
        bars = np.where(away <= slack, 0.0, away / bar)
    bars = np.where(np.isnan(bars), np.inf, bars)
    worst, wrong = int(np.argmax(bars)), ""
    if bars[worst] > TOO_FAR:
        wrong = (
            f"{value[worst]:.6g} ± {numbers.stderr[worst]:.2g} is {true[worst]:.6g}: "
            f"{bars[worst]:.3g} bars away (entry {worst} of {len(value)})"
        )
    telling = np.flatnonzero((bar > 0) | (np.abs(true) > slack))
    places = telling if len(telling) else np.arange(len(value))
    place = int(np.random.default_rng([problem.seed, 19]).choice(places))
    relative = float(np.linalg.norm(numbers.stderr) / max(float(np.linalg.norm(value)), 1e-300))
    yield Judged(
        str(problem), name, False, bool(covered[place]), float(bars[worst]), wrong, relative
    )


def _off(value: Array, true: Array, away: Array, slack: Array) -> str:
    """Return what is wrong with numbers that are said to be exact; empty if nothing is."""
    off = ~(away <= slack)
    if not off.any():
        return ""
    at = int(np.argmax(np.where(off, away / np.maximum(slack, 1e-300), -1.0)))
    return f"exact, but {value[at]:.9g} is {true[at]:.9g} (entry {at} of {len(value)})"


def half_unit(true: Array) -> Array:
    """Return half a unit of the sixth significant digit.

    >>> half_unit(np.array([1.0, 99.0, 0.0]))
    array([5.e-06, 5.e-05, 0.e+00])
    """
    size = np.abs(true)
    with np.errstate(divide="ignore"):
        unit = 10.0 ** (np.floor(np.log10(size)) - (DIGITS - 1))
    return np.where(size > 0, unit / 2, 0.0)


def judge_moments(
    problem: Problem, name: str, reading: Any, eigenvalues: Array
) -> Iterator[Judged]:
    """Judge the mean and the mean square of the eigenvalues, with Student's interval."""
    details, moments = reading.details, reading.details["moments"]
    errors = details.get("moments_stderr", np.zeros(2))
    reach = 1.0 if reading.dof is None else float(t.ppf((1 + LEVEL) / 2, reading.dof))
    for place, word in ((0, "mean"), (1, "mean square")):
        value, stderr = moments[place : place + 1], errors[place : place + 1]
        numbers = Numbers(value, stderr, value - reach * stderr, value + reach * stderr)
        powers = eigenvalues ** (place + 1)
        truth = Truth(float(powers.mean()), float(np.abs(powers).mean()))
        yield from judge(problem, f"{name}, {word}", bool(reading.exact), numbers, truth)


def judge_search(problem: Problem, name: str, reading: Any, peak: Peak) -> Judged:
    """Judge a lower bound of a maximum: nobody comes higher, and its point really is that high."""
    value = float(reading.value)
    low, high = (float(end) for end in reading.interval(LEVEL))
    slack = max(1e-6 * peak.best, ROUNDING * peak.size)
    wrong = ""
    if low > peak.best + slack:
        wrong = f"a lower bound of {low:.9g}, but nothing above {peak.best:.9g} is there"
    elif high < peak.own - slack:
        wrong = f"the interval ends at {high:.9g}, but a rise of {peak.own:.9g} is there"
    beaten = 0.0 if peak.own <= value + slack else peak.own / max(value, 1e-300) - 1
    covered = bool(low - slack <= peak.best <= high + slack)
    bar = math.inf if math.isinf(high) else float(reading.stderr) / max(abs(value), 1e-300)
    return Judged(str(problem), name, False, covered, 0.0, wrong, bar, beaten)


def clopper_pearson(hits: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the exact confidence interval of a share.

    >>> [round(end, 4) for end in clopper_pearson(95, 100)]
    [0.8872, 0.9836]
    """
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


@dataclass(frozen=True)
class Share:
    """All readings of one measure.

    Attributes:
        name: The measure.
        readings: How many there are.
        exact: How many of them say that they are exact.
        covered: How many of the others cover the truth.
        wrong: Readings that are off by themselves.
        bar: The median bar relative to the value, of readings that are not exact.
        beaten: For searches, by how much this test came higher, for every reading.
    """

    name: str
    readings: int
    exact: int
    covered: int
    wrong: tuple[Judged, ...]
    bar: float
    beaten: tuple[float, ...] = ()

    @property
    def estimates(self) -> int:
        """Readings with a bar."""
        return self.readings - self.exact

    @property
    def interval(self) -> tuple[float, float]:
        """The exact interval of the share covered."""
        return clopper_pearson(self.covered, self.estimates)

    @property
    def higher(self) -> int:
        """Readings of a search that this test beats."""
        return sum(excess > BEATEN for excess in self.beaten)

    @property
    def complaint(self) -> str:
        """What is wrong with the measure as a whole; empty if nothing is."""
        if self.estimates and not self.beaten and self.interval[1] < LEVEL:
            low, high = self.interval
            return (
                f"{self.name}: {self.covered} of {self.estimates} intervals cover the truth, a "
                f"share between {low:.3f} and {high:.3f}, below {LEVEL}"
            )
        # One in a hundred, and one where there are fewer than a hundred.
        if self.beaten and self.higher > 1 and self.higher >= BEATEN * len(self.beaten):
            return (
                f"{self.name}: this test finds a rise larger by more than {BEATEN:.0%} on "
                f"{self.higher} of {len(self.beaten)} problems"
            )
        return ""


def shares(judged: Iterable[Judged]) -> list[Share]:
    """Sum up by measure."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for each in judged:
        groups[each.name].append(each)
    return [_share(name, group) for name, group in groups.items()]


def _share(name: str, group: list[Judged]) -> Share:
    barred = [each for each in group if not each.exact]
    return Share(
        name,
        len(group),
        len(group) - len(barred),
        sum(bool(each.covered) for each in barred),
        tuple(each for each in group if each.wrong),
        float(np.median([each.bar for each in barred])) if barred else 0.0,
        tuple(each.beaten for each in group if each.beaten is not None),
    )
