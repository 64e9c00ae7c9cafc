"""Rounding is part of the error: what cancels, casts to float32 or underflows is never "exact"."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import flatlab as fl
from flatlab.errors import UserError
from flatlab.measures.rounding import lost, rounding
from flatlab.problem import Problem
from flatlab.problem.shaking import shaken

torch.set_num_threads(1)
DOUBLE = torch.float64
CE, BCE, MSE = nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss(), nn.MSELoss()
Z = 33.0  # a gap of logits at which 1 − p keeps one digit
ODDS = math.exp(-Z)
VARIANCE = ODDS / (1 + ODDS) ** 2  # p(1 − p), without cancellation
NORM = 1.34  # ‖x_i‖²


def inputs():
    return torch.tensor([[1.0, 0.5, -0.3]] * 6, dtype=DOUBLE)


def linear(outputs, gap=Z):
    """A layer whose first output is `gap` times the first input, and whose others are zero."""
    made = nn.Linear(3, outputs, bias=False).to(DOUBLE)
    with torch.no_grad():
        made.weight.zero_()
        made.weight[0, 0] = gap
    return made


def read(model, loss, data, name, **options):
    (found,) = fl.measure(model, loss, data, name, progress=False, **options).values()
    return found


def holds(found, truth, most=1.0):
    """Whether a reading covers the truth, and says no more than it knows."""
    if found.exact:
        return found.value == pytest.approx(truth, rel=1e-6, abs=0.0)
    within = abs(found.value - truth) <= found.stderr
    return within and "up to rounding" in found.method and found.stderr <= most * abs(truth)


ZEROS = torch.zeros(6, dtype=torch.long)


@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("trace", 2 * VARIANCE * NORM),
        ("trace:method=dense", 2 * VARIANCE * NORM),
        ("fisher_trace", 2 * (ODDS / (1 + ODDS)) ** 2 * NORM),
    ],
)
def test_log_softmax_inside_the_model_cancels_too(name, truth):
    """The trace was 0, exact."""
    model = nn.Sequential(linear(2), nn.LogSoftmax(1))
    found = read(model, nn.NLLLoss(), (inputs(), ZEROS), name)
    assert not found.exact and holds(found, truth)


@pytest.mark.parametrize("name", ["trace", "lambda_max", "frobenius", "ggn_trace"])
def test_sure_and_wrong(name):
    """At a label of probability e⁻³³, p(1 − p) cancels in the Hessian as in the GGN."""
    assert holds(read(linear(2), CE, (inputs(), 1 - ZEROS), name), 2 * VARIANCE * NORM)
    wrong = (inputs(), torch.zeros(6, 1, dtype=DOUBLE))
    assert holds(read(linear(1), BCE, wrong, name), VARIANCE * NORM)


@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("lambda_max", VARIANCE * NORM * 5 / 6),
        ("fisher_trace", (ODDS / (1 + ODDS)) ** 2 * NORM * 5 / 6),
    ],
)
def test_one_example_without_gradient_hides_nothing(name, truth):
    x = inputs()
    x[0] = 0
    found = read(linear(1), BCE, (x, torch.ones(6, 1, dtype=DOUBLE)), name)
    assert not found.exact and holds(found, truth)


@pytest.mark.parametrize("name", ["trace", "ggn_lambda_max"])
def test_what_underflows_is_not_exact(name):
    """Squares of e⁻³⁹⁰ vanish; the reading was off by a factor of two, exact."""
    truth = 2 * math.exp(-390.0) * NORM
    found = read(linear(2, 390.0), CE, (inputs(), ZEROS), name)
    assert not found.exact and abs(found.value - truth) <= found.stderr < 1e-13


def fitted():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(13)
        model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))
        x = torch.randn(20, 4)
    y = model(x).argmax(1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(1500):
        optimizer.zero_grad()
        CE(model(x), y).backward()
        optimizer.step()
    return model, (x, y)


@pytest.mark.parametrize("name", ["trace", "lambda_max", "fisher_trace"])
def test_a_loss_that_computes_in_float32(name):
    model, data = fitted()
    truth = read(model, CE, data, name)
    assert truth.exact
    found = read(model, lambda f, y: cross_entropy(f.float(), y), data, name)
    assert not found.exact and holds(found, truth.value)


class Cast(nn.Module):
    def __init__(self, cast):
        super().__init__()
        self.a, self.b, self.cast = nn.Linear(4, 6), nn.Linear(6, 2), cast

    def forward(self, x):
        h = torch.tanh(self.a(x.float() if self.cast == "input" else x))
        return self.b(h.float().to(h.dtype) if self.cast == "hidden" else h)


@pytest.mark.parametrize("cast", ["input", "hidden"])
def test_a_model_that_casts_inside(cast):
    """Near a fit the outputs' float32 noise is most of f − y."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        rough, plain = Cast(cast), Cast(None)
        x = torch.randn(12, 4)
    plain.load_state_dict(rough.state_dict())
    y = plain.double()(x.double()).detach().float()
    truth = fl.measure(plain.float(), MSE, (x, y), ["fisher_trace", "lambda_max"], progress=False)
    found = read(rough, MSE, (x, y), "fisher_trace")
    assert not found.exact and holds(found, truth["fisher_trace"].value, most=1e3)
    sharp = read(rough, MSE, (x, y), "lambda_max:method=lanczos,tolerance=1e-10")
    assert abs(sharp.value - truth["lambda_max"].value) <= sharp.stderr < 1e-4


