"""Statistics over seeds: against scipy, and their size, power and coverage by simulation.

The simulations are seeded. With R repetitions a frequency near 5 % has a standard error of
√(0.05·0.95/R): 1.1 % at R = 400. Bounds are three of these away.
"""

import numpy as np
import pytest
from scipy import stats

from flatlab.experiments import statistics as st
from flatlab.experiments.statistics import (
    association,
    bend_at,
    change_of_slope,
    equivalence,
    equivalent_pairs,
    fitted_change,
    holm,
    kendall,
    mean_over_seeds,
    reverses,
)

R, SEEDS = 400, 8
SPREAD = 3 * np.sqrt(0.05 * 0.95 / R)
X = np.log([0.01, 0.02, 0.04, 0.08, 0.16])


def trend(levels, rows):
    """Return the mean over seeds of Kendall's τ-b, as the figures judge a trend."""
    return mean_over_seeds([kendall(levels, row) for row in rows])


def rng(k=0):
    return np.random.default_rng(k)


@pytest.mark.parametrize("ties", [False, True])
def test_kendall_is_scipys_tau_b(ties):
    for k in range(20):
        x, y = rng(k).normal(size=(2, 12))
        if ties:
            x, y = x.round(), y.round()
        assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
    assert kendall([1, 2, 3], [4, 4, 4]) == 0


def test_a_mean_of_normal_values_has_students_interval_and_p_value():
    """Within a tenth of the half-width, and of p where resamples are many beyond the bound.

    The bootstrap of eight values is not quite normal.
    """
    values = rng(2).normal(0.6, 1, SEEDS)
    found, student = mean_over_seeds(values), stats.ttest_1samp(values, 0.0)
    ends = student.confidence_interval(0.95)
    half = (ends.high - ends.low) / 2
    assert found.interval().low == pytest.approx(ends.low, abs=0.1 * half)
    assert found.interval().high == pytest.approx(ends.high, abs=0.1 * half)
    assert student.pvalue > 0.01
    assert found.p_value() == pytest.approx(student.pvalue, rel=0.1)


def test_p_value_and_interval_agree():
    for k in range(60):
        found = mean_over_seeds(rng(k).normal(0.7, 1, SEEDS))
        ends = found.interval()
        if abs(found.p_value() - 0.05) > 0.01:  # resamples are whole numbers of themselves
            assert (found.p_value() < 0.05) == (not ends.low <= 0 <= ends.high)


def test_the_least_p_value_falls_with_the_number_of_seeds():
    """Even if all seeds agree: two or three of them decide nothing, five barely, eight clearly."""
    least = {n: mean_over_seeds([-1.0] * n).p_value() for n in (1, 2, 3, 5, 8)}
    assert least[1] == 1 and least[3] > 0.2 and 0.01 < least[5] < 0.05 and least[8] < 0.005
    mixed = mean_over_seeds([-1.0] * 7 + [0.01])  # one seed on the other side
    assert mixed.p_value() >= mean_over_seeds([-1.0] * 8).p_value()


@pytest.mark.parametrize("levels", [3, 5])
def test_the_size_of_the_trend(levels):
    """Under no trend, with seeds that differ much from one another, 5 % are found."""
    found = 0
    for k in range(R):
        rows = rng(k).normal(size=(SEEDS, levels)) + 10 * rng(R + k).normal(size=(SEEDS, 1))
        found += trend(X[:levels], rows).p_value() < 0.05
    assert found / R < 0.05 + SPREAD


def test_the_interval_of_a_trend_covers_it():
    """The truth is the mean of τ over many seeds."""

    def rows(k, seeds):
        return 0.5 * X + rng(k).normal(size=(seeds, len(X)))

    truth = trend(X, rows(0, 2000)).estimate
    assert 0.1 < truth < 0.9
    covered = 0
    for k in range(1, R + 1):
        ends = trend(X, rows(k, SEEDS)).interval()
        covered += ends.low <= truth <= ends.high
    assert covered / R > 0.95 - 2 * SPREAD  # τ is discrete and bounded: a little low


def test_the_power_of_the_trend():
    """A rise of one standard deviation a level is found nearly always."""
    found = [
        trend(X, np.arange(5) + rng(k).normal(size=(SEEDS, 5))).p_value() < 0.05 for k in range(100)
    ]
    assert np.mean(found) > 0.95


def test_equivalence_is_two_t_tests_of_scipy():
    values = rng(1).normal(0.2, 0.5, 10)
    found = equivalence(list(values), 1.0)
    low = stats.ttest_1samp(values, -1.0, alternative="greater").pvalue
    high = stats.ttest_1samp(values, 1.0, alternative="less").pvalue
    assert found.inside == pytest.approx(max(low, high))
    ends = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert (found.interval.low, found.interval.high) == pytest.approx((ends.low, ends.high))
    assert equivalence([0.3], 1.0) is None
    assert equivalence([0.0, 0.0, 0.0], 1.0).inside == 0  # no spread, and inside
    assert equivalence([2.0, 2.0, 2.0], 1.0).inside == 1


