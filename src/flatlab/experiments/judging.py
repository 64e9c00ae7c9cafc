"""Verdicts from an interval over seeds: below a bound, above it, near 1, or a share of seeds.

The verdicts that many comparisons share are here too: an arm generalises, one errs more than
another, a trace is at its floor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, Required, TypedDict, Unpack

import numpy as np

from ..theory.frequencies import clopper_pearson
from .compared import Compared
from .contract import ANYTHING, FRACTION, POSITIVE, Fit, Interval, Verdict

THRESHOLD = 0.1  # test error below which a network generalises
# A network counts as a minimum if its training loss is less than this above the smallest possible.
# For the zero function the excess is 1, and 0.19 with the logistic loss of smoothing 0.2.
INTERPOLATES = 0.01
# A trace within this relative distance "approximately reaches" its bound. SAM with a fixed radius
# ends with a mean of y f of 0.96 to 1.01 in `table1`'s lab, and the bound is proportional to |f|.
NEAR = 0.1

BOUND = "the lower bound of the trace, approximately (trace/bound)"
NO_RUN = "there is no run to judge by"
LEFT_OPEN = "the experiment does not decide it"


@dataclasses.dataclass(frozen=True)
class Rule:
    """The rule that decides a claim: on which side of a bound the whole interval of a number lies.

    `touch` is the answer if the interval lies on the wrong side and touches the bound: False, or
    None for "not assessed".
    """

    side: Literal["below", "above", "near"]
    bound: float
    of: str = ""  # what the number is; empty if the claim's statement says it
    touch: bool | None = False
    within: float = NEAR  # relative distance that counts as near

    def decide(self, found: Interval) -> bool | None:
        """Return whether the claim holds; None if the interval lies on both sides.

        >>> ends = (0, 0.05), (0.1, 1), (0, 1)
        >>> [Rule("below", 0.1).decide(Interval(0, low, high)) for low, high in ends]
        [True, False, None]
        """
        if self.side == "near":
            low, high = (self.bound * (1 + sign * self.within) for sign in (-1, 1))
            if low < found.low and found.high < high:
                return True
            return False if found.high < low or found.low > high else None
        sign = 1 if self.side == "above" else -1
        nearest, farthest = sorted(sign * (end - self.bound) for end in (found.low, found.high))
        if nearest > 0:
            return True
        return False if farthest < 0 or (farthest == 0 and self.touch is False) else None

    def says(self, found: Interval, seeds: int) -> str:
        """Write where the interval lies; with one seed, where the value lies.

        >>> Rule("above", 0, "the margin").says(Interval(1, 0.5, 1.5), 3)
        "the margin's interval lies above 0"
        >>> Rule("near", 1).says(Interval(1.2, 1.2, 1.2), 1)
        'one seed: the value lies more than 10% from 1'
        """
        holds, several = self.decide(found), seeds > 1
        if self.side == "near":
            words = {
                True: "lies within {} of",
                False: "lies more than {} from",
                None: "lies only partly within {} of" if several else "lies exactly {} from",
            }[holds].format(f"{self.within:.0%}")
            words += f" {self.bound:g}"
        elif holds is None:
            sides = found.low < self.bound < found.high
            both = "lies on both sides of" if sides else "touches"
            words = f"{both if several else 'is'} {self.bound:g}"
        else:
            other = "above" if self.side == "below" else "below"
            if self.touch is False:
                other = f"at or {other}"
            words = f"lies {self.side if holds else other} {self.bound:g}"
        if several:
            return f"{self.of}'s interval {words}" if self.of else f"the interval {words}"
        return f"one seed: {self.of or 'the value'} {words}"


AT_ONE = Rule("near", 1, "the ratio")


def judge(
    claim: str,
    statement: str,
    values: Sequence[float],
    rule: Rule,
    *,
    decisive: Fit | bool,
    within: tuple[float, float] = ANYTHING,
    paper: str = "yes",
    absent: str = NO_RUN,
) -> Verdict:
    """Return the verdict on a quantity with one value per seed; one seed is judged by its value.

    The rule is used only if the results can decide the claim at all (`decisive`); a `Fit` says why
    they cannot. The interval is clipped to the range of the quantity (`within`). `absent` is the
    reason if no seed has a value.
    """
    if not len(values):
        return Verdict(
            claim, statement, paper, None, None, None, None, why_open(decisive) or absent
        )
    interval, mean = Interval.of(list(values), *within), float(np.mean(values))
    low, high = (interval.low, interval.high) if interval else (None, None)
    holds, reason = None, why_open(decisive)
    if decisive:
        found = interval or Interval(mean, mean, mean)
        holds, reason = rule.decide(found), rule.says(found, len(values))
    return Verdict(claim, statement, paper, mean, low, high, holds, reason)


def why_open(decisive: Fit | bool) -> str:
    """Say why results decide nothing; empty if they can decide."""
    if decisive:
        return ""
    return decisive.why if isinstance(decisive, Fit) else LEFT_OPEN


class How(TypedDict, total=False):
    """The keywords of `judge`."""

    decisive: Required[Fit | bool]
    within: tuple[float, float]
    paper: str
    absent: str


def below(
    claim: str, statement: str, values: Sequence[float], bound: float, **how: Unpack[How]
) -> Verdict:
    """Judge "it is below the bound"."""
    return judge(claim, statement, values, Rule("below", bound), **how)


def above(
    claim: str, statement: str, values: Sequence[float], bound: float, **how: Unpack[How]
) -> Verdict:
    """Judge "it is above the bound"."""
    return judge(claim, statement, values, Rule("above", bound), **how)


def near(
    claim: str, statement: str, ratios: Sequence[float], *, decisive: Fit | bool, paper: str = "1"
) -> Verdict:
    """Judge "the ratio is 1, approximately": within 10 %."""
    return judge(claim, statement, ratios, AT_ONE, decisive=decisive, within=POSITIVE, paper=paper)


def generalises(
    found: Compared,
    key: str,
    name: str,
    who: str,
    *,
    bound: float = THRESHOLD,
    does: bool = True,
    how: str = "",
    paper: str = "yes",
) -> Verdict:
    """Judge "the arm generalises" by its test error; with `does` False, "it does not".

    The statement is made of `who`, the arm in words, and `how` well it generalises.
    """
    side, words = (below, "generalises") if does else (above, "does not generalise")
    claim, statement = found.claim(name), f"{who} {words}{how} (test error)"
    errors, fit = found.final(key, "test_error"), found.fit(key)
    return side(claim, statement, errors, bound, decisive=fit, within=FRACTION, paper=paper)


def errs_more(
    found: Compared,
    one: str,
    other: str,
    name: str,
    statement: str,
    *,
    by: float = 0,
    paper: str = "yes",
) -> Verdict:
    """Judge "the other arm's test error is larger" by the differences of the same seeds."""
    claim, fit = found.claim(name), found.fit(one, other)
    differences = [b - a for a, b in found.pairs(one, other, "test_error")]
    return above(claim, statement, differences, by, decisive=fit, paper=paper)


def flatter(
    found: Compared, one: str, other: str, statement: str, *, paper: str = "yes"
) -> Verdict:
    """Judge "the other arm's trace is smaller" by the ratios of the same seeds."""
    claim, fit = found.claim("flatter"), found.fit(one, other)
    ratios = found.ratios(one, other, "trace_ggn")
    absent = f"the ratio is undefined: the trace of {found.arms[one].label} is 0 in every seed"
    absent = absent if found.runs[one] else NO_RUN
    return below(claim, statement, ratios, 1, decisive=fit, paper=paper, absent=absent)


def reaches_floor(
    found: Compared, key: str, name: str, who: str, *, floor: str = BOUND, paper: str = "1"
) -> Verdict:
    """Judge "the arm's trace is at its floor, approximately"; `who` is the arm in words."""
    claim, ratios, fit = found.claim(name), found.over_floor(key), found.fit(key)
    return near(claim, f"{who} reaches {floor}", ratios, decisive=fit, paper=paper)


def on_minimum(
    verdict: Verdict,
    losses: Sequence[float],
    *,
    decisive: Fit | bool,
    short: str = "",
    most: bool = False,
) -> Verdict:
    """Return a verdict on a minimum; without a minimum it fails, or is open if training was short.

    Args:
        verdict: The verdict if every seed is at a minimum.
        losses: The training loss of each seed, minus the smallest possible loss.
        decisive: Whether there is enough to decide at all.
        short: Which epochs are too few, where longer training might have reached a minimum.
        most: Whether it is enough that more than half of the seeds are at a minimum; the verdict
            then names the number of the others.
    """
    off = [loss for loss in losses if loss >= INTERPOLATES]
    if not decisive or not off:
        return verdict
    where = f"{len(off)} of {len(losses)} seeds" if len(losses) > 1 else "one seed:"
    lost = f"{where} not at a minimum: the training loss is up to {max(off):.3g} above the least"
    if most and 2 * len(off) < len(losses):
        return dataclasses.replace(verdict, reason=f"{verdict.reason} ({lost})")
    if short:
        lost += f", and training is short: {short}"
    return dataclasses.replace(verdict, holds=None if short else False, reason=lost)


def proportion(hits: int, total: int) -> Interval:
    """Return a share with its exact 95 % interval.

    >>> proportion(50, 50)
    Interval(mean=1.0, low=0.928..., high=1.0)
    """
    return Interval(hits / total, *clopper_pearson(hits, total))


def mostly(
    claim: str,
    statement: str,
    hits: Sequence[bool],
    bound: float,
    *,
    decisive: Fit | bool,
    paper: str = "open",
) -> Verdict:
    """Judge "more than this share of the seeds do it" by the exact interval of a share."""
    if not hits:
        reason = why_open(decisive) or NO_RUN
        return Verdict(claim, statement, paper, None, None, None, None, reason)
    found, rule = proportion(sum(hits), len(hits)), Rule("above", bound, "the share", touch=None)
    holds, reason = None, why_open(decisive)
    if decisive:
        # The interval of a share is exact even with one seed.
        holds, reason = rule.decide(found), rule.says(found, max(len(hits), 2))
    reason = f"{sum(hits)} of {len(hits)} seeds; {reason}"
    return Verdict(claim, statement, paper, found.mean, found.low, found.high, holds, reason)
