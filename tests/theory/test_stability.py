"""Formulas of stability against runs of the recursions they describe."""

import itertools

import numpy as np
import pytest

from flatlab.errors import UserError
from flatlab.measures.second_moment import LinearisedSGD
from flatlab.theory import stability
from flatlab.theory.gradient_noise import GradientNoise, least_alignment
from flatlab.theory.illustrations import PICTURES
from flatlab.theory.noise_shapes import critical_rate, moment_matrix, noise_strengths
from flatlab.theory.stability_sights import momentum_edge, selection
from flatlab.theory.two_functions import TwoFunctions


@pytest.mark.parametrize("replacement", [False, True])
def test_the_factor_of_the_mean_square_is_the_mean_over_all_batches(replacement):
    a, lr = np.array([0.2, 1.0, 1.4, 4.0]), 0.3
    for B in (1, 2, 3):
        pick = itertools.product if replacement else itertools.combinations
        every = pick(a, repeat=B) if replacement else pick(a, B)
        exact = np.mean([(1 - lr * np.mean(batch)) ** 2 for batch in every])
        formula = stability.mean_square_factor(a.mean(), a.std(), lr, B, 4, replacement)
        assert formula == pytest.approx(exact, rel=1e-12)


def test_the_largest_nonuniformity_is_at_the_edge():
    a = np.linspace(0.1, 3.9, 9)
    s = stability.largest_nonuniformity(a, 0.5, 2, 6)
    np.testing.assert_allclose(stability.mean_square_factor(a, s, 0.5, 2, 6), 1, rtol=1e-12)
    assert np.isnan(stability.largest_nonuniformity(4.1, 0.5, 2, 6))


def test_heavy_ball_leaves_just_above_its_edge():
    for beta in (0.0, 0.5, 0.9):
        edge = stability.edge_of_descent(0.1, beta)
        assert stability.momentum_radius(0.1, beta, 0.999 * edge) < 1 + 1e-9
        assert stability.momentum_radius(0.1, beta, 1.001 * edge) > 1.0001
    found = momentum_edge(4)
    np.testing.assert_allclose(found.found, found.formula, rtol=1e-6)


def test_the_condition_on_the_spread_is_the_growth_of_the_worst_start():
    rng = np.random.default_rng(0)
    hessians = [np.outer(h, h) for h in rng.normal(size=(4, 3))]
    steps = [np.eye(3) - 0.4 * (hessians[i] + hessians[j]) / 2
             for i, j in itertools.combinations(range(4), 2)]  # fmt: skip
    exact = np.linalg.eigvalsh(np.mean([M @ M for M in steps], 0))[-1]
    assert stability.spread_condition(hessians, 0.4, 2) == pytest.approx(exact)


def test_the_bound_of_flatness_and_the_escape_rate_meet_at_one():
    bound = stability.flatness_bound(0.3, 4, 0.5)
    assert stability.escape_rate(0.3, 4, 0.5, bound) == pytest.approx(1)


def test_moments_follow_from_the_definitions():
    rng = np.random.default_rng(1)
    J, e = rng.normal(size=(6, 3)), rng.normal(size=6)
    noise = GradientNoise.of(J, e)
    np.testing.assert_allclose(noise.covariance, np.cov((e[:, None] * J).T, bias=True))
    alpha, beta, mu = noise.factors
    assert alpha * beta == pytest.approx(mu) and mu == noise.mu
    assert noise.mu_uncentred >= noise.gamma
    assert noise.mu < noise.mu_uncentred


@pytest.mark.parametrize("shape", [(9, 3), (4, 7)])
def test_no_parameters_are_less_aligned_than_the_least(shape):
    rng = np.random.default_rng(2)
    J = rng.normal(size=shape)
    least = least_alignment(J)
    found = [GradientNoise.of(J, J @ d).mu for d in rng.normal(size=(3000, shape[1]))]
    assert least <= min(found) + 1e-12
    assert least > 0 or shape[0] < shape[1]
    if shape == (9, 3):  # in three dimensions 3,000 random directions come close
        assert min(found) < 1.1 * least + 0.02


