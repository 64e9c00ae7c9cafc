"""Verdicts from `statistics`: trends, equivalence and changes, corrected for their number.

As in `judging`, a rule is data, and the sentence of a verdict is written from it. A figure makes
several claims; the chance that any of them is decided wrongly is kept at 5 % (`corrected`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from .contract import Fit, Interval, Verdict
from .judging import NO_RUN, Rule, why_open
from .statistics import Bootstrapped, Equivalence, holm

ALPHA = 0.05  # for all claims of a figure together
FALLS = Rule("below", 0, "the rank correlation")
RISES = Rule("above", 0, "the rank correlation")
FLATTENS = Rule("below", 0, "the change of slope")


@dataclasses.dataclass(frozen=True)
class Within:
    """The rule of an equivalence: which differences count as none.

    With `ratio` the differences are of logarithms, and shown as ratios.
    """

    width: float
    unit: str = "points"
    of: str = "the difference"
    ratio: bool = False

    def decide(self, found: Equivalence) -> bool | None:
        """Return whether the difference is within the margin; None if neither is shown.

        >>> from .statistics import equivalence
        >>> draws = [0.1, 0.0, -0.1], [3.0, 3.1, 2.9], [0.0, 2.0, -1.0]
        >>> [Within(1.0).decide(equivalence(draw, 1.0)) for draw in draws]
        [True, False, None]
        """
        if found.inside < ALPHA:
            return True
        return False if found.outside < ALPHA else None

    def says(self, found: Equivalence) -> str:
        """Write where the 90 % interval lies.

        >>> from .statistics import equivalence
        >>> Within(1.0).says(equivalence([0.1, 0.0, -0.1], 1.0))
        "the difference's 90 % interval lies within ±1 points"
        """
        words = {True: "lies within", False: "lies beyond", None: "is not wholly within"}
        width = f"±{self.width:g} {self.unit}"
        if self.ratio:
            width = f"a factor of {math.exp(self.width):.3g}"
        return f"{self.of}'s 90 % interval {words[self.decide(found)]} {width}"

    def shown(self, found: Equivalence) -> Interval:
        """Return the interval as the verdict shows it."""
        ends = found.interval
        if not self.ratio:
            return ends
        return Interval(*(math.exp(end) for end in (ends.mean, ends.low, ends.high)))


@dataclasses.dataclass(frozen=True)
class Uncorrected:
    """A verdict before correction, and its p-value; 1 if the verdict is open."""

    verdict: Verdict
    p: float = 1.0


def by_interval(
    claim: str,
    statement: str,
    found: Bootstrapped | None,
    rule: Rule,
    *,
    decisive: Fit | bool,
    paper: str = "yes",
    absent: str = NO_RUN,
) -> Uncorrected:
    """Judge an estimate by the side of a bound on which its interval over seeds lies.

    `absent` is the reason if there is no estimate. One seed decides nothing.
    """
    if found is None:
        return Uncorrected(_unmeasured(claim, statement, paper, decisive, absent))
    ends = found.interval()
    low, high = (ends.low, ends.high) if ends else (None, None)
    holds, reason = None, why_open(decisive)
    if decisive and ends:
        holds, reason = rule.decide(ends), rule.says(ends, found.n)
    elif decisive:
        reason = "one seed has no interval"
    verdict = Verdict(claim, statement, paper, found.estimate, low, high, holds, reason)
    return Uncorrected(verdict, found.p_value(rule.bound) if holds is not None else 1.0)


def by_margin(
    claim: str,
    statement: str,
    found: Equivalence | None,
    rule: Within,
    *,
    decisive: Fit | bool,
    paper: str = "yes",
    absent: str = NO_RUN,
) -> Uncorrected:
    """Judge "there is no difference that counts" by two one-sided tests."""
    if found is None:
        return Uncorrected(_unmeasured(claim, statement, paper, decisive, absent))
    ends = rule.shown(found)
    holds, reason = None, why_open(decisive)
    if decisive:
        holds, reason = rule.decide(found), rule.says(found)
    verdict = Verdict(claim, statement, paper, ends.mean, ends.low, ends.high, holds, reason)
    p = {True: found.inside, False: found.outside, None: 1.0}[holds]
    return Uncorrected(verdict, p)


def _unmeasured(
    claim: str, statement: str, paper: str, decisive: Fit | bool, absent: str
) -> Verdict:
    reason = why_open(decisive) or absent
    return Verdict(claim, statement, paper, None, None, None, None, reason)


def corrected(tested: Sequence[Uncorrected]) -> list[Verdict]:
    """Return the verdicts of a figure, corrected for their number by Holm's procedure.

    Claims without a p-value are counted too, so that a claim is not easier to decide because
    another could not be measured. A verdict says its corrected p-value.
    """
    m = len(tested)
    return [
        _with_p(one.verdict, p, m)
        for one, p in zip(tested, holm([one.p for one in tested]), strict=True)
    ]


def _with_p(verdict: Verdict, p: float, m: int) -> Verdict:
    if verdict.holds is None:
        return verdict
    for_m = f"corrected for {m} claims" if m > 1 else "one claim"
    said = f"p = {p:.2g}, {for_m}"
    if p < ALPHA:
        return dataclasses.replace(verdict, reason=f"{verdict.reason} ({said})")
    reason = f"{verdict.reason}, but not after correction ({said})"
    return dataclasses.replace(verdict, holds=None, reason=reason)
