"""The standard norms are torch's own modules, in outputs and in every gradient.

Float64 and sums of a few dozen terms of order one on both sides: they agree to 1e-12 or so.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from flatlab.models import Init, TwoLayer, build

RNG = np.random.default_rng(4)
N, D, WIDTH = 17, 5, 9
X, X_TEST = RNG.normal(size=(N, D)), RNG.normal(size=(6, D))
NORMS = {"standard_batch": nn.BatchNorm1d, "standard_layer": nn.LayerNorm}
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def random_params(arch):
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=shape) for name, shape in arch.shapes(D).items()}


def of_torch(arch, params):
    """Return torch's modules put together, and their parameters under our names."""
    first = nn.Linear(D, WIDTH, bias=arch.bias)
    norm, last = NORMS[arch.norm](WIDTH), nn.Linear(WIDTH, 1, bias=False)
    named = {"W1": first.weight, "W2": last.weight, "gamma": norm.weight, "beta": norm.bias}
    named |= {"b1": first.bias} if arch.bias else {}
    net = nn.Sequential(first, nn.ReLU(), norm, last).double()
    with torch.no_grad():
        for name, value in params.items():
            named[name].copy_(torch.tensor(value).reshape(named[name].shape))
    return net, named


def gradients(net, named, x, weights):
    for p in named.values():
        p.grad = None
    f = net(torch.tensor(x)).reshape(-1)
    (f @ torch.tensor(weights)).backward()
    return f.detach().numpy(), {name: p.grad.reshape(-1).numpy() for name, p in named.items()}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_outputs_and_gradients_on_the_training_set_are_torchs(norm, bias):
    """BatchNorm1d in training mode, where its batch is the training set: statistics have slopes."""
    arch = TwoLayer(width=WIDTH, norm=norm, bias=bias)
    params, weights = random_params(arch), RNG.normal(size=N)
    ours = build(arch, params, X)
    f, slopes = gradients(ours, dict(ours.named_parameters()), X, weights)
    theirs, named = of_torch(arch, params)
    expected, expected_slopes = gradients(theirs.train(), named, X, weights)
    np.testing.assert_allclose(f, expected, **CLOSE)
    for name, slope in expected_slopes.items():
        np.testing.assert_allclose(slopes[name], slope, err_msg=name, **CLOSE)
        assert np.abs(slope).max() > 1e-3, name


@pytest.mark.parametrize("norm", NORMS)
def test_outputs_elsewhere_are_torchs_in_evaluation_mode(norm):
    arch = TwoLayer(width=WIDTH, norm=norm)
    params = random_params(arch)
    theirs, _ = of_torch(arch, params)
    if norm == "standard_batch":  # running statistics: those of the training set, divisor n
        hidden = theirs[:2](torch.tensor(X)).detach()
        theirs[2].running_mean.copy_(hidden.mean(0))
        theirs[2].running_var.copy_(hidden.var(0, correction=0))
    expected = theirs.eval()(torch.tensor(X_TEST)).detach().numpy()[:, 0]
    f = build(arch, params, X)(torch.tensor(X_TEST)).detach().numpy()
    np.testing.assert_allclose(f, expected, **CLOSE)


def test_standard_batch_norm_is_not_the_simplified_one():
    """Without mean subtraction they would agree up to ε at β = 0."""
    arch = TwoLayer(width=WIDTH, norm="standard_batch")
    params = random_params(arch) | {"beta": np.zeros(WIDTH)}
    f = build(arch, params, X)(torch.tensor(X)).detach().numpy()
    del params["beta"]
    simple = build(TwoLayer(width=WIDTH, norm="batch"), params, X)(torch.tensor(X)).detach().numpy()
    assert abs(f.mean()) < 1e-12 < abs(simple.mean())  # centred over the training set
    assert np.abs(f - simple).max() > 0.1


@pytest.mark.parametrize("norm", NORMS)
def test_the_start_has_small_scale_and_no_shift(norm):
    params = TwoLayer(width=25, norm=norm, init=Init(gamma_scale=2.0)).initial(D, seed=2)
    plain = TwoLayer(width=25).initial(D, seed=2)
    assert (params["gamma"] == 2 / 5).all() and not params["beta"].any()
    assert all((params[name] == plain[name]).all() for name in plain)
