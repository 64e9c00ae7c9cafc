"""Non-uniformity and noise alignment, against whole matrices of single examples."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest
import torch
from scipy.stats import t
from torch import nn
from torch.func import jacrev

from cases import CASES, Dense
from flatlab.errors import UserError
from flatlab.measures import Budget, Effort
from flatlab.measures.noise import Alignment, NonUniformity
from flatlab.problem import Matrix, Problem
from flatlab.problem.examples import hessian_spread

MIXED = "batchnorm, train"
SINGLE = [name for name in CASES if name != MIXED]


@functools.cache
def dense(name):
    return Dense(name)


@functools.cache
def problem(name):
    case = CASES[name]
    return Problem(*case.make(), **case.options)


def examples(truth):
    for x, y in truth.batches:
        for i in range(len(x)):
            yield x[i : i + 1], y[i : i + 1]


@functools.cache
def variance(name):
    """E[H_i²] − H², by forming every H_i."""
    truth = dense(name)
    total, mean = 0.0, 0.0
    for x, y in examples(truth):
        H = jacrev(jacrev(lambda theta, x=x, y=y: truth.loss(truth.outputs(theta, x), y)))(
            truth.theta
        ).detach()
        total, mean = total + H @ H / truth.n, mean + H / truth.n
    return total - mean @ mean


@pytest.mark.parametrize("name", SINGLE)
def test_nonuniformity_is_the_largest_eigenvalue(name):
    values = torch.linalg.eigvalsh(variance(name))
    found = NonUniformity().read(problem(name), Effort(0))
    top = float(values[-1])
    assert found.complete
    assert abs(found.value - top) <= found.stderr + 1e-10 * top
    assert found.stderr <= 1e-3 * top
    assert found.details["s"] == pytest.approx(found.value**0.5)
    assert float(values[0]) >= -1e-10 * top  # a variance


@pytest.mark.parametrize("name", ["linear", "relu"])
def test_its_products_are_those_of_the_whole_matrix(name):
    truth = variance(name)
    made = hessian_spread(problem(name)).dense()
    assert torch.allclose(made, truth, rtol=0, atol=1e-10 * float(truth.abs().max()))


def test_nonuniformity_in_one_dimension_is_the_variance_of_the_curvatures():
    """ℓ_i = (θx_i)²: a_i = 2x_i²."""
    x = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    model = nn.Linear(1, 1, bias=False).double()
    found = NonUniformity().read(Problem(model, nn.MSELoss(), (x, 0 * x)), Effort(0))
    assert found.value == pytest.approx(np.var([2.0, 8.0, 18.0]), rel=1e-10)
    assert found.stderr <= 1e-10


def test_equal_examples_have_no_nonuniformity():
    x = torch.ones(4, 3, dtype=torch.float64)
    model = nn.Linear(3, 1, bias=False).double()
    found = NonUniformity().read(Problem(model, nn.MSELoss(), (x, x[:, :1])), Effort(0))
    assert abs(found.value) <= 1e-12


def test_a_budget_ends_it():
    effort = Effort(0, Budget(products=3))
    found = NonUniformity(tolerance=1e-12).read(problem("tanh"), effort)
    assert not found.complete
    assert effort.spent == 3
    assert found.value <= float(torch.linalg.eigvalsh(variance("tanh"))[-1]) * (1 + 1e-12)


@functools.cache
def moments(name):
    """Σ, G and E‖∂ℓ_i/∂f‖² from the definition."""
    truth, gradients, power = dense(name), [], 0.0
    for x, y in examples(truth):
        theta = truth.theta.clone().requires_grad_(True)
        f = truth.outputs(theta, x)
        loss = truth.loss(f, y)
        (u,) = torch.autograd.grad(loss, f, retain_graph=True)
        power += float(u.square().sum()) / truth.n
        gradients.append(torch.autograd.grad(loss, theta)[0])
    return torch.cov(torch.stack(gradients).T, correction=0), truth.matrix("gram"), power


def factors(S, G, twice_loss):
    alpha = float((S * G).sum() / (S.norm() * G.norm()))
    beta = float(S.norm() / G.norm()) / twice_loss
    return np.array([alpha, beta, alpha * beta])


@pytest.mark.parametrize("name", SINGLE)
def test_alignment_is_that_of_whole_matrices(name):
    found = Alignment().read(problem(name), Effort(0))
    assert found.exact
    assert found.labels == ("α", "β", "μ")
    assert found.value == pytest.approx(factors(*moments(name)), rel=1e-10)


@pytest.mark.parametrize("name", ["linear", "relu", "two-layer", "convolution"])
def test_alignment_by_probes_is_within_its_error(name):
    found = Alignment(exact=False, tolerance=0.15).read(problem(name), Effort(0))
    assert not found.exact
    assert found.complete
    assert (found.stderr <= 0.2 * np.abs(found.value)).all()  # tolerance, and the error of an error
    assert (np.abs(found.value - factors(*moments(name))) <= 5 * found.stderr).all()


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_of_squared_errors_alignment_uses_twice_the_loss(scale):
    """For ℓ = c(f − y)² the factors are those of ℓ = ½(f − y)² with its own 2L = E(f − y)²."""
    x, y = CASES["linear"].make()[2]
    model = CASES["linear"].make()[0]
    made = Problem(model, lambda f, y: scale * (f - y).square().mean(), (x, y))
    e = (model(x) - y).detach()
    J = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1)
    S, G = torch.cov((e * J).T, correction=0), J.T @ J / len(x)
    twice = float(e.square().mean())
    found = Alignment().read(made, Effort(0))
    assert found.value == pytest.approx(factors(S, G, twice), rel=1e-10)
    centred = float((S * G).sum()) / (twice * float(G.norm()) ** 2)
    assert found.value[2] == pytest.approx(centred, rel=1e-10)


def test_without_noise_mu_is_zero_and_alpha_undefined():
    x = torch.ones(1, 3, dtype=torch.float64)
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(0.5)
    alpha, beta, mu = (
        Alignment().read(Problem(model, nn.MSELoss(), (x, 0 * x[:, :1])), Effort(0)).value
    )
    assert np.isnan(alpha)
    assert beta == mu == 0.0
    with torch.no_grad():
        model.weight.zero_()  # fitted exactly
    found = Alignment().read(Problem(model, nn.MSELoss(), (x, 0 * x[:, :1])), Effort(0))
    assert np.isnan(found.value).all()


@pytest.mark.slow
def test_intervals_of_the_alignment_cover():
    """95 % intervals of α, β and μ cover the truth for 90 to 99 % of 200 seeds.

    Products are with the whole matrices, for speed.
    """
    S, G, twice = moments("relu")
    truth = factors(S, G, twice)
    made = copy.copy(problem("relu"))
    g = made.value_and_gradient()[1]
    whole = {"fisher": S + g[:, None] * g, "gram": G}
    made.matrix = lambda kind: Matrix(made.size, lambda v: whole[kind] @ v)
    covered = np.zeros(3)
    for seed in range(200):
        found = Alignment(exact=False).read(made, Effort(seed))
        covered += np.abs(found.value - truth) <= t.ppf(0.975, found.dof) * found.stderr
    assert (covered >= 180).all() and (covered <= 198).all(), covered


@pytest.mark.parametrize("measure", [NonUniformity(), Alignment(), Alignment(exact=False)])
def test_single_examples_are_needed(measure):
    with pytest.raises(UserError, match="mixes the examples"):
        measure.read(problem(MIXED), Effort(0))


@pytest.mark.parametrize(
    "measure", [NonUniformity(), Alignment(), Alignment(exact=False, tolerance=0.5)]
)
def test_the_parameters_and_their_gradients_are_left(measure):
    made = Problem(*CASES["convolution"].make(), batch_size=6)
    before = made.theta.clone()
    measure.read(made, Effort(0))
    assert torch.equal(before, made.theta)
    assert all(p.grad is None for p in made.params.values())


def test_bad_options():
    with pytest.raises(UserError, match="tolerance must be > 0"):
        NonUniformity(tolerance=0.0)
    with pytest.raises(UserError, match="no field"):
        Alignment(factor="mu")
