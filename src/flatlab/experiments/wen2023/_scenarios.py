"""The paper's claims on gradient descent and 1-SAM: Scenario I (no bias) and II (bias)."""

from __future__ import annotations

import dataclasses
import math

from ..compared import Compared, at, course, over_initial
from ..contract import POSITIVE, Verdict
from ..judging import (
    NO_RUN,
    How,
    above,
    below,
    errs_more,
    flatter,
    generalises,
    on_minimum,
    reaches_floor,
)

MUCH = 0.1  # difference of test errors that counts as much worse
NEARLY = 0.01  # test error below which a network generalises nearly perfectly


def scenario_one(found: Compared) -> list[Verdict]:
    """Judge: both algorithms generalise, and the trace falls under weight decay as well."""
    does, falls = [], []
    for key, arm in found.arms.items():
        verdict = generalises(found, key, f"{key}_generalises", f"{arm.label} without bias")
        does.append(_of_minimum(found, verdict, key))
        claim, fit = found.claim(f"{key}_trace_falls"), found.fit(key)
        said = f"the trace falls through training under {arm.label} (last over initial)"
        ratios = found.each(key, lambda run: over_initial(run, "trace_ggn"))
        known = [ratio for ratio in ratios if math.isfinite(ratio)]
        absent = "the initial trace is 0 in every seed" if ratios else NO_RUN
        how: How = {"decisive": fit, "within": POSITIVE, "absent": absent}
        falls.append(below(claim, said, known, 1, **how))
    return [*does, *falls, _flatter(found, paper="silent")]


def _flatter(found: Compared, paper: str = "yes") -> Verdict:
    statement = f"1-SAM ends flatter than {found.arms['gd'].label} (ratio of traces)"
    return flatter(found, "gd", "sam", statement, paper=paper)


def scenario_two(
    found: Compared,
    *,
    fails: bool = False,
    much: bool = False,
    degrades_after: int | None = None,
    bound_needs: str = "lab",
) -> list[Verdict]:
    """Judge: 1-SAM ends flatter, at the floor if one is known, and generalises worse.

    These claims are about the minimum that 1-SAM reaches, so most seeds must reach a minimum. The
    other seeds count as well, and are named.

    Args:
        found: The runs.
        fails: Whether the paper also says that 1-SAM fails to generalise.
        much: Whether the paper says "much worse": by more than `MUCH`.
        degrades_after: The epoch after which 1-SAM's test error grows according to the paper.
        bound_needs: The preset whose epochs are enough to say that 1-SAM does not reach the floor.
    """
    worse, by = ("much worse", MUCH) if much else ("worse", 0)
    said = f"1-SAM generalises {worse} than {found.arms['gd'].label} (difference of test errors)"
    verdicts = [_flatter(found), errs_more(found, "gd", "sam", "worse", said, by=by)]
    if fails:
        verdicts.append(generalises(found, "sam", "sam_fails", "1-SAM with bias", does=False))
    if degrades_after is not None:
        then = found.each("sam", lambda run: at(run, degrades_after, "test_error"))
        growth = [b - a for a, b in zip(then, found.final("sam", "test_error"), strict=True)]
        claim, fit = found.claim("degrades"), found.fit("sam")
        said = f"1-SAM's test error grows after epoch {degrades_after:,} (end minus then)"
        verdicts.append(above(claim, said, growth, 0, decisive=fit))
    if found.floors["sam"]:
        verdict = reaches_floor(found, "sam", "reaches_bound", "1-SAM")
        verdicts.append(unless_short(found, verdict, "sam", bound_needs))
    return [_of_minimum(found, verdict, "sam", most=True) for verdict in verdicts]


def _of_minimum(found: Compared, verdict: Verdict, key: str, most: bool = False) -> Verdict:
    """Return a verdict on an arm's minimum; a failing verdict also tells how training went."""
    short = shorter(found, "paper", key)
    decisive = found.fit(key)
    verdict = on_minimum(verdict, found.excess(key), decisive=decisive, short=short, most=most)
    if verdict.holds is not False:
        return verdict
    names = {"trace_ggn": "trace", "test_error": "test error"}
    column = "trace_ggn" if verdict.claim.endswith(("flatter", "bound")) else "test_error"
    said = f"the {names[column]} {course(found.runs[key].values(), column)}"
    return dataclasses.replace(verdict, because=said)


def shorter(found: Compared, preset: str, key: str, first: bool = False) -> str:
    """Say which epochs of an arm, or of its first phase, are fewer than a preset's; or nothing."""
    other, name = found.comparison.presets[preset], f"{key}_epochs"
    return ", ".join(
        f"{field.name} is {have:,} ({preset} has {needs:,})"
        for field in dataclasses.fields(other)
        if (field.name == name if first else field.name.startswith(name))
        if (have := getattr(found.settings, field.name)) < (needs := getattr(other, field.name))
    )


def unless_short(
    found: Compared, verdict: Verdict, key: str, needs: str, first: bool = False
) -> Verdict:
    """Return a verdict, open instead of failing if the arm has fewer epochs than a preset.

    With `first`, the verdict is on the end of the arm's first phase.
    """
    if verdict.holds is not False or not (short := shorter(found, needs, key, first)):
        return verdict
    reason = f"{verdict.reason}, but 1-SAM may not have converged: {short}"
    return dataclasses.replace(verdict, holds=None, reason=reason)


def generalisation(found: Compared) -> list[Verdict]:
    """Judge: each arm generalises (test error below 10 %), and nearly perfectly (below 1 %)."""
    judged = []
    for key, arm in found.arms.items():
        claim, who, how = f"{key}_generalises", f"1-SAM with {arm.label}", " nearly perfectly"
        does = generalises(found, key, claim, who)
        nearly = generalises(found, key, f"{claim}_nearly_perfectly", who, bound=NEARLY, how=how)
        judged += [_of_minimum(found, verdict, key) for verdict in (does, nearly)]
    return judged
