"""Compiled models are measured as they were written, without compiling anything."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flatlab as fl
from flatlab.problem import Problem

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()
# torch.compile imports much, some of it deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def network():
    return seeded(lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)))


def data():
    return seeded(lambda: torch.randn(20, 5), 1), torch.arange(20) % 3


def never(graph, inputs):
    """A backend whose code must not be used."""

    def run(*args):
        raise AssertionError("compiled code was run")

    return run


def compiled(thing):
    return torch.compile(thing, backend=never)


def as_a_whole():
    return compiled(network())


def twice():
    return compiled(nn.Sequential(compiled(network()[:2]), network()[2]))


def as_a_part():
    return nn.Sequential(compiled(network()[:2]), network()[2])


def in_place():
    model = network()
    model.compile(backend=never)
    model[0].compile(backend=never)
    return model


def its_forward():
    model = network()
    model.forward = compiled(model.forward)
    return model


class Decorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    @compiled
    def forward(self, x):
        return self.inner(x)


MODELS = [as_a_whole, twice, as_a_part, in_place, its_forward, Decorated]


@pytest.mark.parametrize("make", MODELS)
def test_a_compiled_model_is_measured_as_it_was_written(make):
    problem, plain = Problem(make(), CE, data()), Problem(network(), CE, data())
    assert problem.value() == plain.value()
    v = torch.ones(problem.size)
    for kind in ("hessian", "ggn", "fisher", "gram"):
        assert torch.allclose(problem.matrix(kind) @ v, plain.matrix(kind) @ v, atol=1e-6)
        assert torch.allclose(problem.dense(kind), plain.dense(kind), atol=1e-14)
    found = fl.measure(make(), CE, data(), ["trace", "lambda_max", "ggn_trace"])
    truth = fl.measure(network(), CE, data(), ["trace", "lambda_max", "ggn_trace"])
    for name in ("trace", "lambda_max", "ggn_trace"):
        assert found[name].value == pytest.approx(truth[name].value, rel=1e-5)


def test_a_model_whose_code_was_run_before_is_copied():
    model = torch.compile(network(), backend="eager")
    model(data()[0])
    assert Problem(model, CE, data()).value() == Problem(network(), CE, data()).value()
    assert type(model).__name__ == "OptimizedModule"  # the user's own stays compiled


def test_names_are_those_of_the_model_inside():
    model = as_a_whole()
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert list(Problem(model, CE, data(), reference=model.state_dict()).params) == names
    for params in ("0", "_orig_mod.0"):
        assert list(Problem(model, CE, data(), params=params).params) == names[:2]


def test_tied_parameters_stay_tied():
    layer = nn.Linear(5, 5)
    model = nn.Sequential(compiled(layer), nn.Tanh(), layer, nn.Linear(5, 3))
    assert Problem(model, CE, data()).size == 30 + 18


@pytest.mark.parametrize("loss", [CE, nn.functional.cross_entropy])
def test_a_compiled_loss_is_the_loss(loss):
    problem = Problem(network(), compiled(loss), data())
    assert problem.value() == Problem(network(), CE, data()).value()


def test_the_users_compiled_code_is_used_again_afterwards():
    ran = []

    def noted(graph, inputs):
        ran.append(True)
        return graph.forward

    model = torch.compile(network(), backend=noted)
    Problem(model, CE, data()).value()
    assert not ran
    model(data()[0])
    assert ran
