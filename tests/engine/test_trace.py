"""The trace in closed form is that of the dense Hessian, and a logged row means what it says.

The tolerance 1e-9 is relative: both sides are float64 sums of a few hundred products, so agreement
is to about 1e-13; a wrong term would show at order one.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

import oracle
from flatlab.data import Dataset
from flatlab.engine import evaluate, predict
from flatlab.engine.evaluate import outputs_and_curvature
from flatlab.losses import Loss
from flatlab.models import Deep, TwoLayer
from thinning import thinned

TOLERANCE = 1e-9
N, D = 6, 6  # a linear network without bias can interpolate at most D points
RNG = np.random.default_rng(5)
DATA = Dataset(
    RNG.normal(size=(N, D)),
    np.array([1.0, -1, 1, 1, -1, -1]),
    RNG.normal(size=(600, D)),  # more rows than `predict` takes at a time
    RNG.choice([-1.0, 1.0], 600),
    name="gauss",
    seed=5,
    spec={},
)

ARCHITECTURES = (
    {
        f"{norm}-{activation}-{'bias' if bias else 'nobias'}": TwoLayer(
            width=11, norm=norm, activation=activation, bias=bias
        )
        for norm, activation, bias in itertools.product(
            (None, "layer", "batch", "standard_layer", "standard_batch"),
            ("relu", "softplus", "tanh", "identity"),
            (True, False),
        )
    }
    | {
        f"one-γ-{activation}": TwoLayer(
            width=11, norm="batch", activation=activation, gamma="shared"
        )
        for activation in ("relu", "tanh")
    }
    | {
        f"deep-{depth}-{'bias' if bias else 'nobias'}": Deep(depth=depth, width=12, bias_first=bias)
        for depth, bias in itertools.product((2, 3, 4), (True, False))
    }
)

LOSSES = ("mse", "logistic", "truncated_mse")


def close(got, expected):
    """Compare relative to the largest expected entry: single entries may cancel."""
    return np.max(np.abs(got - expected)) <= TOLERANCE * np.max(np.abs(expected))


@functools.cache
def random_params(name):
    """Weights of order one everywhere; outputs of order three, so that residuals spread."""
    arch = ARCHITECTURES[name]
    rng = np.random.default_rng(11)
    params = {key: rng.normal(size=shape) for key, shape in arch.shapes(D).items()}
    scale = 3 / np.std(oracle.outputs(arch, params, DATA))
    params[arch.last_layer] = params[arch.last_layer] * scale
    return params


def interpolating(name, targets):
    """Solve for the output weights: f is linear in them, their features are columns of ∇f."""
    arch, params = ARCHITECTURES[name], dict(random_params(name))
    last = arch.last_layer
    features = oracle.jacobian(arch, params, DATA)[:, oracle.columns_of(params, last)]
    params[last] = np.linalg.lstsq(features, targets, rcond=None)[0]
    return params


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_outputs_and_curvature_equal_the_oracle(name):
    arch, params = ARCHITECTURES[name], random_params(name)
    f, squared, second = outputs_and_curvature(arch, params, DATA.x_train)
    assert close(f, oracle.outputs(arch, params, DATA))
    assert close(squared, (oracle.jacobian(arch, params, DATA) ** 2).sum(1))
    expected = np.trace(oracle.output_hessians(arch, params, DATA), axis1=1, axis2=2)
    smooth_or_normalised = isinstance(arch, TwoLayer) and (
        arch.norm is not None or arch.activation in ("softplus", "tanh")
    )
    if smooth_or_normalised:
        assert close(second, expected)
    else:  # piecewise linear in each layer: the oracle's diagonal is exactly zero, and so is ours
        assert not expected.any()
        assert not second.any()


@pytest.mark.parametrize("name, loss_name", thinned(itertools.product(ARCHITECTURES, LOSSES)))
def test_trace_equals_the_oracle_off_interpolation(name, loss_name):
    arch, params = ARCHITECTURES[name], random_params(name)
    residual = np.abs(oracle.outputs(arch, params, DATA) - DATA.y_train)
    # Two points inside the cutoff, the others bent or flat.
    cutoff = {"cutoff": float(np.sort(residual)[:3] @ [0, 0.5, 0.5])}
    loss = Loss(loss_name, **(cutoff if loss_name == "truncated_mse" else {}))
    row = evaluate(arch, params, loss, DATA)
    assert row["train_loss"] > 0.01
    H = oracle.loss_hessian(arch, params, loss, DATA)
    G = oracle.ggn(arch, params, loss, DATA)
    # Relative to the trace norm: the truncated loss's ℓ'' of both signs may cancel in the trace.
    scale = np.abs(np.diag(H)).sum() + np.abs(np.diag(G)).sum()
    assert abs(row["trace"] - np.trace(H)) <= TOLERANCE * scale
    assert abs(row["trace_ggn"] - np.trace(G)) <= TOLERANCE * scale


@pytest.mark.parametrize("name, loss_name", thinned(itertools.product(ARCHITECTURES, LOSSES)))
def test_trace_equals_the_oracle_on_interpolation(name, loss_name):
    arch, loss = ARCHITECTURES[name], Loss(loss_name)
    # Every example at its own minimum of ℓ: ±1, or ±log((1 − p)/p) for the smoothed logistic.
    target = DATA.y_train * (math.log(0.8 / 0.2) if loss_name == "logistic" else 1.0)
    params = interpolating(name, target)
    f = outputs_and_curvature(arch, params, DATA.x_train)[0]
    assert np.abs(f - target).max() < 1e-9  # least squares in float64, condition up to 1e5
    row = evaluate(arch, params, loss, DATA)
    H = oracle.loss_hessian(arch, params, loss, DATA)
    assert row["trace"] == pytest.approx(np.trace(H), rel=TOLERANCE)
    # ℓ' = 0, so the Hessian is its Gauss–Newton part. Residuals of 1e-10 are amplified by
    # Tr ∇²f/‖∇f‖² of at most a few thousand.
    assert row["trace_ggn"] == pytest.approx(np.trace(H), rel=1e-6)
    minimum = 0.0 if loss_name != "logistic" else -0.8 * math.log(0.8) - 0.2 * math.log(0.2)
    assert row["train_loss"] == pytest.approx(minimum, abs=1e-15)


@pytest.mark.parametrize("activation", ["relu", "softplus", "tanh", "identity"])
def test_sim_ln_inside_its_epsilon_ball(activation):
    """Some examples inside the ball, where the network is linear in u, some outside."""
    plain = TwoLayer(width=11, activation=activation)
    params = {k: p for k, p in random_params(f"layer-{activation}-bias").items()}
    h = DATA.x_train @ params["W1"].T + params["b1"]
    u = {
        "relu": np.maximum(h, 0),
        "softplus": np.logaddexp(0, h),
        "tanh": np.tanh(h),
        "identity": h,
    }[activation]
    sizes = np.sort(np.linalg.norm(u, axis=1))
    for inside, epsilon in ((N, 2 * sizes[-1]), (3, (sizes[2] + sizes[3]) / 2)):
        arch = TwoLayer(width=11, norm="layer", activation=activation, ln_epsilon=float(epsilon))
        assert (np.linalg.norm(u, axis=1) <= epsilon).sum() == inside
        f, squared, second = outputs_and_curvature(arch, params, DATA.x_train)
        assert close(f, oracle.outputs(arch, params, DATA))
        assert close(squared, (oracle.jacobian(arch, params, DATA) ** 2).sum(1))
        expected = np.trace(oracle.output_hessians(arch, params, DATA), axis1=1, axis2=2)
        assert np.abs(second - expected).max() <= TOLERANCE * max(np.abs(expected).max(), 1)
        assert close(f, predict(arch, params, DATA.x_train, DATA.x_train))
        row = evaluate(arch, params, Loss("mse"), DATA)
        H = oracle.loss_hessian(arch, params, Loss("mse"), DATA)
        assert row["trace"] == pytest.approx(np.trace(H), rel=TOLERANCE)
        if inside == N:  # f = W2·u/ε: the plain network scaled
            assert close(f, outputs_and_curvature(plain, params, DATA.x_train)[0] / epsilon)


def test_sim_bn_with_a_neuron_dead_on_the_training_set():
    """It outputs zero everywhere, also where it is active on the test set, and has no curvature."""
    arch = ARCHITECTURES["batch-relu-bias"]
    params = {k: p.copy() for k, p in random_params("batch-relu-bias").items()}
    largest = (DATA.x_train @ params["W1"][3]).max()
    params["b1"][3] = -largest - 0.1
    assert (DATA.x_test @ params["W1"][3] + params["b1"][3]).max() > 0
    f, squared, second = outputs_and_curvature(arch, params, DATA.x_train)
    assert close(f, oracle.outputs(arch, params, DATA))
    assert close(squared, (oracle.jacobian(arch, params, DATA) ** 2).sum(1))
    expected = np.trace(oracle.output_hessians(arch, params, DATA), axis1=1, axis2=2)
    assert close(second, expected)
    for loss in (Loss("mse"), Loss("logistic")):
        row = evaluate(arch, params, loss, DATA)
        H = oracle.loss_hessian(arch, params, loss, DATA)
        assert row["trace"] == pytest.approx(np.trace(H), rel=TOLERANCE)
    without = {k: np.delete(p, 3, axis=0) for k, p in params.items()}
    smaller = TwoLayer(width=10, norm="batch")
    test = predict(arch, params, DATA.x_train, DATA.x_test)
    assert close(test, predict(smaller, without, DATA.x_train, DATA.x_test))
    assert close(test, oracle.outputs(arch, params, DATA, DATA.x_test))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_predict_equals_the_torch_module(name):
    arch, params = ARCHITECTURES[name], random_params(name)
    test = predict(arch, params, DATA.x_train, DATA.x_test)
    assert test.dtype == np.float64
    assert close(test, oracle.outputs(arch, params, DATA, DATA.x_test))
    train = predict(arch, params, DATA.x_train, DATA.x_train)
    assert close(train, outputs_and_curvature(arch, params, DATA.x_train)[0])
    row = evaluate(arch, params, Loss("mse"), DATA)
    assert row["test_loss"] == pytest.approx(((test - DATA.y_test) ** 2).mean(), rel=TOLERANCE)
    assert row["test_error"] == (np.sign(test) != DATA.y_test).mean()


def test_predict_answers_in_the_dtype_of_the_parameters():
    name = "layer-tanh-bias"
    arch, params = ARCHITECTURES[name], random_params(name)
    single = {k: p.astype(np.float32) for k, p in params.items()}
    f = predict(arch, single, DATA.x_train, DATA.x_test)
    assert f.dtype == np.float32
    # float32 rounding 6e-8 over sums of a dozen terms of either sign.
    np.testing.assert_allclose(f, oracle.outputs(arch, params, DATA, DATA.x_test), atol=2e-5)


def some_data(x_test, y_test):
    return Dataset(DATA.x_train, DATA.y_train, x_test, y_test, name="", seed=0, spec={})


def test_an_output_of_zero_is_an_error():
    """One neuron that is off on three of the five test points: f = 0 there, whatever the label."""
    arch = TwoLayer(width=1, bias=False)
    params = {"W1": np.eye(1, D), "W2": np.ones(1)}
    x = np.zeros((5, D))
    x[:, 0] = [1, 2, -1, 0, -3]  # f = 1, 2, 0, 0, 0
    for y, expected in (([1, 1, 1, 1, 1], 0.6), ([1, 1, -1, -1, -1], 0.6), ([-1] * 5, 1.0)):
        row = evaluate(arch, params, Loss("mse"), some_data(x, np.array(y, float)))
        assert row["test_error"] == expected


def test_no_test_error_for_real_labels():
    params = random_params("None-relu-bias")
    real = some_data(DATA.x_test[:4], np.array([1.0, -1.0, 0.5, 1.0]))
    row = evaluate(ARCHITECTURES["None-relu-bias"], params, Loss("mse"), real)
    assert list(row) == ["train_loss", "train_error", "trace", "trace_ggn", "test_loss"]


def test_no_test_columns_without_a_test_set():
    params = random_params("None-relu-bias")
    empty = some_data(np.empty((0, D)), np.empty(0))
    row = evaluate(ARCHITECTURES["None-relu-bias"], params, Loss("mse"), empty)
    assert list(row) == ["train_loss", "train_error", "trace", "trace_ggn"]
