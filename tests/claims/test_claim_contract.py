"""The lines of evidence: which values they accept and which they refuse."""

import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from flatlab.claims.contract import Claim, Trial, by_experiment, claim, printed
from flatlab.claims.lines import (
    at_least,
    at_most,
    equal,
    estimate,
    frequency,
    near_zero,
    slope,
)


def _word(*lines):
    made = claim("made.up", "nowhere", "identity", "says", as_printed="wrong")(lambda trial: lines)
    assert isinstance(made, Claim)
    return made.verify(Trial()).word


def test_a_printed_line_must_be_clearly_wrong():
    good = equal("right", 1, 1)
    assert _word(good, printed(equal("wrong", 2, 1))) == "holds corrected"
    assert _word(good, printed(equal("not a number", math.nan, 1))) == "fails"
    assert _word(good, printed(equal("rounding", 1 + 1e-9, 1, rel=1e-12))) == "fails"
    assert _word(good, printed(equal("right after all", 1, 1))) == "fails"


def test_a_slope_on_the_wrong_side_fails():
    assert not slope("rises", [12, 20, 36, 60], [0.3, 0.1, 0.9, 0.5], at_most=-1.0).holds
    assert slope("falls", [1, 2, 4, 8], [8, 4, 2, 1], at_most=-0.9).holds
    with pytest.raises(ValueError, match="three points"):
        slope("two points", [1, 2], [1, 1000], at_most=-5)


def test_a_frequency_is_contradicted_or_not():
    assert frequency("few", 3, 100, at_most=0.05).holds
    assert frequency("by chance", 8, 100, at_most=0.05).holds
    assert not frequency("many", 20, 100, at_most=0.05).holds
    assert not frequency("too few", 80, 100, at_least=0.95).holds


def test_a_frequency_fails_only_where_a_bound_has_a_chance_of_one_in_two_thousand():
    """Between the 95 % interval, which is shown, and the 99.9 % one, which decides, it holds."""
    for hits in range(101):
        high = frequency("at most", hits, 100, at_most=0.05)
        assert high.holds == (stats.binom.sf(hits - 1, 100, 0.05) > 0.0005)
        assert (high.low > 0.05) == (stats.binom.sf(hits - 1, 100, 0.05) < 0.025)
        low = frequency("at least", hits, 100, at_least=0.95)
        assert low.holds == (stats.binom.cdf(hits, 100, 0.95) > 0.0005)
    chance = frequency("beyond the 95 % interval", 11, 100, at_most=0.05)
    assert chance.holds and chance.low > 0.05


def test_an_estimate_has_the_standard_error_of_scipy():
    values = [0.3, 0.1, 0.25, 0.9]
    found = estimate("a mean", values, 0.0)
    expected = stats.norm.interval(0.95, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)
    # 4 standard errors decide.
    for sigmas, holds in ((3.99, True), (4.01, False)):
        far = np.mean(values) + sigmas * stats.sem(values)
        assert estimate("a mean", values, far).holds is holds


def test_of_many_errors_the_largest_must_be_near_zero():
    assert near_zero("one, with its sign", -0.1, 0.2).measured == -0.1
    many = near_zero("many", [[0.1, -0.3], [0.0, 0.2]], 0.2)
    assert many.measured == 0.3 and not many.holds
    assert not near_zero("not a number", [0.0, math.nan]).holds


def test_the_experiment_of_the_same_name_decides():
    assert by_experiment("made.fig1", "nowhere", "says").experiment == "made/fig1"
    assert (
        by_experiment("made.fig1", "nowhere", "says", "beyond/depth").experiment == "beyond/depth"
    )


@pytest.mark.parametrize(
    "line, should, tolerance",
    [
        (equal("r", 2.33898, 2.35961, rel=0.03), "= 2.35961 ± 0.071", 0.03 * 2.35961),
        (equal("r", 1.0, 1.1, abs=0.2), "= 1.1 ± 0.2", 0.2),
        (equal("r", 3.0, 1.0), "= 1 ± 3e-09", 3e-9),
        (estimate("mean", [0.9, 1.0, 1.1], 1.0), "= 1 ± 0.23", 4 * 0.1 / 3**0.5),
        (slope("s", [1, 2, 4], [1, 2, 4.1], near=1.0, within=0.3), "= 1 ± 0.3", 0.3),
        (at_least("x", 2.0, 1.0), "≥ 1", 1e-10),
        (at_least("x", 0.99, 1.0, slack=0.05), "≥ 1 − 0.05", 0.05),
        (at_most("x", 1.01, 1.0, slack=0.05), "≤ 1 + 0.05", 0.05),
        (at_most("x", 2.0, 1.0, slack=0.05), "≤ 1", 0.05),
        (frequency("f", 6, 100, at_most=0.05), "≤ 0.05 + 0.05", 0.05),
    ],
)
def test_a_line_says_how_far_off_still_holds(line, should, tolerance):
    """No equality is printed without its tolerance, and no bound that is exceeded without it."""
    assert line.should == should
    assert line.tolerance == pytest.approx(tolerance, rel=0.05)
    assert asdict(line)["tolerance"] == line.tolerance  # with --json
