"""The evidence of a check: each line compares a measured number with what the statement says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ..theory.frequencies import CONFIDENCE, clopper_pearson

Relation = Literal["=", "≤", "≥", "<", ">", "is", "in"]

CONTRADICTION = 0.999
CLEARLY = 1e-6
"""Relative error above which a printed statement counts as wrong."""


@dataclass(frozen=True)
class Line:
    """One piece of evidence.

    Attributes:
        what: What was measured, with its sizes.
        relation: How `measured` should stand to `expected`.
        expected: The number it should have, or the bound.
        holds: Whether it does, within the tolerance; None for a number that is only shown.
        of_printed: Whether it is about the statement as printed, which is known to be wrong.
        low, high: The 95 % interval of `measured`, if it is random.
        tolerance: By how much `measured` may differ from `expected`, or be beyond it.
    """

    what: str
    measured: float
    relation: Relation
    expected: float
    holds: bool | None
    of_printed: bool = False
    low: float | None = None
    high: float | None = None
    tolerance: float = 0.0

    @property
    def should(self) -> str:
        """What the number should be, in words, with the tolerance of an equality.

        The tolerance of a bound is written where the number is beyond the bound and still holds.
        Six digits, so that a misprint and its correction look different.

        >>> equal("slope", 2.33898, 2.35961, abs=0.03).should, at_most("x", 1, 2).should
        ('= 2.35961 ± 0.03', '≤ 2')
        """
        text = f"{self.relation} {self.expected:.6g}"
        if self.relation == "=":
            return f"{text} ± {self.tolerance:.2g}"
        beyond = self.measured > self.expected if self.relation == "≤" else False
        beyond = beyond or (self.relation == "≥" and self.measured < self.expected)
        if not (self.holds and beyond):
            return text
        return f"{text} {'+' if self.relation == '≤' else '−'} {self.tolerance:.2g}"

    def comparison(self) -> str:
        """Write the comparison, with enough digits that a misprint and its correction differ."""
        if self.holds is None:
            return f"{self.measured:.4g}"
        if self.relation == "is":
            return "yes" if self.measured else "no"
        return f"{self.measured:.6g} {self.should}"

    @property
    def clear(self) -> bool:
        """Whether the two numbers are finite and differ by more than rounding."""
        scale = max(math.fabs(self.measured), math.fabs(self.expected))
        apart = math.fabs(self.measured - self.expected) > CLEARLY * scale
        return math.isfinite(scale) and apart


Lines = Iterator[Line]


def equal(
    what: str, measured: SupportsFloat, expected: SupportsFloat, rel: float = 1e-9, abs: float = 0
) -> Line:
    """Return a line that requires equality up to rounding."""
    m, e = float(measured), float(expected)
    tolerance = max(rel * max(math.fabs(m), math.fabs(e)), abs)
    holds = math.isclose(m, e, rel_tol=rel, abs_tol=abs)
    return Line(what, m, "=", e, holds, tolerance=tolerance)


def near_zero(what: str, measured: ArrayLike, tolerance: float = 1e-10) -> Line:
    """Return a line that requires a zero: a loss, a distance, or the largest of many errors."""
    errors = np.asarray(measured, float)
    m = float(np.max(np.abs(errors)) if errors.ndim else errors)
    return Line(what, m, "≤", tolerance, -tolerance <= m <= tolerance)


def at_least(
    what: str, measured: SupportsFloat, bound: SupportsFloat, slack: float = 1e-10
) -> Line:
    """Return a line that requires measured ≥ bound, up to a slack relative to the bound's size."""
    m, b = float(measured), float(bound)
    room = slack * max(1.0, math.fabs(b))
    return Line(what, m, "≥", b, m >= b - room, tolerance=room)


def at_most(what: str, measured: SupportsFloat, bound: SupportsFloat, slack: float = 1e-10) -> Line:
    """Return a line that requires measured ≤ bound, up to a slack relative to the bound's size."""
    m, b = float(measured), float(bound)
    room = slack * max(1.0, math.fabs(b))
    return Line(what, m, "≤", b, m <= b + room, tolerance=room)


def above(what: str, measured: SupportsFloat, bound: SupportsFloat) -> Line:
    """Return a line that requires measured > bound, strictly."""
    return Line(what, float(measured), ">", float(bound), float(measured) > float(bound))


def below(what: str, measured: SupportsFloat, bound: SupportsFloat) -> Line:
    """Return a line that requires measured < bound, strictly."""
    return Line(what, float(measured), "<", float(bound), float(measured) < float(bound))


def true(what: str, fact: bool | np.bool_) -> Line:
    """Return a line for a fact that must be true."""
    return Line(what, float(bool(fact)), "is", 1.0, bool(fact))


def shown(what: str, measured: SupportsFloat) -> Line:
    """Return a line that shows a number and judges nothing."""
    return Line(what, float(measured), "is", float(measured), None)


def frequency(
    what: str, hits: int, trials: int, *, at_most: float | None = None,
    at_least: float | None = None,
) -> Line:  # fmt: skip
    """Return a measured frequency that must be at most, or at least, a probability.

    It fails if the whole two-sided 99.9 % Clopper–Pearson interval lies on the wrong side. So it
    can contradict a bound on a probability, but it cannot confirm one that is nearly attained. The
    interval shown is the 95 % one.

    >>> frequency("failures", 1, 100, at_most=0.05).holds
    True
    >>> frequency("failures", 30, 100, at_most=0.05).holds
    False
    """
    low, high = clopper_pearson(hits, trials)
    least, most = clopper_pearson(hits, trials, CONTRADICTION)
    share = float(hits / trials)
    if at_most is not None:
        below, holds = share - least, least <= at_most
        return Line(what, share, "≤", at_most, holds, low=low, high=high, tolerance=below)
    if at_least is None:
        raise ValueError("frequency needs at_most or at_least")
    above, holds = most - share, most >= at_least
    return Line(what, share, "≥", at_least, holds, low=low, high=high, tolerance=above)


def estimate(what: str, samples: ArrayLike, expected: float, sigmas: float = 4.0) -> Line:
    """Return a Monte-Carlo mean that must be within some standard errors of a number."""
    values = np.asarray(samples, dtype=float)
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))
    half = special.ndtri((1 + CONFIDENCE) / 2) * error
    room = sigmas * error + 1e-12 * max(1.0, math.fabs(expected))
    holds, ends = math.fabs(mean - expected) <= room, (mean - half, mean + half)
    return Line(what, mean, "=", float(expected), holds, False, *ends, tolerance=room)


def slope(
    what: str, x: ArrayLike, y: ArrayLike, *, at_most: float | None = None,
    near: float | None = None, within: float = 0.3,
) -> Line:  # fmt: skip
    """Return the slope of log y over log x with its 95 % interval.

    With `at_most` it fails if the slope is larger; with `near`, if the slope differs from it by
    more than `within`. The interval is only shown.

    >>> slope("a line", [1, 2, 4], [3, 6, 12], near=1.0).holds
    True
    """
    from scipy import stats  # slow to import

    found = stats.linregress(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)))
    count = np.asarray(x).size
    if count < 3:
        raise ValueError("a slope needs three points or more")
    half = special.stdtrit(count - 2, (1 + CONFIDENCE) / 2) * found.stderr
    value, low, high = float(found.slope), float(found.slope - half), float(found.slope + half)
    if near is not None:
        holds = math.fabs(value - near) <= within
        return Line(what, value, "=", near, holds, low=low, high=high, tolerance=within)
    if at_most is None:
        raise ValueError("slope needs at_most or near")
    return Line(what, value, "≤", at_most, value <= at_most, low=low, high=high)
