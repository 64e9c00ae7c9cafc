"""The lines of evidence: which values they accept and which they refuse."""

import math

import pytest

from flatlab.claims.contract import Claim, Trial, claim, equal, frequency, printed, slope


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