def test_ordinary_numbers_stay_exact():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
        data = torch.randn(40, 4), torch.randint(0, 3, (40,))
    names = ["trace", "lambda_max", "diagonal", "spectrum", "fisher_rao", "alignment", "margin"]
    names += ["sam_sharpness", "input_gradient", "ggn_frobenius", "layer_trace", "gram_top_k"]
    for name, found in fl.measure(model, CE, data, names, progress=False).items():
        assert found.exact, name


def scaled(scale, f, y):
    return scale * MSE(f, y)


@pytest.mark.parametrize("name", ["lambda_max", "top_k", "layer_lambda_max", "frobenius", "trace"])
def test_a_loss_of_any_scale(name):
    """Below 1e-162 squares underflow: Lanczos stopped, and probes showed no spread."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 2)).double()
        data = torch.randn(30, 5, dtype=DOUBLE), torch.randn(30, 2, dtype=DOUBLE)
    method = "lanczos" if "lambda" in name or name == "top_k" else "probes"
    plain = read(model, MSE, data, f"{name}:method={method}")
    for scale in (1e-180, 1e180):
        loss = partial(scaled, scale)
        found = read(model, loss, data, f"{name}:method={method}")
        assert found.value / scale == pytest.approx(plain.value, rel=1e-6)
        assert found.stderr / scale == pytest.approx(plain.stderr, rel=1e-3)
        dense = read(model, loss, data, f"{name}:method=dense")
        assert dense.exact and np.all(abs(dense.value - found.value) <= 4 * found.stderr)


def test_equal_gradients_have_no_noise():
    """α was 0.21, exact: the quotient of two roundings."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
        x = torch.randn(1, 4, dtype=DOUBLE).expand(5, 4).contiguous()
    found = read(model, CE, (x, torch.zeros(5, dtype=torch.long)), "alignment")
    assert math.isnan(found.value[0]) and not found.value[1:].any()
    assert (found.stderr[1:] < 1e-25).all()


def test_fisher_rao_of_weights_without_influence():
    """⟨θ, ∇ℓ_i⟩ is a sum that cancels: weights before a LayerNorm have no scale."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        layers = nn.Linear(4, 6, bias=False), nn.LayerNorm(6, eps=0.0), nn.Linear(6, 1)
        model = nn.Sequential(*layers).double()
        data = torch.randn(8, 4, dtype=DOUBLE), torch.randn(8, 1, dtype=DOUBLE)
    found = read(model, MSE, data, "fisher_rao", params=["0"])
    assert not found.exact and found.value <= 2 * found.stderr < 1e-13  # the truth is 0


def test_one_step_at_a_least_squares_solution():
    """There the gradient is rounding, and so is the direction of the step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(21)
        x, y = torch.randn(40, 5, dtype=DOUBLE), 1e3 * torch.randn(40, 1, dtype=DOUBLE)
    model = nn.Linear(5, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.linalg.lstsq(x, y).solution.T)
    found = read(model, MSE, (x, y), "sam_sharpness")
    values = torch.linalg.eigvalsh(2 * x.T @ x / 40) * 0.05**2 / 2  # the rise in any direction
    assert found.value - found.stderr <= float(values[0])
    assert found.value + found.stderr >= float(values[-1])


