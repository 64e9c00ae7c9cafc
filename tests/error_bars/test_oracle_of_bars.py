"""The oracle itself, against finite differences and against its form for wide networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from . import losses
from .oracle import Oracle
from .problems import Problem, draw
from .wide import Wide


@pytest.mark.parametrize("seed", [2, 6, 18, 25, 35, 41, 50])
def test_the_hessian_is_the_slope_of_the_gradient(seed: int) -> None:
    """Tied weights, groups, BatchNorm in each mode, attention, convolution."""
    oracle = Oracle(draw(seed))
    v = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, oracle.size)))
    step = 1e-5 / v.norm(dim=1, keepdim=True)
    slopes = [oracle.slopes_at(sign * step * v)[1] for sign in (1, -1)]
    near = (slopes[0] - slopes[1]) / (2 * step)
    true = v @ torch.from_numpy(oracle.matrix("hessian"))
    # Central differences are right to step² and to rounding over step, both 1e-10.
    assert float((near - true).norm() / true.norm()) < 1e-6


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_the_wide_form_is_the_dense_one(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        act = {"relu": nn.ReLU, "tanh": nn.Tanh}[name]
        layers = [nn.Linear(5, 6), act(), nn.Linear(6, 7), act(), nn.Linear(7, 3)]
        model, x = nn.Sequential(*layers).double(), torch.randn(9, 5, dtype=torch.float64)
    y = torch.arange(9) % 3
    given = Problem(
        1, model, nn.CrossEntropyLoss(), losses._cross_entropy(0.0), x, y,
        {"mode": "eval", "reference": model.state_dict()}, (), name,
    )  # fmt: skip
    dense, wide = Oracle(given), Wide(given)
    block = dense.blocks(("2",))[0]
    for kind in ("ggn", "fisher", "gram"):
        np.testing.assert_allclose(wide.eigenvalues(kind), dense.eigenvalues(kind), atol=1e-12)
        np.testing.assert_allclose(wide.diagonal(kind), dense.diagonal(kind), atol=1e-14)
        np.testing.assert_allclose(wide.frobenius(kind), dense.frobenius(kind))
        np.testing.assert_allclose(wide.block_top(kind, block), dense.block_top(kind, block))
    np.testing.assert_allclose(wide.top("hessian", 4), dense.top("hessian", 4))
    np.testing.assert_allclose(wide.bottom("hessian"), dense.bottom("hessian"))
    np.testing.assert_allclose(wide.diagonal("hessian"), dense.diagonal("hessian"), atol=1e-14)
