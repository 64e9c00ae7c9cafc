"""Floors against the trace computed by torch from per-example gradients, in float64.

Labels are the network's own outputs or exactly fitted, so every network here interpolates and
Tr ∇²L = (2/n) Σ ‖∇f(x_i)‖²; one test checks that identity with the dense Hessian.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from flatlab.data import ball, complete, from_arrays, xor
from flatlab.errors import UserError
from flatlab.losses import Loss
from flatlab.theory import (
    batch_norm_xor,
    bias_floor,
    layer_norm_floor,
    logistic_floor,
    no_bias_floor,
)

CORNERS = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]], dtype=torch.float64)
SIGNS = CORNERS.prod(dim=1)


def tensor(array):
    return torch.tensor(np.array(array))


def trace(f, params, x):
    """(2/n) Σ_i ‖∇_θ f(x_i)‖² by autograd, `f` mapping (params, x) to the n outputs."""
    jacobians = torch.autograd.functional.jacobian(lambda *p: f(p, x), tuple(params))
    return 2 / len(x) * sum(float((j**2).sum()) for j in jacobians)


def plain(params, x):
    W1, W2 = params
    return torch.relu(x @ W1.T) @ W2


def biased(params, x):
    W1, b1, *middle, W_last = params
    hidden = torch.relu(x @ W1.T + b1)
    for W in middle:
        hidden = torch.relu(hidden @ W.T)
    return hidden @ W_last


def layer_normed(epsilon):
    def f(params, x):
        W1, b1, W2 = params
        u = torch.relu(x @ W1.T + b1)
        return (u / u.norm(dim=1, keepdim=True).clamp(min=epsilon)) @ W2

    return f


def batch_normed(params, x):
    W1, b1, gamma, W2 = params
    u = torch.relu(x @ W1.T + b1)
    return (gamma * u / u.square().mean(dim=0).sqrt()) @ W2


def xor_first_layer(d, scale):
    """Four neurons scale·(c·(x1, x2)) with bias −scale: `scale` on their own corner, else off."""
    W1 = torch.zeros(4, d, dtype=torch.float64)
    W1[:, :2] = scale * CORNERS
    return W1, torch.full((4,), -float(scale), dtype=torch.float64)


@pytest.mark.parametrize("d", [2, 6, 10, 30])
def test_closed_forms_on_the_cube(d):
    data = xor(d=d, n=50, seed=1, n_test=0)
    assert no_bias_floor(data) == pytest.approx(4 * math.sqrt(d), rel=1e-14)
    assert bias_floor(data) == pytest.approx(4 * math.sqrt(d + 1), rel=1e-14)
    assert bias_floor(data, depth=3) == pytest.approx(6 * (d + 1) ** (1 / 3), rel=1e-14)
    assert layer_norm_floor(data, epsilon=1e-3) == 2
    big = 100.0
    expected = 4 * math.sqrt(d + 1) / big
    assert layer_norm_floor(data, epsilon=big) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("d", [6, 10, 30])
def test_the_four_neuron_network_reaches_the_bias_floor(d):
    data = xor(d=d, n=40, n_test=0)
    x = tensor(data.x_train)
    traces = {}
    for r in ((d + 1) ** 0.25, (d**2 + 1) ** 0.25):  # the right scale and the printed one
        params = (*xor_first_layer(d, r), SIGNS / r)
        np.testing.assert_allclose(biased(params, x), data.y_train, atol=1e-14)
        traces[r] = trace(biased, params, x)
        assert traces[r] == pytest.approx(2 * (r**2 + (d + 1) / r**2), rel=1e-13)
    right, printed = traces.values()
    assert right == pytest.approx(bias_floor(data), rel=1e-13)
    assert printed > 1.3 * bias_floor(data)


def test_the_trace_from_gradients_is_the_trace_of_the_dense_hessian():
    data = xor(d=4, n=12, n_test=0)
    x, y = tensor(data.x_train), tensor(data.y_train)
    W1, b1 = xor_first_layer(4, 5**0.25)
    params = (W1, b1, SIGNS / 5**0.25)
    sizes, shapes = [p.numel() for p in params], [p.shape for p in params]

    def loss(theta):
        parts = [p.reshape(s) for p, s in zip(theta.split(sizes), shapes, strict=True)]
        return (biased(parts, x) - y).square().mean()

    flat = torch.cat([p.flatten() for p in params])
    hessian = torch.autograd.functional.hessian(loss, flat)
    assert float(hessian.trace()) == pytest.approx(bias_floor(data), rel=1e-12)


def test_the_no_bias_floor_is_reached_on_kinks_only():
    """Hidden values r·c·(x1, x2) vanish on two quadrants; torch's relu'(0) = 0 gives 4√d."""
    data = xor(d=30, n=40, n_test=0)
    x = tensor(data.x_train)
    W1, _ = xor_first_layer(30, 0.5 * 30**0.25)
    W2 = SIGNS / 30**0.25
    np.testing.assert_allclose(plain((W1, W2), x), data.y_train, atol=1e-14)
    assert trace(plain, (W1, W2), x) == pytest.approx(no_bias_floor(data), rel=1e-13)
    # A move of 1e-9 in the first two weights takes every point off the kinks.
    moved = W1.clone()
    moved[:, 0] *= 1 + 1e-9
    assert trace(plain, (moved, W2), x) > 1.1 * no_bias_floor(data)


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_a_chain_of_balanced_neurons_reaches_the_floor_at_one_example(depth):
    data = from_arrays([[0.3, -1.2, 2.0]], [-1.7])
    y, x = 1.7, tensor(data.x_train)
    norm = float((x.square().sum() + 1).sqrt())
    w = (y / norm) ** (1 / depth)  # every layer has the same gradient norm
    W1, b1 = w * x / norm, torch.tensor([w / norm], dtype=torch.float64)
    middle = [torch.tensor([[w]], dtype=torch.float64)] * (depth - 2)
    params = (W1, b1, *middle, torch.tensor([-w], dtype=torch.float64))
    assert float(biased(params, x)) == pytest.approx(-y, rel=1e-13)
    assert trace(biased, params, x) == pytest.approx(bias_floor(data, depth), rel=1e-13)


def random_parameters(shapes, seed):
    rng = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*s, generator=rng, dtype=torch.float64) for s in shapes)


@pytest.mark.parametrize("seed", range(10))
def test_no_random_interpolator_is_below_its_floor(seed):
    x = ball(d=4, n=15, seed=seed, n_test=0).x_train
    m = 6
    cases = [
        (plain, [(m, 4), (m,)], no_bias_floor),
        (biased, [(m, 4), (m,), (m,)], bias_floor),
        (biased, [(m, 4), (m,), (m, m), (m,)], lambda data: bias_floor(data, 3)),
        (biased, [(m, 4), (m,), (m, m), (m, m), (m,)], lambda data: bias_floor(data, 4)),
    ]
    for epsilon in (0.1, 5.0, 50.0):
        floor = lambda data, epsilon=epsilon: layer_norm_floor(data, epsilon)  # noqa: E731
        cases.append((layer_normed(epsilon), [(m, 4), (m,), (m,)], floor))
    for f, shapes, floor in cases:
        params = random_parameters(shapes, seed)
        outputs = f(params, tensor(x))
        data = from_arrays(x, outputs.numpy())
        assert 0 < floor(data) <= trace(f, params, tensor(x)) * (1 + 1e-12)


def test_both_branches_of_the_layer_norm_floor_are_reached():
    data = from_arrays([[0.3, -1.2, 2.0]], [0.5])
    x, y = tensor(data.x_train), 0.5
    norm = float((x.square().sum() + 1).sqrt())
    direction, offset = x / norm, torch.ones(1, dtype=torch.float64) / norm

    def params(hidden, w2):
        W1, b1 = hidden / norm * direction, hidden / norm * offset
        return W1, b1, torch.tensor([w2], dtype=torch.float64)

    epsilon = 4 * y * norm  # (2/ε)‖x'‖|y| = 1/2: the plain branch is flatter
    hidden = math.sqrt(y * epsilon * norm)  # ∂W2 and ∂W1 have equal norms
    theta = params(hidden, y * epsilon / hidden)
    assert hidden < epsilon
    assert layer_norm_floor(data, epsilon) == pytest.approx(1, rel=1e-14)
    assert trace(layer_normed(epsilon), theta, x) == pytest.approx(1, rel=1e-13)

    epsilon = 0.1 * y * norm  # (2/ε)‖x'‖|y| = 20: normalise
    theta = params(1e4, y)
    assert layer_norm_floor(data, epsilon) == 2
    # One neuron normalised by itself is constant in W1: only ∂W2 = 1 remains.
    assert trace(layer_normed(epsilon), theta, x) == pytest.approx(2, rel=1e-12)


def test_layer_norm_floor_with_a_zero_label():
    data = from_arrays([[1.0], [2.0], [3.0]], [1.0, 0.0, -1.0])
    assert layer_norm_floor(data, epsilon=1e-3) == pytest.approx(4 / 3, rel=1e-15)


BATCH_NORM_SETS = {
    "complete": lambda: complete(d=6, s=8, n_test=0),
    "sampled": lambda: xor(d=30, n=100, seed=2, n_test=0),
    "uneven": lambda: from_arrays(
        [[1, 1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1], [-1, -1, -1], [1, 1, 1]],
        [1, 1, -1, -1, 1, 1],
    ),
}


@pytest.mark.parametrize("make", BATCH_NORM_SETS.values(), ids=BATCH_NORM_SETS.keys())
def test_the_batch_norm_value_is_the_limit_of_a_growing_first_layer(make):
    data = make()
    x = tensor(data.x_train)
    corners = (x[:, None, :2] == CORNERS).all(dim=2)
    root = corners.double().mean(dim=0).sqrt()  # √p_q
    traces = []
    for scale in (1, 1e2, 1e4):
        params = (*xor_first_layer(data.d, scale), root.sqrt(), SIGNS * root.sqrt())
        np.testing.assert_allclose(batch_normed(params, x), data.y_train, atol=1e-12)
        traces.append(trace(batch_normed, params, x))
    floor = batch_norm_xor(data)
    excess = [value - floor for value in traces]
    assert excess[0] > 0.1
    assert excess[1] == pytest.approx(excess[0] / 1e4, rel=1e-6)  # the excess is c/K²
    assert traces[2] == pytest.approx(floor, rel=1e-7)
    unbalanced = (*xor_first_layer(data.d, 1e4), 2 * root.sqrt(), SIGNS * root.sqrt() / 2)
    assert trace(batch_normed, unbalanced, x) == pytest.approx(floor * (4 + 1 / 4) / 2, rel=1e-7)


def test_batch_norm_value_is_eight_when_quadrants_are_equal_and_less_otherwise():
    assert batch_norm_xor(BATCH_NORM_SETS["complete"]()) == 8
    sampled = batch_norm_xor(BATCH_NORM_SETS["sampled"]())
    assert 7 < sampled < 8  # √ is concave: equal quadrants are the maximum
    assert batch_norm_xor(from_arrays([[1, 1]], [1])) == 4


@pytest.mark.parametrize(
    "data",
    [
        from_arrays([[1.0]], [1.0], name="other"),
        from_arrays([[1.0, 0.5]], [0.5], name="other"),
        from_arrays([[1.0, -1.0]], [1.0], name="other"),
    ],
    ids=["one coordinate", "off the corners", "wrong label"],
)
def test_batch_norm_value_needs_xor(data):
    with pytest.raises(UserError) as caught:
        batch_norm_xor(data)
    assert str(caught.value) == (
        "batch_norm_xor needs x1, x2 in {-1, 1} and y = x1*x2, unlike 'other'"
    )


@pytest.mark.parametrize("depth", [1, 0, -2, 2.5, True])
def test_depth_is_checked(depth):
    with pytest.raises(UserError) as caught:
        bias_floor(xor(n_test=0), depth=depth)
    allowed = ">= 2" if type(depth) is int else "a whole number"
    assert str(caught.value) == f"depth must be {allowed}, got {depth!r}"


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, "a"])
def test_epsilon_is_checked(epsilon):
    with pytest.raises(UserError) as caught:
        layer_norm_floor(xor(n_test=0), epsilon)
    assert str(caught.value) == f"epsilon must be > 0 and finite, got {epsilon!r}"


def test_the_logistic_floor_is_attained_by_the_rescaled_xor_network():
    from flatlab.theory.constructions import four_neurons

    data, p = xor(d=30, n=40, seed=0), 0.2
    gamma = math.log((1 - p) / p)
    assert logistic_floor(data, p) == pytest.approx(p * (1 - p) * 2 * gamma * math.sqrt(31))
    made = four_neurons(data)
    root = math.sqrt(gamma)
    scaled = made.with_params(**{name: root * value for name, value in made.params.items()})
    trace = np.trace(scaled.hessian(Loss("logistic", smoothing=p)))
    assert trace == pytest.approx(logistic_floor(data, p), rel=1e-9)
    layer = logistic_floor(data, p, lambda d: layer_norm_floor(d, 1e-3))
    assert layer == pytest.approx(p * (1 - p))


@pytest.mark.parametrize("smoothing", [0.0, 0.5, -1.0])
def test_the_logistic_floor_refuses_other_smoothing(smoothing):
    with pytest.raises(UserError, match="smoothing"):
        logistic_floor(xor(d=4, n=4, seed=0), smoothing)