@pytest.mark.parametrize("shape", ["geometry", "isotropic"])
def test_the_critical_rate_is_where_the_moments_stop_shrinking(shape):
    values = np.array([0.3, 1.0, 2.5])
    lr = critical_rate(values, 2, shape)
    for share, sign in ((0.999, -1), (1.001, 1)):
        M = moment_matrix(values, share * lr, 2, shape)
        assert sign * (np.abs(np.linalg.eigvals(M)).max() - 1) > 1e-6


def test_the_moments_are_those_of_simulated_noise():
    """E θθᵀ after a step with Gaussian noise of covariance 2LG/B, from moments by hand."""
    values, lr, B = np.array([1.0, 3.0]), 0.2, 4
    m = np.array([0.5, 2.0])
    twice_loss = values @ m
    expected = (1 - lr * values) ** 2 * m + lr**2 * twice_loss * values / B
    np.testing.assert_allclose(moment_matrix(values, lr, B) @ m, expected)
    np.testing.assert_allclose(noise_strengths(values, "isotropic"), [2, 2])


def test_sgd_without_replacement_of_everything_is_gradient_descent():
    sgd = LinearisedSGD.of_rows(np.random.default_rng(3).normal(size=(5, 4)))
    edge = stability.edge_of_descent(1.0) / sgd.curvatures[-1]
    assert sgd.critical_lr(5).middle == pytest.approx(edge, rel=1e-5)


def test_two_functions_by_hand():
    good = TwoFunctions()
    np.testing.assert_allclose(good.factors(1), [0.86, -1.66])
    np.testing.assert_allclose(good.factors(0), [-0.4, -0.4])
    x = np.array([0.01, 0.01, 1.01, 1.01])
    drawn = np.array([0, 1, 0, 1])
    np.testing.assert_allclose(good.slopes(x, drawn), [0.02, 0.02, 0.002, 0.038])


def test_simulated_stability_agrees_with_the_formula_away_from_the_edge():
    """The share of 4,000 batches is off by 2 %, so pairs within 10 % of the edge are left out."""
    found = selection(1.0, 2, points=8)
    factor = stability.mean_square_factor(found.a, found.s, 1.0, 2, found.n)
    clear = np.abs(factor - 1) > 0.1
    assert clear.sum() > 15
    assert ((found.grows <= 1) == (factor <= 1))[clear].all()


def test_bad_input_is_one_line():
    with pytest.raises(UserError, match="lr must be > 0, got 0"):
        stability.edge_of_descent(0)
    with pytest.raises(UserError, match=r"momentum must be in \[0, 1\)"):
        stability.edge_of_descent(0.1, 1.0)
    with pytest.raises(UserError, match=r"batch_size must be >= 1, got 0"):
        stability.mean_square_factor(1, 1, 0.1, 0, 5)
    with pytest.raises(UserError, match=r"batch_size must be <= n = 5, got 6"):
        stability.largest_nonuniformity(1, 0.1, 6, 5)
    with pytest.raises(UserError, match="H_0 must be symmetric"):
        stability.spread_condition([[[1.0, 1.0], [0.0, 1.0]]], 0.1, 1)
    with pytest.raises(UserError, match="mu must be > 0, got 0"):
        stability.flatness_bound(0.1, 1, 0)
    with pytest.raises(UserError, match=r"minimum of every example, got ‖∇ℓ_i‖ up to 2"):
        stability.require_minimum([[2.0, 0.0]])
    with pytest.raises(UserError, match="a row and e a number for each example"):
        GradientNoise.of(np.ones((2, 2)), np.ones(3))
    with pytest.raises(UserError, match="finite"):
        GradientNoise.of(np.ones((2, 2)), [1.0, np.nan])
    with pytest.raises(UserError, match="eigenvalues must be finite, >= 0"):
        critical_rate([1.0, -1.0], 1)
    with pytest.raises(UserError, match="shape must be 'geometry' or 'isotropic'"):
        moment_matrix([1.0], 0.1, 1, "round")
    with pytest.raises(UserError, match="batch_size must be > 0"):
        critical_rate([1.0], 0)


@pytest.mark.parametrize(
    "name", ["selection", "stability-regions", "two-functions", "noise-shapes"]
)
def test_the_pictures_can_be_drawn(name):
    assert PICTURES[name].source == "wu2025"
    plot = PICTURES[name].make(lambda _: None)
    assert plot.name == name and plot.caption
    plot.figure()
