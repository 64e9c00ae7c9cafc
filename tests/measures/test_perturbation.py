"""Loss under perturbation: against dense matrices, closed forms of quadratics, and corners."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import nn

from cases import CASES, Dense
from flatlab.errors import UserError
from flatlab.measures import Budget, Effort
from flatlab.measures.adaptive import (
    AdaptiveAverageSharpness,
    AdaptiveLinfSharpness,
    AdaptiveSharpness,
    with_normalised_logits,
)
from flatlab.measures.average_sharpness import AverageSharpness
from flatlab.measures.keskar import Keskar, _subspace
from flatlab.measures.sam_sharpness import OneStepSharpness, SamSharpness
from flatlab.problem import Problem

WORST = {
    "sam": SamSharpness(rho=0.1, steps=10),
    "adaptive": AdaptiveSharpness(rho=0.3, steps=10),
    "adaptive linf": AdaptiveLinfSharpness(rho=0.02, steps=10),
}
AVERAGE = {
    "average": AverageSharpness(sigma=0.05, tolerance=0.2),
    "adaptive average": AdaptiveAverageSharpness(sigma=0.2, tolerance=0.2),
}
KESKAR = {"keskar": Keskar(), "subspace": Keskar(dimension=5, draws=3, epsilon=5e-4)}
EVERY = {**WORST, **AVERAGE, **KESKAR, "one step": OneStepSharpness(rho=0.1)}


@functools.cache
def dense(name):
    return Dense(name)


@functools.cache
def problem(name):
    case = CASES[name]
    return Problem(*case.make(), **case.options)


def rise(name, step):
    """L(θ + step) − L(θ), from the definition."""
    truth = dense(name)
    with torch.no_grad():
        return float(truth.value(truth.theta + step) - truth.value(truth.theta))


class Quadratic:
    """A linear model with mse: L(θ + δ) − L(θ) = gδ + ½δHδ exactly, at any θ or at the minimum."""

    def __init__(self, at_minimum=False, inputs=5, orthogonal=False):
        draw = torch.Generator().manual_seed(3)
        self.x = torch.randn(30, inputs, generator=draw, dtype=torch.float64)
        if orthogonal:
            self.x = torch.linalg.qr(self.x)[0] * torch.arange(1.0, inputs + 1)
        y = torch.randn(30, 1, generator=draw, dtype=torch.float64)
        model = nn.Linear(inputs, 1, bias=False).double()
        start = torch.randn(1, inputs, generator=draw, dtype=torch.float64)
        with torch.no_grad():
            model.weight.copy_(torch.linalg.lstsq(self.x, y).solution.T if at_minimum else start)
        self.problem = Problem(model, nn.MSELoss(), (self.x, y))
        self.theta = model.weight.detach()[0]
        residual = self.x @ self.theta[:, None] - y
        self.H = 2 * self.x.T @ self.x / 30
        self.g = 0 * self.theta if at_minimum else (2 * self.x.T @ residual / 30)[:, 0]
        self.loss = float(residual.square().mean())

    def at(self, step):
        return float(self.g @ step + step @ self.H @ step / 2)

    def ball(self, radius, scale=None):
        """The maximum over the ball (or ellipsoid): δ = (λ − H)⁻¹g with λ > λ_max, ‖δ‖ = radius."""
        c = torch.ones_like(self.g) if scale is None else scale
        values, vectors = np.linalg.eigh((c[:, None] * self.H * c).numpy())
        g = vectors.T @ (c * self.g).numpy()
        if np.linalg.norm(g) < 1e-12:
            return radius**2 * values[-1] / 2
        size = lambda shift: np.linalg.norm(g / (values[-1] + shift - values)) - radius  # noqa: E731
        shift = brentq(size, 1e-14, np.linalg.norm(g) / radius + 1, xtol=1e-15, rtol=1e-14)
        step = g / (values[-1] + shift - values)
        return float(g @ step + step @ (values * step) / 2)

    def corners(self, sides, A=None):
        """The maximum over a box: a convex function has it at a corner."""
        found = []
        for signs in itertools.product((-1.0, 1.0), repeat=len(sides)):
            y = torch.tensor(signs, dtype=torch.float64) * sides
            found.append(self.at(y if A is None else A @ y))
        return max(found)


@pytest.mark.parametrize("name", CASES)
def test_one_step_is_the_definition(name):
    truth = dense(name)
    theta = truth.theta.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(truth.value(theta), theta, create_graph=True)
    g = slope.detach()
    (Hg,) = torch.autograd.grad(slope, theta, g)
    step = 0.1 * g / g.norm()
    found = OneStepSharpness(rho=0.1).read(problem(name), Effort(0))
    assert found.exact
    assert found.details["rise"] == pytest.approx(rise(name, step), abs=1e-10)
    assert found.value == max(0.0, found.details["rise"])
    second = 0.1 * float(g.norm()) + 0.005 * float(g @ Hg) / float(g @ g)
    assert found.details["quadratic"] == pytest.approx(second, abs=1e-10)


@pytest.mark.parametrize("kind", WORST)
@pytest.mark.parametrize("name", CASES)
def test_the_worst_case_found_is_reached_inside_the_region(name, kind):
    """Whatever was found is a true lower bound: a point of the region has that loss."""
    measure = WORST[kind]
    found = measure.read(problem(name), Effort(0))
    step, theta = found.details["step"], dense(name).theta
    assert found.value == pytest.approx(rise(name, step), abs=1e-10)
    assert found.value >= 0
    assert found.value >= max(found.details["restarts"])
    shares = step if kind == "sam" else step / theta.abs().clamp(min=1e-300)
    size = shares.abs().max() if kind == "adaptive linf" else shares.norm()
    assert float(size) <= measure.rho * (1 + 1e-12)
    if kind == "sam":
        assert found.value >= OneStepSharpness(rho=0.1).read(problem(name), Effort(0)).value


# The ascent is a power iteration here; 300 steps leave 1e-6 of the rise at these eigenvalue gaps.
@pytest.mark.parametrize("at_minimum", [False, True])
@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0])
def test_the_ball_maximum_of_a_quadratic(rho, at_minimum):
    case = Quadratic(at_minimum)
    truth = case.ball(rho)
    found = SamSharpness(rho=rho, steps=300).read(case.problem, Effort(0)).value
    assert truth * (1 - 1e-6) <= found <= truth * (1 + 1e-9)
    if at_minimum:
        assert truth == pytest.approx(rho**2 * float(torch.linalg.eigvalsh(case.H)[-1]) / 2)


@pytest.mark.parametrize("rho", [0.1, 0.5, 2.0])
def test_adaptive_maxima_of_a_quadratic(rho):
    case = Quadratic()
    sizes = case.theta.abs()
    truth = case.ball(rho, sizes)
    found = AdaptiveSharpness(rho=rho, steps=300).read(case.problem, Effort(0)).value
    assert truth * (1 - 1e-6) <= found <= truth * (1 + 1e-9)
    corner = case.corners(rho * sizes)
    found = AdaptiveLinfSharpness(rho=rho, restarts=20).read(case.problem, Effort(0)).value
    assert found == pytest.approx(corner, rel=1e-10)


class Cap(nn.Module):
    """The output is θ − θ²: at θ = 0.4 a step of 1 along the gradient falls."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(0.4, dtype=torch.float64))

    def forward(self, x):
        return (self.theta - self.theta**2).expand(len(x), 1)


