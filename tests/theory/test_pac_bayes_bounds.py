"""PAC-Bayes bounds: by hand, against brute force over posteriors, and what is refused."""

import math

import numpy as np
import pytest

from flatlab.errors import UserError
from flatlab.measures.bounds import gaussian_kl, mcallester_complexity
from flatlab.theory.discrete import divergence
from flatlab.theory.pac_bayes import (
    catoni,
    certified,
    flatness_terms,
    general_gaussian_kl,
    mcallester,
    worst_posterior,
    worst_temperatures,
)


def test_catoni_at_its_best_temperature_is_mcallester_without_the_constant():
    kl, n, delta = 1.3, 50, 0.1
    c = kl + math.log(1 / delta)
    best = math.sqrt(8 * n * c)
    assert catoni(kl, n, delta, best) == pytest.approx(math.sqrt(c / (2 * n)), rel=1e-12)
    assert min(catoni(kl, n, delta, best * f) for f in (0.9, 1.1)) > math.sqrt(c / (2 * n))
    assert mcallester(kl, n, delta) > math.sqrt(c / (2 * n))


def test_the_worst_posterior_is_the_worst_of_a_grid():
    """Over two hypotheses Q is one number: every Q is tried."""
    prior, gaps, n = np.array([0.65, 0.35]), np.array([0.12, -0.1]), 7
    found, Q = worst_posterior(prior, gaps, n)
    q = np.linspace(1e-6, 1 - 1e-6, 20_001)
    kl = q * np.log(q / prior[0]) + (1 - q) * np.log((1 - q) / prior[1])
    mean = q * gaps[0] + (1 - q) * gaps[1]
    tried = 2 * n * np.maximum(mean, 0) ** 2 - kl  # the best λ is 4n E_Q Δ
    assert found == pytest.approx(tried.max(), abs=1e-6)
    assert Q[0] == pytest.approx(q[tried.argmax()], abs=1e-3)
    mean = float(Q @ gaps)
    assert 2 * n * mean**2 - divergence(Q, prior) == pytest.approx(found, abs=1e-6)


def test_many_training_sets_are_searched_as_one_by_one():
    rng = np.random.default_rng(0)
    prior, gaps = rng.dirichlet(np.ones(5)), rng.uniform(-0.5, 0.5, (6, 5))
    values, _ = worst_temperatures(prior, gaps, 9)
    assert values == pytest.approx([worst_posterior(prior, row, 9)[0] for row in gaps], rel=1e-12)
    assert worst_temperatures(prior, -np.abs(gaps), 9)[0] == pytest.approx(0, abs=1e-12)


def test_a_certificate_adds_the_terms_up():
    found = certified([0.1, 0.3], [0.5, 0.5], [0.25, 0.75], 200, 0.05)
    kl = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert (found.empirical, found.kl) == pytest.approx((0.2, kl))
    assert found.bound == pytest.approx(0.2 + mcallester_complexity(kl, 200, 0.05))
    assert certified([0.1, 0.3], [0.5, 0.5], [0.0, 1.0], 200, 0.05).bound == math.inf


@pytest.mark.parametrize("k, n", [(1, 20), (50, 1000), (400, 100), (3000, 50)])
@pytest.mark.parametrize("squared", [0.0, 1e-3, 5.0])
def test_the_terms_of_the_flatness_bound(k, n, squared):
    sigma, delta = 0.1, 0.05
    found = flatness_terms(k, n, squared, sigma, delta)
    prior = math.sqrt(found.prior_variance)
    assert found.kl == pytest.approx(gaussian_kl(k, sigma, prior, squared), rel=1e-9, abs=1e-9)
    level = 6 * delta / (math.pi * found.index) ** 2
    assert found.confidence == pytest.approx(math.log(2 * math.sqrt(n) / level), rel=1e-12)
    proved = math.sqrt((found.kl + found.confidence) / (2 * n)) + 1 / math.sqrt(n)
    assert found.total == pytest.approx(proved, rel=1e-12)
    assert found.rho == pytest.approx(sigma * (math.sqrt(k) + math.sqrt(math.log(n))))
    assert found.per_example <= found.kl / n + 1e-12  # the best prior there is
    assert found.closed_form >= min(1, found.total)


def test_the_levels_of_all_priors_add_up_to_delta():
    delta, n = 0.05, 40
    levels = 6 * delta / (math.pi * np.arange(1, 2 * n + 2)) ** 2
    assert 0.95 * delta < levels.sum() < delta


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: mcallester(1.0, 10, 1.0), r"^delta must lie between 0 and 1, got 1\.0$"),
        (lambda: mcallester(1.0, 10, math.nan), r"^delta must lie between 0 and 1, got nan$"),
        (lambda: mcallester(-1.0, 10, 0.1), r"^kl must be >= 0 and finite, got -1\.0$"),
        (lambda: mcallester(1.0, 0, 0.1), r"^n must be >= 1, got 0$"),
        (lambda: catoni(1.0, 10, 0.1, 0.0), r"^temperature must be > 0 and finite, got 0\.0$"),
        (lambda: certified([0.1, 1.2], [0.5, 0.5], [0.5, 0.5], 9, 0.1),
         r"^losses must lie in \[0, 1\] for this bound, got 1\.2: rescale or clip$"),
        (lambda: certified([0.1, 0.2], [0.5, 0.6], [0.5, 0.5], 9, 0.1),
         r"^posterior must sum to 1, got 1\.1: divide it by its sum$"),
        (lambda: worst_posterior([0.5, 0.5], [0.1, 1.7], 9), r"^gaps must lie in \[-1, 1\], "),
        (lambda: flatness_terms(5, 1, 1.0, 0.1, 0.1), r"^n must be >= 2, got 1$"),
        (lambda: flatness_terms(5, 9, math.nan, 0.1, 0.1), r"^squared_norm must be >= 0 and fin"),
        (lambda: flatness_terms(5, 9, 1.0, -0.1, 0.1), r"^sigma must be > 0 and finite"),
        (lambda: general_gaussian_kl(np.zeros(2), np.array([[1.0, 2.0], [0.0, 1.0]]), np.zeros(2),
                                     np.eye(2)), r"^cov1 must be a symmetric matrix"),
        (lambda: general_gaussian_kl(np.zeros(2), np.eye(2), np.zeros(2), -np.eye(2)),
         r"^cov2 must be positive definite$"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(call, message):
    with pytest.raises(UserError, match=message):
        call()
