"""The certificate checks examples from all the data, for any model."""

from __future__ import annotations

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
    assert abs(found.value - truth) <= 4 * found.stderr <= 0.4 * truth


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
