"""Each model or option that cannot be measured gives a one-line error."""

from __future__ import annotations

import itertools
import sys

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.utils.checkpoint import checkpoint

import flatlab as fl
from flatlab.errors import StoreError, UserError
from flatlab.problem import Problem

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()


def network():
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def data():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.randn(12, 5), torch.arange(12) % 3


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.real, self.other = nn.Linear(5, 5), nn.Linear(5, 3, dtype=torch.complex64)

    def forward(self, x):
        return self.other(self.real(x).to(torch.complex64)).abs()


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 4).double(), nn.Linear(4, 3)

    def forward(self, x):
        return self.b(self.a(x.double()).float())


class Ended(nn.Module):
    def __init__(self, end):
        super().__init__()
        self.inner, self.end = network(), end

    def forward(self, x):
        return torch.stack([self.end(row) for row in self.inner(x)])


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return itertools.repeat(data())


class Long(torch.utils.data.Dataset):
    def __len__(self):
        return 10**12

    def __getitem__(self, index):
        return tuple(part[0] for part in data())


def nested():
    return torch.nested.nested_tensor([torch.ones(2, 5), torch.ones(3, 5)], layout=torch.jagged)


def pruned():
    model = network()
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model


class Sized(torch.utils.data.Dataset):
    def __init__(self, n, example=None):
        self.n, self.example = n, example

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return self.example()


class Calling(nn.Module):
    """A network within a function of it and its input."""

    def __init__(self, function):
        super().__init__()
        self.inner, self.function = network(), function

    def forward(self, x):
        return self.function(self.inner, x)


def leaving(*_):
    sys.exit(0)