@pytest.mark.parametrize("mean, holds", [(1.0, "inside"), (-1.0, "inside"), (0.0, "outside")])
def test_the_size_of_equivalence(mean, holds):
    """At the margin itself "inside" is found 5 %; at no difference "outside" hardly ever."""
    found = [
        getattr(equivalence(list(rng(k).normal(mean, 0.6, SEEDS)), 1.0), holds) < 0.05
        for k in range(R)
    ]
    assert np.mean(found) < 0.05 + SPREAD
    if holds == "inside":
        assert np.mean(found) > 0.05 - SPREAD


def test_equivalence_of_all_pairs_needs_every_pair():
    same = rng().normal(0, 0.1, (SEEDS, 3))
    assert equivalent_pairs(same, 1.0).inside < 0.001
    apart = same + np.array([0.0, 0.7, 1.6])
    found = equivalent_pairs(apart, 1.0)
    assert found.inside > 0.5 and found.outside < 0.01
    assert equivalent_pairs(same[:, :1], 1.0) is None


def test_the_size_of_a_change_of_slope():
    """A straight line with noise has no bend, although one is fitted."""
    found = [
        change_of_slope(X, 2 * X + rng(k).normal(size=(SEEDS, len(X)))).p_value() < 0.05
        for k in range(R)
    ]
    assert np.mean(found) < 0.05 + SPREAD


def test_a_change_of_slope_is_found_and_covered():
    x = np.arange(5.0)
    truth = np.minimum(x, 2.0)  # slope 1, then 0
    found, covered = [], []
    for k in range(100):
        one = change_of_slope(x, truth + 0.3 * rng(k).normal(size=(SEEDS, 5)))
        found.append(one.p_value() < 0.05 and one.estimate < 0)
        covered.append(one.interval().low <= -1 <= one.interval().high)
    assert np.mean(found) > 0.9
    assert np.mean(covered) > 0.9  # a bend that is missed by a level makes the change smaller
    assert bend_at(x, truth) == 2
    assert fitted_change(x, 3 * x + 1) == pytest.approx(12)


def test_holm_keeps_the_family_wise_error():
    assert holm([]) == [] and holm([0.2]) == [0.2]
    p = [0.01, 0.04, 0.03, 0.005]
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # Holm's own example
    drawn = rng().uniform(size=(4000, 6))
    wrong = np.mean([min(holm(list(row))) < 0.05 for row in drawn])
    assert wrong == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 4000))


def test_an_association_is_scipys_tau_b_with_one_stratum():
    x, y = rng(3).normal(size=(2, 20)).round(1)
    seeds = list(range(4)) * 5
    found = association(x, y, seeds, ["all"] * 20)
    assert found.estimate == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)


def test_a_resample_of_an_association_takes_whole_seeds():
    """The quadratic form is scipy's τ-b of the runs written out."""
    x, y = rng(4).normal(size=(2, 12))
    seeds = np.repeat([0, 1, 2], 4)
    found = association(x, y, list(seeds), ["all"] * 12)
    drawn = []
    for weights, tau in list(zip(st._resamples(3), found.drawn, strict=True))[:20]:
        rows = np.concatenate(
            [
                np.flatnonzero(seeds == s)
                for s, times in enumerate(weights)
                for _ in range(int(times))
            ]
        )
        drawn.append(tau - stats.kendalltau(x[rows], y[rows]).statistic)
    assert np.ptp(drawn) < 1e-12  # all are shifted by the bias, and by nothing else
    assert found.drawn.mean() == pytest.approx(found.estimate, abs=1e-12)


def test_the_size_of_an_association_with_seeds_that_differ():
    """A seed that is good in all its runs is one observation, not five."""
    found = 0
    for k in range(R):
        x, y = rng(k).normal(size=(2, SEEDS, 5)) + 2 * rng(R + k).normal(size=(2, SEEDS, 1))
        seeds = np.repeat(np.arange(SEEDS), 5)
        found += association(x.ravel(), y.ravel(), list(seeds), ["a"] * 40).p_value() < 0.05
    assert found / R < 0.05 + 2 * SPREAD  # eight observations are few for pooled pairs


def test_simpsons_reversal_is_seen():
    """Within each group x and y rise together; between groups they fall."""
    x, y, seeds, groups = [], [], [], []
    for seed in range(SEEDS):
        noise = rng(seed).normal(0, 0.1, (3, 4))
        for group in range(3):
            for k in range(4):
                x.append(10 * group + k)
                y.append(-10 * group + k + noise[group, k])
                seeds.append(seed)
                groups.append(group)
    within, pooled = association(x, y, seeds, groups), association(x, y, seeds, ["all"] * len(x))
    assert within.estimate > 0.5 and pooled.estimate < -0.3
    assert reverses(within, pooled) and not reverses(within, within)
    assert not reverses(None, pooled)
    assert association([1, 1], [2, 3], [0, 1], ["a", "a"]) is None  # x does not differ
