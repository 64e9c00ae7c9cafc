"""Outputs and batches in the forms of other libraries: taken without doubt, or refused."""

from __future__ import annotations

import re
from collections import OrderedDict, UserDict, namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import flatlab as fl
from flatlab.errors import UserError
from flatlab.problem import Problem

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()
DOCUMENT = Path(__file__).parents[2] / "docs" / "measures.md"
Two = namedtuple("Two", "logits aux_logits")


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def network():
    return seeded(lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)))


def data():
    return seeded(lambda: torch.randn(20, 5), 1), torch.arange(20) % 3


class Wrapped(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.inner, self.form = network(), form

    def forward(self, x):
        return self.form(self.inner(x))


class Output(OrderedDict):
    """As the outputs of transformers: a dict with attributes."""

    def __getattr__(self, name):
        return self[name]


TAKEN = {
    "logits": lambda f: SimpleNamespace(logits=f, hidden=2 * f),
    "a dict with attributes": lambda f: Output(logits=f, hidden=2 * f),
    "a named tuple": lambda f: Two(f, 2 * f),
    "a dict with logits": lambda f: {"aux": 2 * f, "logits": f},
    "a dict of one": lambda f: {"out": f},
    "a tuple of one": lambda f: (f,),
    "a list of one": lambda f: [f],
    "a tuple with nothing else": lambda f: (f, None, None),
}


@pytest.mark.parametrize("name", TAKEN)
def test_an_output_without_doubt_is_taken(name):
    problem = Problem(Wrapped(TAKEN[name]), CE, data())
    plain = Problem(network(), CE, data())
    assert problem.value() == plain.value()
    v = torch.ones(problem.size)
    for kind in ("hessian", "ggn", "fisher", "gram"):
        assert torch.allclose(problem.matrix(kind) @ v, plain.matrix(kind) @ v, atol=1e-6)
        assert torch.allclose(problem.dense(kind), plain.dense(kind), atol=1e-14)
    names = ["trace", "ggn_trace", "input_gradient", "nonuniformity"]
    found = fl.measure(Wrapped(TAKEN[name]), CE, data(), names)
    truth = fl.measure(network(), CE, data(), names)
    for each in names:
        assert found[each].value == pytest.approx(truth[each].value, rel=1e-4)


REFUSED = {
    "a pair": (lambda f: (f, 2 * f), "tuple of 2", "self.model(x)[0]"),
    "a state": (lambda f: (f, (f, f)), "tuple of 2", "self.model(x)[0]"),
    "a dict of two": (lambda f: {"out": f, "aux": f}, "dict with out, aux", "self.model(x)['out']"),
    "an object": (lambda f: SimpleNamespace(out=f), "SimpleNamespace", "self.model(x).…"),
    "nothing": (lambda f: None, "NoneType", "self.model(x)"),
    "a nested tensor": (lambda f: ((f,),), "tuple of 1", "self.model(x)[0]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_output_in_doubt_is_refused_with_the_way_out(name):
    form, given, way_out = REFUSED[name]
    with pytest.raises(UserError, match="the model returned") as caught:
        Problem(Wrapped(form), CE, data())
    assert given in str(caught.value)
    assert way_out in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_users_model_returns_what_it_did():
    model = Wrapped(TAKEN["logits"])
    Problem(model, CE, data())
    assert isinstance(model(data()[0]), SimpleNamespace)
    assert not model._forward_hooks


class Examples(Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return 20

    def __getitem__(self, i):
        x, y = data()
        parts = [x[i]] * (len(self.names) - 1) + [y[i]]
        return dict(zip(self.names, parts, strict=True))


@pytest.mark.parametrize("names", [("x", "y"), ("pixel_values", "labels"), ("image", "target")])
def test_a_dict_of_one_input_and_labels_is_a_pair(names):
    truth = Problem(network(), CE, data()).value()
    x, y = data()
    whole = dict(zip(names, (x, y), strict=True))
    forms = (whole, UserDict(whole), dict(reversed(whole.items())), [whole], Examples(names))
    for given in (*forms, DataLoader(Examples(names), 7)):
        assert Problem(network(), CE, given).value() == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("names", [("input_ids", "attention_mask", "labels"), ("a", "b"), ("x",)])
def test_another_dict_is_refused_with_the_way_out(names):
    one = {name: torch.ones(4, 5) for name in names}
    for given in (one, [one, one], DataLoader(Examples(names), 7), Examples(names)):
        with pytest.raises(UserError, match=f"got dict with {', '.join(names)}: join") as caught:
            Problem(network(), CE, given)
        assert "join several inputs in one tensor" in str(caught.value)
        assert "\n" not in str(caught.value)


class Masked(nn.Module):
    """As a model of transformers: two named inputs, a tuple of outputs."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, input_ids, attention_mask):
        hidden = self.table(input_ids) * attention_mask[:, :, None]
        return self.head(hidden.sum(1)), hidden


def test_the_way_out_of_the_document_works():
    (block,) = re.findall(r"```python\n(class OneTensor.*?)```", DOCUMENT.read_text(), re.DOTALL)
    ids, mask = seeded(lambda: torch.randint(9, (20, 6))), seeded(lambda: torch.arange(6) < 4)
    mask, labels = mask.long().expand(20, 6), torch.arange(20) % 3
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    names = {"torch": torch, "loader": [batch]}
    exec(block, names)
    model = seeded(Masked)
    problem = Problem(names["OneTensor"](model), CE, names["data"])
    outputs, _ = model(ids, mask)
    assert problem.value() == pytest.approx(float(CE(outputs.detach(), labels)), rel=1e-6)
    assert float(problem.dense("ggn").trace()) > 0


class Squeezed(nn.Module):
    """Loses the axis of outputs, and of a single example too."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 5), nn.Linear(5, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(x))).squeeze()


class Flattened(Squeezed):
    def forward(self, x):
        return self.head(torch.tanh(self.inner(x)))[:, 0]


def test_a_squeeze_may_lose_the_axis_of_a_single_example():
    names = ["ggn_lambda_max", "gram_trace", "alignment", "fisher_trace", "nonuniformity", "trace"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, plain = Squeezed().double(), Flattened().double()
        x, y = torch.randn(129, 4).double(), torch.randn(129).double()  # 128 and one
    plain.load_state_dict(model.state_dict())
    found, truth = (
        fl.measure(each, nn.MSELoss(), (x, y), names, progress=False) for each in (model, plain)
    )
    for name in names:
        assert found[name].value == pytest.approx(truth[name].value, rel=1e-12), name


@pytest.mark.parametrize("loss", [nn.SoftMarginLoss(), nn.functional.soft_margin_loss])
def test_the_soft_margin_loss_is_multiplied_in_forward_mode_and_does_not_overflow(loss):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
        x, y = torch.randn(30, 4).double(), torch.randn(30, 1).double().sign()
    names = ["ggn_lambda_max", "ggn_lambda_max:method=lanczos,tolerance=1e-9"]
    dense, found = fl.measure(model, loss, (x, y), names, progress=False).values()
    assert found.value == pytest.approx(dense.value, rel=1e-8)
    assert found.card.loss == getattr(loss, "__name__", "SoftMarginLoss")
    problem = Problem(model, loss, (x, y))
    assert problem.value() == pytest.approx(float(loss(model(x), y).detach()), rel=1e-14)
    with torch.no_grad():
        model[2].weight.mul_(1e4)
    assert 100 < Problem(model, loss, (x, y)).value() < 1e5  # torch's own is infinite
