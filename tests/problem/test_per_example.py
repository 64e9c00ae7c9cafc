"""Derivatives of single examples of models that vmap does not take, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import flatlab as fl
from flatlab.errors import UserError
from flatlab.problem import Problem
from flatlab.problem.examples import rows

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


class Recurrent(nn.Module):
    """Its kernel has no batching rule in vmap."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(5, 3, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0][:, -1]


class Branching(nn.Module):
    """Looks at its input with an if, which vmap refuses."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(5, 3)

    def forward(self, x):
        return self.a(x) if bool((x > -99).all()) else 2 * self.a(x)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 3, sparse=True)

    def forward(self, x):
        return self.table(x).mean(1)


def inputs(name):
    if name == "sparse embedding":
        return seeded(lambda: torch.randint(9, (20, 4)), 1)
    shape = (20, 2, 5) if name == "lstm" else (20, 5)
    return seeded(lambda: torch.randn(*shape), 1)


MODELS = {
    "lstm": Recurrent,
    "branch": Branching,
    "sparse embedding": Bag,
    "zero width": lambda: nn.Sequential(nn.Linear(5, 2), empty(2), nn.Linear(0, 3)),
}


def empty(inputs):
    with pytest.warns(UserWarning, match="zero-element"):
        return nn.Linear(inputs, 0)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["ggn", "fisher", "gram"])
def test_exact_traces_are_those_of_the_matrix(name, kind):
    """To 1e-4: float32, which is where the kernel without a rule is used."""
    model, x = seeded(MODELS[name]), inputs(name)
    y = torch.arange(len(x)) % 3
    name = f"{kind}_trace:method=exact"
    found = fl.measure(model, CE, (x, y), name)[name]
    truth = Problem(model, CE, (x, y), dtype="float64").matrix(kind).dense()
    assert found.value == pytest.approx(float(truth.trace()), rel=1e-4)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", MODELS)
def test_usual_measures_work(name):
    model, x = seeded(MODELS[name]), inputs(name)
    y = torch.arange(len(x)) % 3
    names = ["trace", "lambda_max", "layer_trace", "layer_lambda_max", "diagonal"]
    found = fl.measure(model, CE, (x, y), names)
    assert len(found) == len(names)


def test_rows_one_by_one_are_the_rows():
    model, x = seeded(Branching).double(), inputs("branch").double()
    problem = Problem(model, CE, (x, torch.arange(20) % 3))
    v = torch.ones(20, 3, dtype=torch.float64)
    found = rows(problem, x, v)
    weight = (v[:, :, None] * x[:, None, :]).flatten(1)
    assert torch.allclose(found, torch.cat([weight, v], 1), rtol=1e-12)


def test_a_loss_that_looks_at_its_labels_is_bent_one_by_one():
    def choosy(o, y):
        return cross_entropy(o, y) if int(y.max()) < 99 else o.sum()

    x, y = inputs("branch"), torch.arange(20) % 3
    model = seeded(lambda: nn.Linear(5, 3)).double()
    found = fl.measure(model, choosy, (x, y), "trace")["trace"]
    plain = fl.measure(model, CE, (x, y), "trace")["trace"]
    assert found.value == pytest.approx(plain.value, rel=1e-9)


def test_a_norm_without_statistics_mixes_examples():
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False))
    with pytest.raises(UserError, match="track_running_stats=False mixes"):
        fl.measure(model, CE, (inputs("branch"), torch.arange(20) % 3), "input_gradient")


def test_the_way_out_for_an_operation_without_forward_mode_is_named():
    problem = Problem(seeded(Recurrent), CE, (inputs("lstm"), torch.arange(20) % 3))
    with pytest.raises(UserError, match="without forward mode: replace it, or try dtype='float64'"):
        problem.matrix("ggn") @ torch.ones(problem.size)