def test_a_margin_of_large_outputs():
    model = nn.Linear(1, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1e8], [1e8 + 1e-7]], dtype=DOUBLE))
    x = torch.tensor([[1.1], [1.3]], dtype=DOUBLE)
    found = read(model, CE, (x, torch.ones(2, dtype=torch.long)), "margin")
    assert not found.exact and 1e-9 < found.stderr < 1e-5


def test_a_distance_from_a_float64_reference():
    model = nn.Linear(50, 2)
    start = {name: p.double() + 1e-7 for name, p in model.state_dict().items()}
    data = torch.zeros(2, 50), torch.zeros(2, dtype=torch.long)
    found = read(model, CE, data, "distance", reference=start)
    assert found.value == pytest.approx(1e-7 * math.sqrt(102), rel=1e-6)


class Root(nn.Module):
    """A finite gradient, but no second derivative where a unit is off."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)).sqrt())


@pytest.mark.parametrize("name", ["trace", "lambda_max", "lambda_max:method=lanczos", "spectrum"])
def test_a_hessian_that_is_no_number(name):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, data = Root().double(), (torch.randn(30, 4).double(), torch.randn(30, 1).double())
    with pytest.raises(UserError, match="the hessian has entries that are NaN or infinite"):
        read(model, MSE, data, name)
    assert read(model, MSE, data, "sam_sharpness_steps").lower  # it needs no Hessian


def test_an_infinite_loss_is_one_line():
    model, data = nn.Linear(1, 1).double(), (torch.ones(2, 1).double(), torch.zeros(2, 1).double())
    with pytest.raises(UserError, match="the loss is infinite or NaN near"):
        read(model, lambda f, y: f.exp().mean(), data, "average_sharpness:sigma=1000.0")


def test_the_rounding_of_a_large_problem_is_that_of_its_examples():
    """Sampled examples round as much as all of them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 60), nn.Tanh(), nn.Linear(60, 2))
        data = torch.randn(600, 20), torch.randn(600, 2)
    problem = Problem(model, MSE, data)
    found = rounding(problem, "hessian")
    assert len(found.images) == 4
    g = found.probes[0]
    true = problem.matrix() @ g - problem.precise.matrix() @ g
    assert float(true.norm()) <= found.size(0.0) <= 100 * float(true.norm())
    assert 0 < lost(problem, Problem.value) < 1e-5


class InFloat32(nn.Sequential):
    """A network whose outputs are cast to float32, so that it cannot be measured in float64."""

    def forward(self, x):
        return super().forward(x).float()


@pytest.mark.parametrize("name", ["keskar:epsilon=1e-5", "sam_sharpness_steps:rho=1e-3"])
def test_a_lower_bound_in_float32_is_below_the_rise(name):
    torch.manual_seed(0)
    layers = nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)
    x, y = torch.randn(64, 6), torch.randn(64, 1)
    found = fl.measure(InFloat32(*layers), nn.MSELoss(), (x, y), name)[name]
    wide = nn.Sequential(*layers).double()

    def value(step):
        theta = nn.utils.parameters_to_vector(wide.parameters()).detach() + step
        params = dict(zip(dict(wide.named_parameters()), _split(theta, wide), strict=True))
        f = torch.func.functional_call(wide, params, (x.double(),))
        return float(nn.functional.mse_loss(f, y.double()))

    rise = value(found.details["step"]) - value(0.0)
    truth = 100 * rise / (1 + value(0.0)) if "keskar" in name else rise
    assert 0.99 * truth < found.value <= truth


def _split(theta, model):
    sizes = [p.numel() for p in model.parameters()]
    return [v.view_as(p) for v, p in zip(theta.split(sizes), model.parameters(), strict=True)]


@pytest.mark.parametrize(("width", "seen"), [(5, 1000), (500, 32)])
def test_rounding_is_measured_on_a_part_of_many_examples(width, seen):
    """Otherwise a few parameters with many examples spend more on rounding than on the value."""
    net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))
    x = torch.linspace(-1, 1, 4000).reshape(2000, 2)
    problem = Problem(net, nn.MSELoss(), (x, x[:, :1]))
    examples, moved = shaken(problem, lambda part: part.n)
    assert (examples, len(moved)) == (seen, 3 if width == 5 else 1)
