"""A loss is a function of the outputs: trainable tensors of its own are refused, not forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from flatlab.errors import UserError
from flatlab.problem import Problem

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()
DOCUMENT = Path(__file__).parents[2] / "docs" / "measures.md"


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def network():
    return seeded(lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))).double()


def data():
    return seeded(lambda: torch.randn(20, 5), 1).double(), torch.arange(20) % 3


def penalty(model):
    return sum(p.square().sum() + 0.1 * p.pow(4).sum() for p in model.parameters()) / 2


class Scaled(nn.Module):
    """Cross-entropy at a temperature that is learned."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.full((), 2.0))

    def forward(self, o, y):
        return CE(o / self.temperature, y)


def refused(model, loss):
    with pytest.raises(UserError) as caught:
        Problem(model, loss, data())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_penalty_on_the_model_is_refused():
    model = network()
    says = refused(model, lambda o, y: CE(o, y) + penalty(model))
    assert "uses parameters of the model (0.weight, 0.bias, 2.weight …) besides its outputs" in says
    assert "one more output" in says


def test_one_computed_beforehand_is_refused_too():
    model = network()
    before = penalty(model[2])
    says = refused(model, lambda o, y: CE(o, y) + before)
    assert "(2.weight, 2.bias)" in says


def test_parameters_of_a_loss_are_refused():
    assert "trainable tensors of its own (of shape ())" in refused(network(), Scaled())


def test_a_loss_of_the_penalty_alone_is_refused():
    model = network()
    refused(model, lambda o, y: penalty(model))


def test_fixed_numbers_are_taken():
    model, frozen = network(), Scaled().requires_grad_(False)
    half = Problem(model, lambda o, y: CE(o / 2, y), data())
    assert torch.allclose(Problem(model, frozen, data()).dense(), half.dense(), atol=1e-14)
    shifted = Problem(model, lambda o, y: CE(o, y) + penalty(model).detach(), data())
    assert torch.allclose(shifted.dense(), Problem(model, CE, data()).dense(), atol=1e-14)


def test_a_model_whose_copy_runs_the_original_is_refused():
    model = network()
    inner = model.forward
    model.forward = lambda x: inner(x)
    assert "a copy of the model still uses parameters of the original" in refused(model, CE)


def test_a_hook_that_uses_its_own_module_is_copied():
    model = network()
    model[2].register_forward_hook(lambda module, given, out: out + module.bias)
    assert Problem(model, CE, data()).value() > 0


def test_the_way_out_for_a_penalty_has_its_curvature():
    """The document's module and loss, against the Hessian of the whole sum."""
    (block,) = re.findall(r"```python\n(class Penalised.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names = {"torch": torch, "loss": CE}
    exec(block, names)
    model, (x, y) = network(), data()
    sizes = [p.numel() for p in model.parameters()]

    def whole(theta):
        parts = zip(model.named_parameters(), torch.split(theta, sizes), strict=True)
        given = {name: part.view_as(p) for (name, p), part in parts}
        penalised = sum(p.square().sum() + 0.1 * p.pow(4).sum() for p in given.values()) / 2
        return CE(functional_call(model, given, (x,)), y) + penalised

    problem = Problem(names["Penalised"](model, penalty), names["penalised"], (x, y))
    truth = jacrev(jacrev(whole))(problem.theta)
    assert torch.allclose(problem.dense(), truth, atol=1e-13)
    assert torch.allclose(problem.matrix().dense(), truth, atol=1e-13)


def test_the_way_out_for_a_temperature_has_its_curvature():
    class Tempered(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model, self.temperature = model, nn.Parameter(torch.full((), 2.0).double())

        def forward(self, x):
            return self.model(x) / self.temperature

    assert Problem(Tempered(network()), CE, data()).size == Problem(network(), CE, data()).size + 1
