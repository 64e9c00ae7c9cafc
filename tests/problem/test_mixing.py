"""Models whose output for an example depends on the other examples of its batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flatlab as fl
from flatlab.errors import UserError
from flatlab.problem import Problem

torch.set_num_threads(1)
MSE = nn.MSELoss()


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        h = torch.tanh(self.a(x.flatten(1)[:, :4]))
        return self.b(h - h.mean(0))


class Attending(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        self.b = nn.Linear(4, 2)

    def forward(self, x):
        return self.b(self.attention(x, x, x)[0].mean(1))


class Recurrent(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.recurrent, self.b = nn.LSTM(4, 3, batch_first=batch_first), nn.Linear(3, 2)

    def forward(self, x):
        return self.b(self.recurrent(x)[0][:, -1])


MIXING = {
    "centred": Centred,
    "attention": lambda: Attending(False),
    "LSTM": lambda: Recurrent(False),
}


def case(make, n=20, dtype=torch.float64):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.randn(n, 3, 4, dtype=dtype) + torch.linspace(-2, 2, n, dtype=dtype)[:, None, None]
        return make().to(dtype), (x, torch.randn(n, 2, dtype=dtype))


def jacobian(model, x):
    """All ∂f/∂θ of the batch as it is, (outputs, size)."""
    rows = [torch.autograd.grad(v, model.parameters(), retain_graph=True) for v in model(x).ravel()]
    return torch.stack([torch.cat([part.ravel() for part in row]) for row in rows])


@pytest.mark.parametrize("name", MIXING)
def test_matrices_are_those_of_the_batch(name):
    """They were computed from single examples, and called exact: off by 17 to 64 %."""
    model, (x, y) = case(MIXING[name])
    assert Problem(model, MSE, (x, y)).mixed
    found = fl.measure(model, MSE, (x, y), ["trace", "gram_trace", "ggn_trace"], progress=False)
    J = jacobian(model, x)
    gram = float(J.square().sum()) / len(x)
    assert found["gram_trace"].exact
    assert found["gram_trace"].value == pytest.approx(gram, rel=1e-9)
    assert found["ggn_trace"].value == pytest.approx(gram, rel=1e-9)  # ∂²ℓ/∂f² is the identity
    dense = float(Problem(model, MSE, (x, y)).matrix().dense().trace())
    assert found["trace"].value == pytest.approx(dense, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_batch_is_not_cut(dtype):
    """In pieces of 128 it would be another function."""
    model, (x, y) = case(Centred, 300, dtype)
    problem = Problem(model, MSE, (x, y))
    assert [len(x) for x, _ in problem.batches] == [300]
    assert problem.value() == pytest.approx(float(MSE(model(x), y).detach()), rel=1e-5)
    given = Problem(model, MSE, [(x[:100], y[:100]), (x[100:], y[100:])])
    assert given.mixed and [len(x) for x, _ in given.batches] == [100, 200]


@pytest.mark.parametrize("name", ["fisher_rao", "input_gradient", "alignment", "nonuniformity"])
def test_measures_of_single_examples_say_what_to_do(name):
    model, data = case(MIXING["attention"])
    with pytest.raises(UserError, match="batch_first=True"):
        fl.measure(model, MSE, data, name, progress=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_models_do_not_mix(dtype):
    for make in (lambda: Attending(True), lambda: Recurrent(True)):
        model, data = case(make, 200, dtype)
        problem = Problem(model, MSE, data)
        assert not problem.mixed and len(problem.batches) == 2
    tokens = torch.randint(0, 9, (50, 3))
    words = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 2)).to(dtype)
    assert not Problem(words, MSE, (tokens, torch.zeros(50, 2))).mixed


def test_weak_coupling_is_coupling():
    class Weak(Centred):
        def forward(self, x):
            h = torch.tanh(self.a(x.flatten(1)[:, :4]))
            return self.b(h - 1e-6 * h.mean(0))

    model, data = case(Weak)
    assert Problem(model, MSE, data).mixed
