"""The paper's claims on gradient descent and 1-SAM: Scenario I (no bias) and II (bias)."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..arms import AnyArm
from ..compared import Compared, at, course, over_initial
from ..contract import Verdict
from ..judging import FRACTION, THRESHOLD, above, below, near, on_minimum

MUCH = 0.1  # difference of test errors that counts as much worse


def scenario_one(found: Compared) -> list[Verdict]:
    """Judge: both algorithms generalise, and the trace falls under weight decay as well."""
    name = f"wen2023.{found.comparison.name}"
    verdicts = [
        _of_minimum(
            found,
            below(
                f"{name}.{arm.key}_generalises",
                f"{arm.label} without bias generalises (test error)",
                found.final(arm.key, "test_error"),
                THRESHOLD,
                decisive=found.fit(arm.key),
                within=FRACTION,
            ),
            arm.key,
        )
        for arm in found.arms.values()
    ]
    verdicts += [
        below(
            f"{name}.{arm.key}_trace_falls",
            f"the trace falls through training under {arm.label} (last over initial)",
            found.each(arm.key, lambda run: over_initial(run, "trace_ggn")),
            1,
            decisive=found.fit(arm.key),
            within=(0.0, np.inf),
        )
        for arm in found.arms.values()
    ]
    verdicts.append(
        below(
            f"{name}.flatter",
            f"1-SAM ends flatter than {found.arms['gd'].label} (ratio of traces)",
            [b / a for a, b in found.pairs("gd", "sam", "trace_ggn")],
            1,
            decisive=found.fit("gd", "sam"),
            paper="silent",
        )
    )
    return verdicts


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
    name, descent = f"wen2023.{found.comparison.name}", found.arms["gd"].label
    both, sam = found.fit("gd", "sam"), found.fit("sam")
    verdicts = [
        below(
            f"{name}.flatter",
            f"1-SAM ends flatter than {descent} (ratio of traces)",
            [b / a for a, b in found.pairs("gd", "sam", "trace_ggn")],
            1,
            decisive=both,
        ),
        above(
            f"{name}.worse",
            f"1-SAM generalises{' much' if much else ''} worse than {descent} "
            "(difference of test errors)",
            [b - a for a, b in found.pairs("gd", "sam", "test_error")],
            MUCH if much else 0,
            decisive=both,
        ),
    ]
    if fails:
        verdicts.append(
            above(
                f"{name}.sam_fails",
                "1-SAM with bias does not generalise (test error)",
                found.final("sam", "test_error"),
                THRESHOLD,
                decisive=sam,
                within=FRACTION,
            )
        )
    if degrades_after is not None:
        verdicts.append(
            above(
                f"{name}.degrades",
                f"1-SAM's test error grows after epoch {degrades_after:,} (end minus then)",
                found.each(
                    "sam",
                    lambda run: run.final["test_error"] - at(run, degrades_after, "test_error"),
                ),
                0,
                decisive=sam,
            )
        )
    if found.floors["sam"]:
        verdicts.append(_reaches_bound(found, name, bound_needs))
    return [_of_minimum(found, verdict, "sam", most=True) for verdict in verdicts]


def _of_minimum(found: Compared, verdict: Verdict, key: str, most: bool = False) -> Verdict:
    """Return a verdict on an arm's minimum; a failing verdict also tells how training went."""
    short = not as_long_as(found, "paper", key)
    decisive = found.fit(key)
    verdict = on_minimum(verdict, found.excess(key), decisive=decisive, short=short, most=most)
    if verdict.holds is not False:
        return verdict
    names = {"trace_ggn": "trace", "test_error": "test error"}
    column = "trace_ggn" if verdict.claim.endswith(("flatter", "bound")) else "test_error"
    said = f"the {names[column]} {course(found.runs[key].values(), column)}"
    return dataclasses.replace(verdict, because=said)


def _reaches_bound(found: Compared, name: str, needs: str) -> Verdict:
    verdict = near(
        f"{name}.reaches_bound",
        "1-SAM reaches the lower bound of the trace, approximately (trace/bound)",
        found.over_floor("sam"),
        decisive=found.fit("sam"),
    )
    return unless_short(found, verdict, "sam", needs)


def as_long_as(found: Compared, preset: str, key: str, first: bool = False) -> bool:
    """Return whether an arm, or its first phase, has at least the epochs of a preset."""
    other, name = found.comparison.presets[preset], f"{key}_epochs"
    return all(
        getattr(found.settings, field.name) >= getattr(other, field.name)
        for field in dataclasses.fields(other)
        if (field.name == name if first else field.name.startswith(name))
    )


def unless_short(
    found: Compared, verdict: Verdict, key: str, needs: str, first: bool = False
) -> Verdict:
    """Return a verdict, open instead of failing if the arm has fewer epochs than a preset.

    With `first`, the verdict is on the end of the arm's first phase.
    """
    if verdict.holds is not False or as_long_as(found, needs, key, first):
        return verdict
    reason = f"1-SAM may not have converged: it has fewer epochs than in the preset {needs}"
    return dataclasses.replace(verdict, holds=None, reason=reason)


def generalises(found: Compared, arm: AnyArm, nearly: float) -> list[Verdict]:
    """Judge: an arm generalises (test error below 10 %), and nearly perfectly (below `nearly`)."""
    name, errors = f"wen2023.{found.comparison.name}", found.final(arm.key, "test_error")
    return [
        _of_minimum(
            found,
            below(
                f"{name}.{arm.key}_generalises{ending}",
                f"1-SAM with {arm.label} generalises{words} (test error)",
                errors,
                bound,
                decisive=found.fit(arm.key),
                within=FRACTION,
            ),
            arm.key,
        )
        for ending, words, bound in (
            ("", "", THRESHOLD),
            ("_nearly_perfectly", " nearly perfectly", nearly),
        )
    ]
