"""The exact diagonal for layers and losses with unusual options, against the dense matrix."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch
from torch import nn

import flatlab as fl
from flatlab.problem import Problem

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


X = seeded(lambda: torch.randn(15, 2, 7, 7).double())
Y = torch.arange(15) % 3


def network(*layers):
    with torch.no_grad():
        inner = nn.Sequential(*layers, nn.ReLU(), nn.Flatten()).double()
        return nn.Sequential(*inner, nn.Linear(inner(X).shape[1], 3)).double()


def conv(**options):
    return nn.Conv2d(2, 3, 3, **options)


def hooked(change):
    model = network(conv())
    change(model[0])
    return model


def with_forward(module):
    module.forward = types.MethodType(lambda self, x: 2 * nn.Conv2d.forward(self, x), module)


def tied():
    chain = [nn.Linear(98, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)]
    chain[4].weight = chain[2].weight
    return nn.Sequential(nn.Flatten(), *chain, nn.ReLU(), nn.Linear(8, 3)).double()


CASES = {
    "plain": lambda: network(conv()),
    "groups": lambda: network(nn.Conv2d(2, 4, 3, groups=2)),
    "dilation": lambda: network(conv(dilation=2, stride=2, padding=1)),
    "max-pooling": lambda: network(conv(), nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)),
    "mean-pooling": lambda: network(conv(), nn.AvgPool2d(2, padding=1)),
    "same": lambda: network(conv(padding="same")),
    "reflect": lambda: network(conv(padding=1, padding_mode="reflect")),
    "circular": lambda: network(conv(padding=1, padding_mode="circular")),
    "BatchNorm": lambda: network(conv(), nn.BatchNorm2d(3)),
    "a hook": lambda: hooked(lambda m: m.register_forward_hook(lambda m, i, out: 2 * out)),
    "a hook before": lambda: hooked(
        lambda m: m.register_forward_pre_hook(lambda m, i: (2 * i[0],))
    ),
    "a forward of its own": lambda: hooked(with_forward),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["diagonal", "ggn_diagonal"])
def test_it_is_the_diagonal_of_the_matrix(name, kind):
    model = seeded(CASES[name]).eval()
    found = fl.measure(model, CE, (X, Y), kind)[kind]
    # Linear in each parameter alone, so that both have the same diagonal.
    matrix = "ggn" if name == "tied" else "hessian"
    truth = Problem(model, CE, (X, Y)).matrix(matrix).dense().diagonal().numpy()
    assert found.exact and np.abs(found.value - truth).max() < 1e-12


def test_a_matrix_used_twice_has_an_exact_gauss_newton_diagonal_alone():
    """The network is not linear in it, so the Hessian's diagonal needs the whole matrix."""
    model = seeded(tied)
    assert fl.measure(model, CE, (X, Y), "diagonal")["diagonal"].method == "exact, dense"
    found = fl.measure(model, CE, (X, Y), "ggn_diagonal")["ggn_diagonal"]
    truth = Problem(model, CE, (X, Y)).matrix("ggn").dense().diagonal().numpy()
    assert found.exact and np.abs(found.value - truth).max() < 1e-12


def test_a_chunk_of_examples_without_curvature_counts_as_zero():
    model = nn.Sequential(nn.Flatten(), nn.Linear(98, 1)).double()
    found = fl.measure(model, lambda f, y: f.mean(), (X, Y), "diagonal")["diagonal"]
    assert found.exact and not found.value.any()


LOSSES = {
    "smoothing": nn.CrossEntropyLoss(label_smoothing=0.2),
    "equal weights": nn.CrossEntropyLoss(weight=torch.full((3,), 2.0).double()),
    "another ignored index": nn.CrossEntropyLoss(ignore_index=7),
    "a function": nn.functional.cross_entropy,
    "squares": nn.MSELoss(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_options_of_a_loss_count(name):
    model, loss = seeded(lambda: network(conv())), LOSSES[name]
    y = nn.functional.one_hot(Y, 3).double() if name == "squares" else Y
    found = fl.measure(model, loss, (X, y), "diagonal")["diagonal"]
    truth = Problem(model, loss, (X, y)).matrix().dense().diagonal().numpy()
    assert np.abs(found.value - truth).max() < 1e-12


def test_probabilities_are_not_classes():
    model = seeded(lambda: network(conv()))
    p = torch.softmax(seeded(lambda: torch.randn(15, 3).double()), 1)
    found = fl.measure(model, CE, (X, p), "diagonal")["diagonal"]
    truth = Problem(model, CE, (X, p)).matrix().dense().diagonal().numpy()
    assert np.abs(found.value - truth).max() < 1e-12
