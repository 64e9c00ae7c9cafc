"""Losses that are linear in the outputs have no Gauss–Newton matrix to speak of."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flatlab as fl
from flatlab.errors import UserError
from flatlab.problem import Problem
from flatlab.problem.examples import exact_diagonal, exact_traces

torch.set_num_threads(1)
N = 20


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def network(*last):
    return seeded(lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), *last))


def inputs():
    return seeded(lambda: torch.randn(N, 5), 1)


def labels():
    return seeded(lambda: torch.randn(N, 3), 2)


def classified(loss):
    return Problem(network(nn.LogSoftmax(1)), loss, (inputs(), torch.arange(N) % 3))


CASES = {
    "NLLLoss": (lambda: classified(nn.NLLLoss()), "use CrossEntropyLoss"),
    "nll_loss": (lambda: classified(nn.functional.nll_loss), "use CrossEntropyLoss"),
    "L1Loss": (
        lambda: Problem(network(nn.Tanh()), nn.L1Loss(), (inputs(), labels())),
        "measure the Hessian or the Gram matrix",
    ),
    "margin": (
        lambda: Problem(
            network(nn.Tanh()), lambda o, y: (1 - o * y).clamp(min=0).mean(), (inputs(), labels())
        ),
        "measure the Hessian or the Gram matrix",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "ask",
    [
        lambda problem: problem.matrix("ggn"),
        lambda problem: problem.dense("ggn"),
        lambda problem: exact_traces(problem, "ggn"),
        lambda problem: exact_diagonal(problem, "ggn"),
    ],
)
def test_the_gauss_newton_matrix_is_refused(name, ask):
    make, says = CASES[name]
    with pytest.raises(UserError, match="is linear in the model's outputs, so its") as caught:
        ask(make())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("measure", ["ggn_trace", "ggn_lambda_max"])
def test_a_measure_of_it_is_refused(measure):
    with pytest.raises(UserError, match="end the model before log_softmax"):
        fl.measure(
            network(nn.LogSoftmax(1)), nn.NLLLoss(), (inputs(), torch.arange(N) % 3), measure
        )


def test_the_way_out_gives_the_matrix():
    made = Problem(network(), nn.CrossEntropyLoss(), (inputs(), torch.arange(N) % 3))
    assert float(made.dense("ggn").trace()) > 0
    assert torch.allclose(made.dense(), classified(nn.NLLLoss()).dense(), atol=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["hessian", "fisher", "gram"])
def test_the_other_matrices_are_there(name, kind):
    problem = CASES[name][0]()
    assert float(problem.dense(kind).norm()) > 0
    assert bool((problem.matrix(kind) @ torch.ones(problem.size)).any())


def test_the_hessian_of_a_network_linear_in_each_parameter_has_trace_zero():
    problem = Problem(network(), nn.L1Loss(), (inputs(), labels()))
    assert not exact_traces(problem, "hessian").any()
    assert not exact_diagonal(problem, "hessian").any()
    with pytest.raises(UserError, match="is zero by definition"):
        fl.measure(network(), nn.L1Loss(), (inputs(), labels()), "ggn_trace")
    found = fl.measure(network(), nn.L1Loss(), (inputs(), labels()), "trace")["trace"]
    assert found.exact and found.value == 0 == float(problem.dense().trace())


def squared_hinge(o, y):
    return (1 - o * y).clamp(min=0).square().mean()


VANISHING = {
    "softmax far out": (nn.CrossEntropyLoss(), 1e6, lambda f: f.argmax(1)),
    "Huber's loss far out": (nn.HuberLoss(), 1.0, lambda f: f + 100),
    "margins that are met": (squared_hinge, 1e6, lambda f: f.sign()),
}


@pytest.mark.parametrize("name", VANISHING)
def test_a_second_derivative_that_vanishes_here_only_is_an_answer(name):
    loss, scale, labels_of = VANISHING[name]
    model = network()
    with torch.no_grad():
        model[2].weight.mul_(scale)
        data = (inputs(), labels_of(model(inputs())))
    problem = Problem(model, loss, data)
    assert not problem.dense("ggn").any()
    assert not exact_traces(problem, "ggn").any()


@pytest.mark.parametrize("measure", ["ggn_lambda_max", "ggn_trace", "ggn_frobenius"])
def test_it_is_zero_for_a_large_network_too(measure):
    model = seeded(lambda: nn.Sequential(nn.Linear(5, 200), nn.ReLU(), nn.Linear(200, 3)))
    far = (inputs(), labels() + 100)  # where Huber's loss is linear
    found = fl.measure(model, nn.HuberLoss(), far, [measure], progress=False)[measure]
    assert (found.value, found.exact) == (0.0, True)


def test_a_softmax_that_is_sure_and_wrong_is_not_called_exact():
    """p(1 − p) has lost its digits, though the slopes are large."""
    model = nn.Linear(4, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(15.0 * torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1]]))
    data = (torch.eye(4).double(), torch.tensor([0, 1, 0, 1]))
    found = fl.measure(model, nn.CrossEntropyLoss(), data, "ggn_trace", progress=False)["ggn_trace"]
    p = torch.sigmoid(torch.tensor(-30.0).double())
    assert not found.exact
    low, high = found.interval()
    assert low <= float(2 * p * (1 - p)) <= high
