"""The certificate checks examples from all the data, for any model."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

import flatlab as fl
from flatlab.problem import Problem
from flatlab.problem.certificate import linear_in_each_parameter
from flatlab.problem.ghost import Ghost

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def data(n=300, width=4):
    return seeded(lambda: (torch.randn(n, width).double(), torch.randint(3, (n,))), 1)


class Gated(nn.Module):
    """Smooth for the examples whose first number is large, straight for the others."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        z = self.inner(x)
        return self.head(torch.where(x[:, :1] > 5, torch.tanh(z), torch.relu(z)))


class Reused(nn.Module):
    """One matrix, used again for the examples whose first number is large."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4, bias=False), nn.Linear(4, 3)

    def forward(self, x):
        h = torch.relu(self.inner(x))
        again = linear(torch.relu(x), self.inner.weight.T)
        return self.head(h + torch.where(x[:, :1] > 5, again, 0 * again))


def positive(activation):
    """A network whose inner layer is positive on positive inputs."""
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 3)).double())
    with torch.no_grad():
        model[0].weight.abs_()
        model[0].bias.abs_()
    return model


def test_a_smooth_branch_that_the_first_examples_do_not_take_is_seen():
    x, y = data()
    x[200:, 0] += 8
    assert not linear_in_each_parameter(Problem(seeded(Gated).double(), CE, (x, y)))
    assert linear_in_each_parameter(Problem(seeded(Gated).double(), CE, (x[:200], y[:200])))


def test_an_activation_that_is_straight_on_the_first_examples_is_seen():
    x, y = data()
    x = x.abs()
    x[16:] *= -1
    assert not linear_in_each_parameter(Problem(positive(nn.ELU), CE, (x, y)))
    found = fl.measure(positive(nn.ELU), CE, (x, y), "trace")["trace"]
    truth = float(Problem(positive(nn.ELU), CE, (x, y)).matrix().dense().trace())
    assert found.value == pytest.approx(truth, rel=1e-10)


def test_a_use_elsewhere_that_the_first_examples_do_not_make_is_seen():
    """The layers' gradients add up on the first 200 examples only."""
    x, y = data()
    x[200:, 0] += 8
    problem = Problem(seeded(Reused).double(), CE, (x, y))
    assert Ghost.of(problem) is None
    assert Ghost.of(Problem(seeded(Reused).double(), CE, (x[:200], y[:200]))) is not None
    found = fl.measure(seeded(Reused).double(), CE, (x, y), "ggn_trace")["ggn_trace"]
    assert found.value == pytest.approx(float(problem.matrix("ggn").dense().trace()), rel=1e-9)


def test_sentences_of_different_length_are_asked_too():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.table(x).mean(1))

    batches = [(torch.full((5, k), k), torch.zeros(5).long()) for k in (2, 3, 4)]
    assert linear_in_each_parameter(Problem(seeded(Words), CE, batches))


class Mixed(nn.Module):
    """Casts inside: it does not run wholly in float64."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4).double(), nn.Linear(4, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x.double())).float())


def test_a_model_that_does_not_run_in_float64_is_not_certified():
    x, y = data(30)
    problem = Problem(seeded(Mixed), CE, (x.float(), y), params="b")
    assert not linear_in_each_parameter(problem)
    found = fl.measure(seeded(Mixed), CE, (x.float(), y), "trace", params="b")["trace"]
    assert found.value == pytest.approx(float(problem.matrix().dense().trace()), rel=1e-3)


class Stashing(nn.Module):
    """Keeps its last activation, with its graph or of a vmap that has ended."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        self.kept = self.inner(x)
        return self.head(torch.relu(self.kept))


def test_what_a_pass_leaves_behind_does_not_matter():
    problem = Problem(seeded(Stashing).double(), CE, data(30))
    problem.value_and_gradient()
    assert linear_in_each_parameter(problem)
    names = ["diagonal", "trace:method=exact", "ggn_diagonal", "trace"]
    found = fl.measure(seeded(Stashing).double(), CE, data(30), names)
    assert found["trace"].exact and found["trace:method=exact"].exact


