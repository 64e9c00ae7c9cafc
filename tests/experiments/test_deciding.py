"""Verdicts from statistics, on made-up seeds: decided, refuted, open, corrected."""

import math

import numpy as np
import pytest

from flatlab.experiments.contract import Fit
from flatlab.experiments.deciding import (
    FALLS,
    RISES,
    Uncorrected,
    Within,
    by_interval,
    by_margin,
    corrected,
)
from flatlab.experiments.statistics import equivalence, kendall, mean_over_seeds

X = [0.1, 0.2, 0.4, 0.8]
DOWN = [[4.0 + k, 3.0 + k, 2.0 + k, 1.0 + k] for k in range(8)]
NOISE = np.random.default_rng(5).normal(size=(8, 4))


def falls(rows, **how):
    made = mean_over_seeds([kendall(X, row) for row in rows])
    return by_interval("c", "it falls", made, FALLS, **{"decisive": True, **how})


def test_a_trend_holds_fails_or_stays_open():
    assert falls(DOWN).verdict.holds is True
    assert falls([row[::-1] for row in DOWN]).verdict.holds is False
    still_open = falls(NOISE)
    assert still_open.verdict.holds is None and still_open.p == 1
    assert "lies on both sides of 0" in still_open.verdict.reason
    assert "the rank correlation's interval lies below 0" in falls(DOWN).verdict.reason


def test_nothing_is_decided_without_seeds_or_by_one_of_them():
    one = by_interval("c", "s", mean_over_seeds([1.0]), RISES, decisive=True)
    assert one.verdict.holds is None and one.verdict.reason == "one seed has no interval"
    none = by_interval("c", "s", None, RISES, decisive=True, absent="too few levels")
    assert none.verdict.measured is None and none.verdict.reason == "too few levels"
    small = falls(DOWN, decisive=Fit("seeds is 2 (needs 8)"))
    assert small.verdict.holds is None and small.p == 1
    assert small.verdict.reason == "seeds is 2 (needs 8)" and small.verdict.measured == -1


@pytest.mark.parametrize(
    "draws, holds, words",
    [
        ([0.1, -0.1, 0.2, 0.0], True, "lies within ±1 points"),
        ([3.0, 3.2, 2.9, 3.1], False, "lies beyond ±1 points"),
        ([2.0, -2.0, 1.0, 0.5], None, "is not wholly within ±1 points"),
    ],
)
def test_equivalence_needs_evidence(draws, holds, words):
    found = by_margin("c", "s", equivalence(draws, 1.0), Within(1.0), decisive=True)
    assert found.verdict.holds is holds and words in found.verdict.reason
    assert (found.p < 0.05) == (holds is not None)


def test_a_ratio_is_shown_as_one():
    width = math.log(1.5)
    draws = [math.log(value) for value in (1.1, 0.95, 1.05, 1.0)]
    found = by_margin("c", "s", equivalence(draws, width), Within(width, ratio=True), decisive=True)
    assert found.verdict.holds and found.verdict.measured == pytest.approx(1.023, abs=1e-3)
    assert "within a factor of 1.5" in found.verdict.reason


def test_many_claims_need_smaller_p_values():
    one = falls(DOWN)
    (alone,) = corrected([one])
    assert alone.holds and alone.reason.endswith("(p = 0.0017, one claim)")
    many = corrected([one] * 20)
    assert all(v.holds for v in many) and "corrected for 20 claims" in many[0].reason
    weak = Uncorrected(one.verdict, 0.03)
    first, second = corrected([weak, Uncorrected(one.verdict, 1e-9)])
    assert first.holds and second.holds  # Holm: the second of two is not corrected again
    verdicts = corrected([weak, weak])
    assert all(v.holds is None for v in verdicts)
    assert "but not after correction (p = 0.06, corrected for 2 claims)" in verdicts[0].reason


def test_open_claims_count_in_the_correction():
    weak, none = Uncorrected(falls(DOWN).verdict, 0.03), falls(NOISE)
    first, second = corrected([weak, none])
    assert first.holds is None and second == none.verdict
