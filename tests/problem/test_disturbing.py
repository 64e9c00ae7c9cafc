"""Arithmetic that rounds at random moves results by as much as rounding may, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import max_pool1d

from flatlab.problem.disturbing import Disturbed

EPS = torch.finfo(torch.float64).eps


def moved(compute, *given):
    """How far three disturbed runs are from the plain result, at most."""
    plain, runs = compute(*given), []
    for seed in range(3):
        with Disturbed(seed):
            runs.append(compute(*given))
    return torch.stack([(run - plain).abs() for run in runs]).amax(0)


def slope(function):
    def found(x):
        x = x.clone().requires_grad_(True)
        return torch.autograd.grad(function(x).sum(), x)[0]

    return found


@pytest.mark.parametrize(
    ("function", "at"),
    [
        (lambda x: 1 - torch.sigmoid(x), 33.0),
        (slope(torch.tanh), 18.0),  # 1 − tanh², inside a kernel
        (slope(nn.functional.silu), 38.0),
        (lambda x: (x + 1) - x, 1.0),
    ],
)
def test_what_cancels_moves_by_a_unit_of_the_numbers_that_cancel(function, at):
    """Exact cancellation included: 1 − 1 = 0 is no proof of zero."""
    found = float(moved(function, torch.full((50,), at, dtype=torch.float64)).max())
    assert EPS / 4 <= found <= 4 * at * EPS


def test_cancellation_inside_fused_kernels_is_seen():
    """∂ℓ/∂f of a fitted softmax is p − 1, computed by one kernel."""
    f = torch.tensor([[33.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([0])
    found = moved(slope(lambda f: nn.functional.cross_entropy(f, y)), f)
    assert EPS / 4 <= float(found.max()) <= 20 * EPS


def test_an_ordinary_result_moves_by_few_units():
    x, w = torch.rand(40, 30, dtype=torch.float64), torch.rand(30, 20, dtype=torch.float64)
    found = moved(lambda x: torch.log1p((x @ w).square()), x)
    assert 0 < float(found.max()) < 100 * EPS


def test_float32_inside_rounds_as_float32():
    x = torch.rand(100, dtype=torch.float64) + 1
    found = float(moved(lambda x: x.float().double(), x).max())
    assert 1e-8 < found < 1e-6
    assert float(moved(lambda x: x * torch.ones(100), x).max()) < 1e-14  # a constant is exact


def test_selection_breaks_no_tie():
    x = torch.ones(1, 1, 8, dtype=torch.float64)
    for function in (lambda x: max_pool1d(x, 2), lambda x: x.amax(2)):  # slopes of one or none
        assert float(moved(slope(function), x).max()) < 10 * EPS
    assert not moved(lambda x: torch.cat([x, x]), x).any()


def test_zero_stays_zero_and_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    assert not moved(lambda x: torch.relu(x) * 3 + x, torch.zeros(5, dtype=torch.float64)).any()
    assert torch.equal(before, torch.random.get_rng_state())


def test_it_is_the_same_for_the_same_seed():
    x = torch.rand(1000)
    with Disturbed(1):
        first = (x * 3).exp()
    with Disturbed(1):
        assert torch.equal(first, (x * 3).exp())
    with Disturbed(2):
        assert not torch.equal(first, (x * 3).exp())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tangent_without_memory_is_a_zero():
    """Forward mode hands on zeros that have no storage."""
    weight = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)).eval()
    x = torch.rand(5, 3)
    with Disturbed(0):
        _, found = torch.func.jvp(weight, (x,), (torch.ones_like(x),))
    assert bool(torch.isfinite(found).all())


def test_an_infinite_intermediate_stays_infinite():
    big = torch.tensor([math.inf, 1.0, -math.inf])
    with Disturbed(0):
        found = big * 2
    assert found[0] == math.inf and found[2] == -math.inf and bool(torch.isfinite(found[1]))