@pytest.mark.parametrize(("scale", "offset"), [(0.1, 3e5), (0.02, 1e4), (1e-3, 100.0), (1e-5, 1.0)])
def test_large_outputs_hide_no_curvature(scale, offset):
    """Almost straight units under large residuals: their curvature decides the trace."""
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1)))
    nn.init.zeros_(model[0].bias)
    nn.init.constant_(model[2].bias, offset)
    x, noise = seeded(lambda: (torch.randn(50, 6), torch.randn(50, 1)), 1)
    given = (scale * x, offset * (1 + noise / 3))
    found = fl.measure(model, nn.MSELoss(), given, "trace", progress=False)["trace"]
    assert not linear_in_each_parameter(Problem(model, nn.MSELoss(), given))
    dense = Problem(model, nn.MSELoss(), given).dense()
    assert found.value == pytest.approx(float(dense.trace()), rel=1e-6)


@pytest.mark.parametrize(
    ("activation", "bias"),
    [(nn.Softplus(threshold=1e9), 33.0), (nn.GELU(), 9.0), (nn.SiLU(), 38.0), (nn.Tanh(), 0.0)],
)
def test_a_bend_of_one_unit_in_the_last_place_is_a_bend(activation, bias):
    """Where the loss is straight it is all the curvature there is; SiLU's is rounded off."""
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 2), activation, nn.Linear(2, 1)).double())
    with torch.no_grad():
        model[0].weight.mul_(1e-15 if bias == 0 else 0.1)
        model[0].bias.fill_(bias)
    given = seeded(lambda: torch.rand(10, 3).double() + 0.5), torch.full((10, 1), -100.0).double()
    huber = nn.HuberLoss(delta=1.0)
    assert not linear_in_each_parameter(Problem(model, huber, given))
    found = fl.measure(model, huber, given, "trace", progress=False)["trace"]
    assert not found.exact and 0 < found.stderr < 1e-11


def test_the_bend_of_saturated_units_is_covered():
    """Softplus at 33: φ″ = σ(1 − σ) is 4.7e-15."""
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 2), nn.Softplus(threshold=1e9)).double())
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(33.0)
    x = seeded(lambda: torch.rand(10, 3).double())
    found = fl.measure(model, lambda f, y: f.sum(1).mean(), (x, x), "trace", progress=False)
    odds = math.exp(-33.0)
    truth = 2 * odds / (1 + odds) ** 2 * float((x.square().sum(1) + 1).mean())
    assert abs(found["trace"].value - truth) <= found["trace"].stderr < 10 * truth


@pytest.mark.parametrize("weak", [1e-4, 1e-8])
def test_a_weak_second_use_of_a_weight_is_seen(weak):
    """The layers' gradients then miss a small part: the trace was wrong in the fourth digit."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x):
            also = (x @ self.a.weight.T) @ torch.full((6, 2), weak, dtype=x.dtype)
            return self.b(torch.relu(self.a(x))) + also

    model, (x, _) = seeded(Twice).double(), data(20)
    y = seeded(lambda: torch.randn(20, 2).double())
    problem = Problem(model, nn.MSELoss(), (x, y))
    assert Ghost.of(problem) is None
    found = fl.measure(model, nn.MSELoss(), (x, y), "gram_trace", progress=False)["gram_trace"]
    assert found.value == pytest.approx(float(problem.matrix("gram").dense().trace()), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_convolutions_with_fixed_statistics_are_certified(dtype):
    """Sums over many positions round, but their bend is zero and their gradients add up."""
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(3),
        )
    )  # fmt: skip
    x = 100 * seeded(lambda: torch.randn(80, 3, 12, 12))
    model(x)
    problem = Problem(model.to(dtype), CE, (x.to(dtype), torch.zeros(80).long()))
    assert linear_in_each_parameter(problem) and Ghost.of(problem) is not None


def test_a_bend_that_few_examples_show_is_seen():
    """One example of 300 has negative units; 64 random examples rarely hold it."""
    x, y = data()
    for index in (0, 150, 299):
        x = x.abs()
        x[index] *= -1
        assert not linear_in_each_parameter(Problem(positive(nn.ELU), CE, (x, y)))


def test_a_certificate_stops_when_it_does_not_fit():
    x, y = data()
    asked = []
    relu = Problem(positive(nn.ReLU), CE, (x, y))
    assert not linear_in_each_parameter(relu, fits=lambda done: bool(asked.append(done)))
    assert asked and 0 < asked[0] < 1
