"""Norms of the Gauss–Newton matrix: autograd, closed forms, and the constants at n = ∞."""

import math

import numpy as np
import pytest

from flatlab.data import from_arrays
from flatlab.errors import UserError
from flatlab.models import TwoLayer
from flatlab.theory.norm_pictures import PER_EXAMPLE, norm_ratios
from flatlab.theory.pac_bayes_pictures import terms_by_width
from flatlab.theory.solution import Solution
from flatlab.theory.weighted_norms import (
    enough_examples,
    gradients,
    limits,
    mean_relu,
    ratios,
    single_neuron,
    weighted_norm,
)


def sphere(n, d, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x * math.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)


def test_gradients_are_autograds():
    rng = np.random.default_rng(1)
    W1, W2, x = rng.normal(size=(3, 4)), rng.normal(size=3), sphere(6, 4)
    net = Solution(TwoLayer(width=3, bias=False), {"W1": W1, "W2": W2}, from_arrays(x, x[:, 0]))
    ours, theirs = gradients(W1, W2, x), net.gradients()
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, rtol=1e-12)
    G = theirs.T @ theirs / 6
    found = ratios(W1, W2, x)
    assert found.trace == pytest.approx(np.trace(G) / weighted_norm(W1, W2, 4))
    assert found.frobenius == pytest.approx(np.linalg.norm(G) / weighted_norm(W1, W2, 2))
    assert found.operator == pytest.approx(np.linalg.norm(G, 2) / weighted_norm(W1, W2, 1))


@pytest.mark.parametrize("w, a", [(1.0, 1.0), (3.0, 0.1), (0.2, 2.0)])
def test_one_neuron_tends_to_its_closed_form(w, a):
    """On 120,000 points in pairs ±x the sampling error is far below 3 %."""
    d, x = 4, sphere(60_000, 4, seed=2)
    x = np.vstack([x, -x])
    found = ratios(w * np.eye(1, d), np.array([a]), x)
    exact = single_neuron(w, a, d)
    for name in ("trace", "frobenius", "operator"):
        assert getattr(found, name) == pytest.approx(getattr(exact, name), rel=0.03)


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_the_mean_of_a_relu_on_the_sphere(d):
    """Within 5 standard errors."""
    values = np.maximum(sphere(200_000, d, seed=3)[:, 0], 0)
    assert abs(values.mean() - mean_relu(d)) <= 5 * values.std() / math.sqrt(len(values))


@pytest.mark.parametrize("d", [2, 10])
def test_many_neurons_stay_between_the_constants(d):
    """Equal neurons in all directions have nearly the least norms, a single one the largest."""
    W1, low = sphere(60, d) / math.sqrt(d), limits(d)
    spread = ratios(W1, np.full(60, d**-0.25), sphere(4000, d, seed=4))
    for name in ("frobenius", "operator"):
        value = getattr(spread, name)
        assert low[name][0] * 0.95 <= value <= low[name][1]
    assert spread.operator <= 1.2 * low["operator"][0]


def test_enough_examples_is_the_least_number():
    for d in (1, 2, 5, 30):
        for delta in (0.9, 0.3, 0.01):
            brute = next(n for n in range(1, 10_000) if d * math.log(n / delta) <= n)
            assert enough_examples(d, delta) == brute, (d, delta)
    with pytest.raises(UserError, match=r"^delta must lie between 0 and 1, got 1$"):
        enough_examples(3, 1)
    with pytest.raises(UserError, match=r"^q must be >= 0 and finite, got -1$"):
        weighted_norm(np.eye(1), np.ones(1), -1)


def test_the_ratios_in_the_picture_settle():
    found = norm_ratios(d=5, networks=3)
    spread = np.ptp(found["trace"], axis=0)
    assert spread.shape == (len(PER_EXAMPLE),) and spread[-1] < 0.3 * spread[0]
    assert np.abs(found["trace"][:, -1] - 0.5).max() < 0.15


def test_the_terms_in_the_picture_add_up_and_grow():
    found = terms_by_width(d=4, n=100, widths=(4, 400))
    total = found.sharpness + found.confidence + found.dimension  # √(a + b) ≤ √a + √b
    assert np.all(found.bound <= total + 1e-12) and np.all(found.gap <= found.bound)
    assert found.k.tolist() == [20, 2000]
    assert found.dimension[1] > 2 * found.dimension[0] and found.bound[1] > 1