def test_a_fall_along_the_gradient_counts_as_zero():
    x = torch.ones(3, 1, dtype=torch.float64)
    made = Problem(Cap(), lambda f, y: f.mean(), (x, x))
    found = OneStepSharpness(rho=1.0).read(made, Effort(0))
    assert found.details["rise"] == pytest.approx(-0.56 - 0.24, abs=1e-12)
    assert found.value == 0.0
    many = SamSharpness(rho=1.0, steps=40).read(made, Effort(0)).value
    assert many == pytest.approx(0.01, rel=1e-6)  # the top is at θ = 0.5


def test_a_zero_gradient_is_no_direction():
    """At an exact fit the gradient is exactly zero: nothing along it, something around it."""
    x = torch.eye(3, dtype=torch.float64)
    made = Problem(_zeros(3), nn.MSELoss(), (x, 0 * x[:, :1]))
    one = OneStepSharpness().read(made, Effort(0))
    assert one.value == 0.0
    assert "zero gradient" in one.method
    assert SamSharpness(restarts=1).read(made, Effort(0)).value == 0.0
    truth = 0.05**2 / 3  # H = (2/3) I, half of it times ρ²
    assert SamSharpness().read(made, Effort(0)).value == pytest.approx(truth, rel=1e-12)


def _zeros(inputs):
    model = nn.Linear(inputs, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    return model


@pytest.mark.parametrize("epsilon", [1e-3, 5e-4, 0.1])
@pytest.mark.parametrize("at_minimum", [False, True])
def test_keskar_of_a_quadratic_is_at_a_corner(epsilon, at_minimum):
    case = Quadratic(at_minimum)
    sides = epsilon * (case.theta.abs() + 1)
    # At the minimum only the random corners move, and a corner can be a local maximum.
    found = Keskar(epsilon=epsilon, restarts=40).read(case.problem, Effort(0))
    truth = 100 * case.corners(sides) / (1 + case.loss)
    # Differences of losses of order 1 carry 1e-15; a rise of order ε² at the minimum is 1e-6.
    assert found.value == pytest.approx(truth, rel=1e-8)


@pytest.mark.parametrize("at_minimum", [False, True])
def test_keskar_of_a_diagonal_quadratic(at_minimum):
    """Orthogonal inputs: every coordinate on its own, |g_i| b_i + ½ h_i b_i²."""
    case = Quadratic(at_minimum, orthogonal=True)
    sides = 1e-3 * (case.theta.abs() + 1)
    rises = case.g.abs() * sides + case.H.diagonal() * sides**2 / 2
    found = Keskar().read(case.problem, Effort(0)).value
    assert found == pytest.approx(100 * float(rises.sum()) / (1 + case.loss), rel=1e-8)


def test_keskar_in_subspaces_is_the_mean_over_their_corners():
    case, effort = Quadratic(), Effort(4)
    truth = []
    for draw in range(4):
        A = _subspace(case.problem, effort, draw, 3)
        sides = 1e-3 * ((torch.linalg.pinv(A) @ case.theta).abs() + 1)
        truth.append(100 * case.corners(sides, A) / (1 + case.loss))
    found = Keskar(dimension=3, draws=4, restarts=8).read(case.problem, effort)
    assert found.details["draws"] == pytest.approx(truth, rel=1e-8)
    assert found.value == pytest.approx(np.mean(truth), rel=1e-8)
    assert found.stderr == pytest.approx(np.std(truth, ddof=1) / 2, rel=1e-6)
    assert found.dof == 3


def test_a_subspace_wider_than_the_space_is_allowed():
    case = Quadratic()
    found = Keskar(dimension=8, draws=2).read(case.problem, Effort(0))
    A = _subspace(case.problem, Effort(0), 0, 8)
    sides = 1e-3 * ((torch.linalg.pinv(A) @ case.theta).abs() + 1)
    truth = 100 * case.corners(sides, A) / (1 + case.loss)
    assert found.details["draws"][0] == pytest.approx(truth, rel=1e-8)


def truths(case):
    """Averages of a quadratic: odd orders vanish, E ½σ²ξHξ = ½σ² Σ c_i² H_ii."""
    curvature = case.H.diagonal()
    return {
        "average": 0.05**2 / 2 * float(curvature.sum()),
        "adaptive average": 0.2**2 / 2 * float(curvature @ case.theta.square()),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", AVERAGE)
def test_averages_of_a_quadratic_are_covered(kind):
    """95 % intervals cover the truth for 90 to 99 % of 200 seeds (binomial 3σ: 90.4 to 99.6 %)."""
    from scipy.stats import t

    case = Quadratic()
    truth, covered = truths(case)[kind], 0
    for seed in range(200):
        found = AVERAGE[kind].read(case.problem, Effort(seed))
        assert found.complete
        assert found.stderr <= 0.4 * abs(found.value)  # asked for 0.2 of the pilot's mean
        covered += abs(found.value - truth) <= t.ppf(0.975, found.dof) * found.stderr
    assert 180 <= covered <= 198


@pytest.mark.parametrize("name", ["tanh", "convolution", "attention"])
def test_the_average_of_a_network_agrees_with_many_samples(name):
    """Within five standard errors of 4,000 independent draws from the definition."""
    truth = dense(name)
    draw = torch.Generator().manual_seed(0)
    base, values = float(truth.value(truth.theta)), []
    with torch.no_grad():
        for _ in range(2000):
            step = 0.3 * torch.randn(len(truth.theta), generator=draw, dtype=torch.float64)
            pair = [float(truth.value(truth.theta + sign * step)) for sign in (1, -1)]
            values.append(np.mean(pair) - base)
    found = AverageSharpness(sigma=0.3).read(problem(name), Effort(0))
    error = np.hypot(found.stderr, np.std(values) / np.sqrt(len(values)))
    assert error <= 0.15 * abs(found.value)  # 200 pairs give 6, 5 and 11 %
    assert abs(found.value - np.mean(values)) <= 5 * error


def test_small_radii_of_a_float32_model_are_measured_in_float64():
    """At ρ = 1e-4 a difference of float32 losses would be noise."""
    model, loss, data = CASES["tanh"].make()
    single = Problem(model, loss, data, dtype="float32")
    raised = Problem(single.model, loss, single.batches, dtype="float64")
    found, truth = (OneStepSharpness(rho=1e-4).read(p, Effort(0)) for p in (single, raised))
    assert found.exact and found.value == pytest.approx(truth.value, rel=1e-9)
    assert found.details["quadratic"] == pytest.approx(found.value, rel=1e-4)


def test_logits_are_divided_by_their_standard_deviation():
    made = problem("relu")
    truth = dense("relu")
    (x, y), logits = truth.batches[0], truth.outputs(truth.theta, truth.batches[0][0])
    spread = logits.std(1, unbiased=False, keepdim=True)
    expected = float(nn.functional.cross_entropy(logits / spread, y))
    assert with_normalised_logits(made).value() == pytest.approx(expected, abs=1e-12)
    assert made.value() == pytest.approx(float(truth.value(truth.theta)), abs=1e-12)  # as it was
    scaled, loss, data = CASES["relu"].make()
    with torch.no_grad():
        for p in scaled[4].parameters():
            p.mul_(10)  # the logits' scale is what normalisation takes out
    other = Problem(scaled, loss, data)
    for measure in (
        AdaptiveSharpness(normalise_logits=True),
        AdaptiveAverageSharpness(normalise_logits=True, max_products=40),
    ):
        values = [measure.read(p, Effort(0)).value for p in (made, other)]
        assert values[0] == pytest.approx(values[1], rel=1e-8)
    assert len(x) == 21


@pytest.mark.parametrize("kind", EVERY)
def test_the_parameters_are_found_as_they_were(kind):
    made = Problem(*CASES["convolution"].make(), batch_size=6)
    before = made.theta.clone()
    EVERY[kind].read(made, Effort(0))
    assert torch.equal(before, made.theta)


@pytest.mark.parametrize("kind", EVERY)
def test_the_same_seed_gives_the_same_value(kind):
    values = [EVERY[kind].read(problem("tanh"), Effort(5)).value for _ in range(2)]
    assert values[0] == values[1]


@pytest.mark.parametrize("kind", [*WORST, *AVERAGE, *KESKAR])
def test_a_budget_ends_it_with_the_best_so_far(kind):
    effort = Effort(0, Budget(products=4))
    found = EVERY[kind].read(problem("tanh"), effort)
    assert not found.complete
    assert np.isfinite(found.value)
    assert effort.spent <= 8  # the few that give any answer at all


BAD = [
    (SamSharpness, {"rho": 0.0}, "rho must be > 0, got 0.0"),
    (SamSharpness, {"steps": 0}, "steps must be > 0, got 0"),
    (AverageSharpness, {"sigma": -1.0}, "sigma must be > 0, got -1.0"),
    (AverageSharpness, {"tolerance": 1.0}, "tolerance must be < 1, got 1.0"),
    (Keskar, {"epsilon": 0.0}, "epsilon must be > 0, got 0.0"),
    (Keskar, {"draws": 1}, "draws must be > 1, got 1"),
    (AdaptiveSharpness, {"radius": 1.0}, "AdaptiveSharpness has no field 'radius'"),
]


@pytest.mark.parametrize(("kind", "options", "message"), BAD)
def test_bad_options_are_one_clear_error(kind, options, message):
    with pytest.raises(UserError) as error:
        kind(**options)
    assert message in str(error.value)


def test_logits_need_classes():
    with pytest.raises(UserError, match="at least two classes"):
        AdaptiveSharpness(normalise_logits=True).read(Quadratic().problem, Effort(0))
