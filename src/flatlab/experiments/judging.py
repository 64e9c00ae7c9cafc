"""Verdicts by an interval over seeds: below a bound, above it, near 1, or a share of the seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..theory.frequencies import clopper_pearson
from .analysis import Rule, judge
from .contract import Interval, Verdict

THRESHOLD = 0.1  # test error below which a network generalises
# Training loss, above the least there can be, below which a network counts as a minimum. The zero
# function's is 1, and 0.19 with the logistic loss of smoothing 0.2.
INTERPOLATES = 0.01
# Relative distance within which a trace "approximately reaches" its bound. SAM of a fixed radius
# leaves the mean of y f at 0.96 to 1.01 in `table1`'s lab, and the bound is proportional to |f|.
NEAR = 0.1

ANYTHING = (-np.inf, np.inf)
FRACTION = (0.0, 1.0)


def below(
    claim: str,
    statement: str,
    values: Sequence[float],
    bound: float,
    *,
    decisive: bool,
    within: tuple[float, float] = ANYTHING,
    paper: str | None = None,
) -> Verdict:
    """Judge "it is below the bound": the whole interval must lie on one side."""

    def rule(found: Interval) -> tuple[bool | None, str]:
        if found.high < bound:
            return True, f"the interval lies below {bound:g}"
        if found.low >= bound:
            return False, f"the interval does not reach below {bound:g}"
        return None, f"the interval contains {bound:g}"

    said = paper or "yes"
    return judge(claim, statement, said, values, rule, decisive=decisive, within=within)


def above(
    claim: str,
    statement: str,
    values: Sequence[float],
    bound: float,
    *,
    decisive: bool,
    within: tuple[float, float] = ANYTHING,
    paper: str | None = None,
) -> Verdict:
    """Judge "it is above the bound": the whole interval must lie on one side."""

    def rule(found: Interval) -> tuple[bool | None, str]:
        if found.low > bound:
            return True, f"the interval lies above {bound:g}"
        if found.high <= bound:
            return False, f"the interval does not reach above {bound:g}"
        return None, f"the interval contains {bound:g}"

    said = paper or "yes"
    return judge(claim, statement, said, values, rule, decisive=decisive, within=within)


def near(
    claim: str, statement: str, ratios: Sequence[float], *, decisive: bool, paper: str = "1"
) -> Verdict:
    """Judge "the ratio is 1, approximately": within 10 %."""
    rule: Rule = _near
    return judge(claim, statement, paper, ratios, rule, decisive=decisive, within=(0.0, np.inf))


def on_minimum(
    verdict: Verdict,
    losses: Sequence[float],
    *,
    decisive: bool,
    short: bool = False,
    most: bool = False,
) -> Verdict:
    """Return a verdict on a minimum: without one it fails, or is open if training was short.

    Args:
        verdict: What would be said of a minimum.
        losses: The training loss of each seed above the least there can be.
        decisive: Whether there is enough to decide at all.
        short: Whether longer training might have reached one.
        most: Whether more than half of the seeds are enough; the verdict then counts the others.
    """
    off = [loss for loss in losses if loss >= INTERPOLATES]
    if not decisive or not off:
        return verdict
    where = f"{len(off)} of {len(losses)} seeds" if len(losses) > 1 else "one seed:"
    lost = f"{where} not at a minimum: the training loss is up to {max(off):.3g} above the least"
    if most and 2 * len(off) < len(losses):
        return dataclasses.replace(verdict, reason=f"{verdict.reason} ({lost})")
    if short:
        lost += ", and the epochs are below the paper's"
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
    decisive: bool,
    paper: str = "open",
) -> Verdict:
    """Judge "it does so in more than this share of the seeds" by the exact interval of a share."""
    if not hits:
        reason = "no run is there to judge by"
        return Verdict(claim, statement, paper, None, None, None, None, reason)
    found = proportion(sum(hits), len(hits))
    holds: bool | None = None
    if not decisive:
        reason = "a run diverged, or the sizes are below those of the preset lab"
    elif found.low > bound:
        holds, reason = True, f"the share's interval lies above {bound:g}"
    elif found.high < bound:
        holds, reason = False, f"the share's interval lies below {bound:g}"
    else:
        reason = f"the share's interval contains {bound:g}"
    reason = f"{sum(hits)} of {len(hits)} seeds; {reason}"
    return Verdict(claim, statement, paper, found.mean, found.low, found.high, holds, reason)


def _near(ratio: Interval) -> tuple[bool | None, str]:
    if ratio.low > 1 - NEAR and ratio.high < 1 + NEAR:
        return True, f"the ratio's interval lies within {NEAR:.0%} of 1"
    if ratio.high < 1 - NEAR or ratio.low > 1 + NEAR:
        return False, f"the ratio's interval lies more than {NEAR:.0%} from 1"
    return None, f"the ratio's interval contains 1 ± {NEAR:.0%}"
