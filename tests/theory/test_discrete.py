"""Distributions on finitely many points: closed forms, scipy, and what is refused."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from flatlab.errors import UserError
from flatlab.theory.discrete import divergence, free_energy, gibbs, log_mean_exp

PRIOR, V = np.array([0.2, 0.5, 0.3]), np.array([1.0, -2.0, 0.5])


def test_the_divergence_is_scipys():
    q = np.array([0.6, 0.1, 0.3])
    assert divergence(PRIOR, q) == pytest.approx(stats.entropy(PRIOR, q), rel=1e-12)
    assert divergence([0.0, 1.0], [0.5, 0.5]) == pytest.approx(math.log(2))


def test_the_maximum_of_donsker_and_varadhan_is_found_by_a_search_too():
    def lost(z):
        p = np.exp(z) / np.exp(z).sum()
        return -free_energy(p, PRIOR, V)

    found = optimize.minimize(lost, np.zeros(3), method="Nelder-Mead",
                              options={"xatol": 1e-10, "fatol": 1e-14})  # fmt: skip
    assert -found.fun == pytest.approx(math.log(PRIOR @ np.exp(V)), rel=1e-10)
    reached = np.exp(found.x) / np.exp(found.x).sum()
    np.testing.assert_allclose(reached, gibbs(PRIOR, V), atol=1e-5)  # the top is flat


def test_large_energies_do_not_overflow():
    assert log_mean_exp([0.5, 0.5], [2000.0, 0.0]) == pytest.approx(2000 - math.log(2))
    assert gibbs([0.0, 1.0], [500.0, 0.0]).tolist() == [0.0, 1.0]
    assert free_energy([1.0, 0.0], [0.0, 1.0], [5.0, 0.0]) == -math.inf


@pytest.mark.parametrize(
    "given, message",
    [
        ([0.5, 0.4], r"^prior must sum to 1, got 0\.9: divide it by its sum$"),
        ([1.5, -0.5], r"^prior must have probabilities >= 0, got -0\.5$"),
        ([math.nan, 1.0], r"^prior must be finite, got nan$"),
        ([[0.5, 0.5]], r"^prior must be numbers in a row, got shape \(1, 2\)$"),
        ([], r"^prior must be numbers in a row, got shape \(0,\)$"),
        (["a", "b"], r"^prior must be numbers in a row$"),
    ],
)
def test_what_is_no_distribution_is_refused(given, message):
    with pytest.raises(UserError, match=message):
        log_mean_exp(given, [0.0, 0.0])


def test_energies_and_distributions_must_have_one_length():
    with pytest.raises(UserError, match=r"^energy must have 3 numbers, got 2$"):
        gibbs(PRIOR, [0.0, 1.0])
    with pytest.raises(UserError, match=r"^q must have 3 numbers, got 2$"):
        divergence(PRIOR, [0.5, 0.5])
