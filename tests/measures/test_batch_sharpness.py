"""Batch sharpness: the mean over batches against the definition, and batches without a gradient."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import flatlab as fl
from cases import CASES, Dense
from flatlab.errors import UserError
from flatlab.measures import Effort
from flatlab.measures.batch_sharpness import BatchSharpness
from flatlab.problem import Problem

MIXED = "batchnorm, train"
SINGLE = [name for name in CASES if name != MIXED]


@functools.cache
def problem(name):
    case = CASES[name]
    return Problem(*case.make(), **case.options)


def curvature(truth, batches):
    """gᵀHg/‖g‖² of the mean loss of some batches, by two backward passes."""
    theta = truth.theta.clone().requires_grad_(True)
    n = sum(len(x) for x, _ in batches)
    value = sum(truth.loss(truth.outputs(theta, x), y) * len(x) / n for x, y in batches)
    (g,) = torch.autograd.grad(value, theta, create_graph=True)
    size = g.detach().norm()
    (image,) = torch.autograd.grad(g, theta, g.detach() / size)
    return float(g.detach() @ image / size)


@pytest.mark.parametrize("name", SINGLE)
def test_with_one_example_and_with_all_it_is_the_definition(name):
    truth, made = Dense(name), problem(name)
    ones = [(x[i : i + 1], y[i : i + 1]) for x, y in truth.batches for i in range(len(x))]
    found = BatchSharpness().read(made, Effort(0))
    assert found.value == pytest.approx(
        np.mean([curvature(truth, [one]) for one in ones]), rel=1e-9
    )
    assert found.details == {"batches": made.n, "without_gradient": 0}
    whole = BatchSharpness(batch_size=made.n).read(made, Effort(0))
    assert whole.value == pytest.approx(curvature(truth, truth.batches), rel=1e-9)
    assert found.exact and whole.exact


def data(n=9, classes=False):
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(n, 3, generator=draw, dtype=torch.float64)
    y = torch.randn(n, 1, generator=draw, dtype=torch.float64)
    return x, y.sign() if classes else y


def net(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def test_all_batches_of_three():
    x, y = data()
    model, made = net(), Problem(net(), nn.MSELoss(), data())
    values = []
    for rows in itertools.combinations(range(9), 3):
        part = Problem(model, nn.MSELoss(), (x[list(rows)], y[list(rows)]))
        g = part.value_and_gradient()[1]
        values.append(float(g @ (part.matrix() @ g)) / float(g @ g))
    found = BatchSharpness(batch_size=3).read(made, Effort(0))
    assert found.exact and found.details["batches"] == math.comb(9, 3) == len(values)
    assert found.value == pytest.approx(np.mean(values), rel=1e-12)
    drawn = BatchSharpness(batch_size=3, exact=False).read(made, Effort(1))
    assert not drawn.exact and drawn.dof
    assert 0 < drawn.stderr < 0.1 * abs(found.value)
    assert abs(drawn.value - found.value) <= 4 * drawn.stderr
    assert BatchSharpness(batch_size=3, max_batches=83).read(made, Effort(0)).exact is False


def test_near_interpolation_it_is_the_mean_of_the_examples_largest_eigenvalues():
    """With residual r, H_i = 2∇f∇fᵀ + 2r∇²f and g_i ∥ ∇f, so both differ by a multiple of r."""
    model, (x, _) = net(), data()
    with torch.no_grad():
        y = model(x) + 1e-6
    tops = [
        float(torch.linalg.eigvalsh(Problem(model, nn.MSELoss(), (x[[i]], y[[i]])).dense())[-1])
        for i in range(9)
    ]
    found = BatchSharpness().read(Problem(model, nn.MSELoss(), (x, y)), Effort(0))
    assert found.value == pytest.approx(np.mean(tops), rel=1e-5)
    away = BatchSharpness().read(Problem(model, nn.MSELoss(), (x, y + 1)), Effort(0))
    assert away.value != pytest.approx(np.mean(tops), rel=1e-2)


def hinge(outputs, y):
    return torch.relu(1 - y * outputs).square().mean()


def test_batches_without_a_gradient_are_left_out_and_counted():
    x, _ = data()
    model = net()
    with torch.no_grad():
        y = model(x).sign()
        model[2].weight *= 3 / float(model(x).abs().median())  # about half have a margin over 1
        model[2].bias *= 0
        y = model(x).sign()
        satisfied = int((y * model(x) >= 1).sum())
    assert 0 < satisfied < 9
    rest = (y * model(x) < 1).flatten()
    made = Problem(model, hinge, (x, y))
    found = BatchSharpness().read(made, Effort(0))
    alone = BatchSharpness().read(Problem(model, hinge, (x[rest], y[rest])), Effort(0))
    assert found.details == {"batches": 9, "without_gradient": satisfied}
    assert found.value == pytest.approx(alone.value, rel=1e-12)
    drawn = BatchSharpness(exact=False).read(made, Effort(0))
    assert drawn.details["without_gradient"] > 0
    assert abs(drawn.value - found.value) <= 4 * drawn.stderr
    easy = Problem(model, hinge, (x[~rest], y[~rest]))
    for measure in (BatchSharpness(), BatchSharpness(exact=False)):
        nothing = measure.read(easy, Effort(0))
        assert np.isnan(nothing.value) and "undefined" in nothing.method


def test_what_cannot_be_measured_is_one_line():
    made = Problem(net(), nn.MSELoss(), data())
    with pytest.raises(
        UserError, match="batch_size must be at most the number of examples, 9, got"
    ):
        BatchSharpness(batch_size=10).read(made, Effort(0))
    with pytest.raises(UserError, match="batch_size"):
        BatchSharpness(batch_size=0)
    many = Problem(net(), nn.MSELoss(), data(40))
    with pytest.raises(UserError, match="more than the 100,000 that are enumerated"):
        BatchSharpness(batch_size=20, exact=True).read(many, Effort(0))
    with pytest.raises(UserError, match="mixes the examples"):
        BatchSharpness().read(problem(MIXED), Effort(0))


def test_a_budget_ends_the_draws():
    found = fl.measure(
        net(), nn.MSELoss(), data(), "batch_sharpness", budget=fl.Budget(products=5)
    )["batch_sharpness"]
    assert not found.complete and "5 products" in found.stopped
    assert found.card.products == 5