def slope(inner, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(inner(x).tanh().sum(), x, create_graph=True)[0][:, :3]


def reentrant(inner, x):
    return checkpoint(inner, x.detach().requires_grad_(), use_reentrant=True)


def half_reentrant(inner, x):
    return inner[2](reentrant(inner[:2], x))


class Wordless(ValueError):
    def __str__(self):
        raise RuntimeError("no words")


def wordless(*_):
    raise Wordless


def in_two_lines(*_):
    raise ValueError("first\nsecond")


def gradient(model):
    return Problem(model, CE, data()).value_and_gradient()


MISTAKES = {
    "a loss that exits": (
        lambda: Problem(network(), leaving, data()), "the loss leaving failed on outputs (12, 3)"),
    "a model that exits": (
        lambda: Problem(Calling(leaving), CE, data()), "SystemExit: 0 (in "),
    "data that exit": (
        lambda: Problem(network(), CE, Sized(3, leaving)), "the data (Sized) failed: SystemExit"),
    "a negative length": (
        lambda: Problem(network(), CE, Sized(-1)), "the data (Sized) failed: __len__() should"),
    "half a length": (
        lambda: Problem(network(), CE, Sized(2.5)), "the data (Sized) failed: 'float' object"),
    "no outputs": (
        lambda: Problem(Calling(lambda inner, x: inner(x)[:, :0]), nn.MSELoss(), data()),
        "gave shape (12, 0): each row needs at least one output"),
    "a class": (
        lambda: Problem(network(), nn.CrossEntropyLoss, data()),
        "loss is a class: write CrossEntropyLoss()"),
    "an error without words": (
        lambda: Problem(network(), wordless, data()), "(torch.int64): Wordless (in "),
    "an error in two lines": (
        lambda: Problem(network(), in_two_lines, data()), "ValueError: first second (in "),
    "gradients inside": (lambda: Problem(Calling(slope), CE, data()), "in torch.enable_grad()"),
    "a checkpoint": (lambda: gradient(Calling(reentrant)), "write use_reentrant=False"),
    "half a checkpoint": (lambda: gradient(Calling(half_reentrant)), "write use_reentrant=False"),
    "params 3": (lambda: Problem(network(), CE, data(), params=3), "params must be name patterns"),
    "a layer": (
        lambda: Problem(network(), CE, data(), params=network()[0]), "got Linear"),
    "a sequence": (
        lambda: Problem(network(), CE, data(), params=network()), "got Sequential"),
    "layers": (lambda: Problem(network(), CE, data(), params=[network()[0]]), "got Linear"),
    "a list of modes": (lambda: Problem(network(), CE, data(), mode=["eval"]), "unknown mode"),
    "meta": (
        lambda: Problem(nn.Linear(5, 3, device="meta"), CE, data()), "weight is on the meta"),
    "meta inputs": (
        lambda: Problem(network(), CE, (data()[0].to("meta"), data()[1])), "x is on the meta"),
    "nested inputs": (
        lambda: Problem(network(), CE, (nested(), data()[1][:2])), "x is a nested tensor"),
    "whole outputs": (
        lambda: Problem(Ended(torch.argmax), CE, data()), "outputs are torch.int64"),
    "yes or no": (lambda: Problem(Ended(torch.signbit), CE, data()), "outputs are torch.bool"),
    "a loss of truths": (
        lambda: Problem(network(), lambda f, y: (f > 0).any(), data()), "returned torch.bool"),
    "a loss of whole numbers": (
        lambda: Problem(network(), lambda f, y: (f > 0).sum(), data()), "returned torch.int64"),
    "classes of one output": (
        lambda: Problem(nn.Linear(5, 1), CE, (data()[0], 0 * data()[1])), "each class, got 1"),
    "classes of one output as shares": (
        lambda: Problem(nn.Linear(5, 1), "cross_entropy", (data()[0], data()[0][:, :1])), "got 1"),
    "labels 0 and 1 for signs": (
        lambda: Problem(nn.Linear(5, 1), "logistic", (data()[0], (data()[1] > 0)[:, None].float())),
        "these are 0 and 1: use 2 * y - 1"),
    "batches without end": (
        lambda: Problem(network(), CE, Endless()), "(Endless) have no length and did not end"),
    "a data set without end": (
        lambda: Problem(network(), CE, Long()), "Long of 1,000,000,000,000 examples needs"),
    "lazy": (lambda: Problem(nn.LazyLinear(3), CE, data()), "run the model on one batch first"),
    "complex": (lambda: Problem(Complex(), CE, data()), "other.weight is complex"),
    "two dtypes": (lambda: Problem(Mixed(), CE, data()), "are float32 and float64"),
    "pruned": (lambda: Problem(pruned(), CE, data()), "0.weight is computed from parameters"),
    "nothing in it": (
        lambda: Problem(nn.Sequential(nn.Linear(5, 3)), CE, data(), params="1"), "matches nothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_mistake_is_one_clear_line(name):
    call, says = MISTAKES[name]
    with pytest.raises(UserError) as caught:
        call()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def _refusing(*_):
    raise StoreError("run `make data` first")


class Refusing(nn.Linear):
    """A model, and a data set of single examples, that knows what to say."""

    def __init__(self):
        super().__init__(5, 3)

    forward = __getitem__ = _refusing

    def __len__(self):
        return 3


@pytest.mark.parametrize("part", ["the model", "the loss", "the data"])
def test_an_error_of_flatlabs_own_in_the_users_code_is_left_as_it_is(part):
    model = Refusing() if part == "the model" else network()
    loss = _refusing if part == "the loss" else CE
    examples = Refusing() if part == "the data" else data()
    with pytest.raises(StoreError, match=r"^run `make data` first$"):
        Problem(model, loss, examples)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_is_refused():
    with pytest.raises(UserError, match=r"scripted or traced by torch\.jit"):
        Problem(torch.jit.script(network()), CE, data())


def test_the_real_part_of_a_complex_model_is_measured():
    assert Problem(Complex(), CE, data(), params="real").size == 30


def test_the_way_out_for_a_pruned_model_works():
    class Mask(nn.Module):
        def forward(self, weight):
            return weight * (weight.abs() > 0.1)

    model = network()
    parametrize.register_parametrization(model[0], "weight", Mask())
    _, gradient = Problem(model, CE, data()).value_and_gradient()
    assert bool(torch.isfinite(gradient).all())


def test_hooks_that_change_the_output_are_part_of_the_function():
    model = network()
    model[2].register_forward_hook(lambda module, given, out: 2 * out)
    x, y = data()
    truth = float(CE(model(x).detach(), y))
    assert Problem(model, CE, (x, y)).value() == pytest.approx(truth, rel=1e-6)


class Odd(torch.autograd.Function):
    """A step whose second derivative fails with a text of its own."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return Failing.apply(g)


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, g):
        return g.clone()

    @staticmethod
    def backward(ctx, v):
        raise RuntimeError("a text of its own")


def test_the_hint_of_a_failed_product_fits_the_failure():
    class Once(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 3)

        def forward(self, x):
            return Odd.apply(torch.tanh(self.a(x)))

    problem = Problem(Once(), CE, data())
    with pytest.raises(UserError, match="cannot differentiate the model and the loss twice"):
        problem.matrix() @ torch.ones(problem.size)


def test_a_second_derivative_of_the_loss_that_is_nan_is_refused():
    """log(1 + e^f) has none in torch where e^f underflows; it must not count as zero curvature."""
    x = torch.tensor([[1.0], [-800.0], [0.5]], dtype=torch.float64)
    y = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
    model = torch.nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    for measure in ("trace", "ggn_trace", "ggn_lambda_max", "diagonal"):
        with pytest.raises(UserError, match="entries that are NaN or infinite"):
            fl.measure(model, "logistic", (x, y), measure)


class TwoOutputs(torch.nn.Module):
    """Two outputs of their own weights."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)

    def forward(self, x):
        return torch.cat([self.a(x), self.b(x)], 1)


def test_an_output_of_small_curvature_counts_beside_a_large_one():
    """The frozen output has a curvature of e^40; the other one alone has parameters."""
    torch.manual_seed(0)
    model, x = TwoOutputs().double(), torch.randn(4, 2, dtype=torch.float64)
    with torch.no_grad():
        model.a.bias.fill_(40.0)
        model.a.weight.mul_(0.1)
    model.a.requires_grad_(False)
    rows = torch.cat([x, torch.ones(4, 1)], 1).square().sum(1)  # ‖∇f‖² of the other output
    true = float(
        (model.b(x).detach().exp()[:, 0] * rows).mean() / 2
    )  # the loss is a mean over outputs
    loss, y = torch.nn.PoissonNLLLoss(), torch.ones(4, 2, dtype=torch.float64)
    for measure in ("trace", "ggn_trace"):
        found = fl.measure(model, loss, (x, y), measure)[measure]
        assert found.exact and found.value == pytest.approx(true, rel=1e-9)


class TwoNames(torch.nn.Module):
    """One layer under two names."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(3, 3)
        self.b = self.a

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def test_a_module_of_two_names_is_measured_as_one_whose_weight_is_used_twice():
    torch.manual_seed(0)
    model, shared = TwoNames().double(), TwoNames().double()
    shared.load_state_dict(model.state_dict())
    shared.b = torch.nn.Linear(3, 3).double()
    shared.b.weight, shared.b.bias = shared.a.weight, shared.a.bias
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randint(3, (5,))
    names = ["ggn_lambda_max", "fisher_lambda_max", "gram_trace:method=probes", "fisher_rao",
             "alignment", "nonuniformity", "trace"]  # fmt: skip
    one, other = (
        fl.measure(each, "cross_entropy", (x, y), names, progress=False) for each in (model, shared)
    )
    for name in names:
        assert one[name].value == pytest.approx(other[name].value, rel=1e-9), name
    assert model.a is model.b


def test_a_model_that_differentiates_inside_is_measured():
    def forces(inner, x):
        with torch.enable_grad():
            return slope(inner, x)

    x, y = data()
    model = Calling(forces).double()
    model.inner[1] = nn.Tanh()
    params = list(model.parameters())
    loss = CE(model(x.double()), y)
    first = torch.autograd.grad(loss, params, create_graph=True, materialize_grads=True)
    flat = torch.cat([part.flatten() for part in first])
    rows = [
        torch.autograd.grad(each, params, retain_graph=True, materialize_grads=True)
        for each in flat
    ]
    truth = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    problem = Problem(model, CE, (x, y))
    found = problem.matrix() @ torch.eye(problem.size)
    # Both are products in float64 of numbers of order 1.
    assert torch.allclose(found, truth, rtol=1e-10, atol=1e-12)
    assert not any(f.requires_grad for f in problem.outputs)
