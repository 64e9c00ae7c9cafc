"""Norms, input gradients and margins, against their definitions in float64."""

from __future__ import annotations

import functools
import itertools
import math

import pytest
import torch
from torch import nn

import flatlab as fl
from cases import CASES, Dense
from flatlab.errors import UserError
from flatlab.measures import Effort
from flatlab.measures.function import InputGradient, Margin
from flatlab.measures.norms import Distance, FisherRao, ParameterNorm, PathNorm, WeightedNorm
from flatlab.problem import Problem

MIXED = "batchnorm, train"
CHAINS = ("relu", "relu without bias", "frozen")


@functools.cache
def dense(name):
    return Dense(name)


@functools.cache
def problem(name):
    case = CASES[name]
    return Problem(*case.make(), **case.options)


def value(measure, made):
    found = measure.read(made, Effort(0))
    assert found.exact
    assert found.stderr == 0.0
    return found.value


@pytest.mark.parametrize("name", CASES)
def test_parameter_norm_and_distance(name):
    theta = dense(name).theta
    assert value(ParameterNorm(), problem(name)) == pytest.approx(float(theta.norm()), rel=1e-10)
    case = CASES[name]
    model, loss, data = case.make()
    start = {key: p.detach() + 0.5 for key, p in model.named_parameters()}
    made = Problem(model, loss, data, **case.options, reference=start)
    assert value(Distance(), made) == pytest.approx(0.5 * math.sqrt(len(theta)), rel=1e-7)


def test_a_distance_needs_a_reference():
    with pytest.raises(UserError, match="reference=initial_state_dict"):
        Distance().read(problem("relu"), Effort(0))


@pytest.mark.parametrize("name", [name for name in CASES if name != MIXED])
def test_fisher_rao_is_the_quadratic_form_of_the_fisher(name):
    theta = dense(name).theta
    truth = math.sqrt(float(theta @ dense(name).matrix("fisher") @ theta))
    assert value(FisherRao(), problem(name)) == pytest.approx(truth, rel=1e-10)


def test_fisher_rao_by_eulers_identity():
    """A bias-free ReLU network of depth 3 is homogeneous of degree 3: ⟨θ, ∇ℓ⟩ = 3 ⟨∂ℓ/∂f, f⟩."""
    truth = dense("relu without bias")
    (x, y) = truth.batches[0]
    f = truth.outputs(truth.theta, x).detach()
    u = torch.softmax(f, 1) - nn.functional.one_hot(y, 3)
    expected = 3 * math.sqrt(float((u * f).sum(1).square().mean()))
    assert value(FisherRao(), problem("relu without bias")) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("measure", [FisherRao(), InputGradient()])
def test_single_examples_are_needed(measure):
    with pytest.raises(UserError, match="mixes the examples"):
        measure.read(problem(MIXED), Effort(0))


@pytest.mark.parametrize("name", [name for name in CASES if name not in (MIXED, "embedding")])
def test_input_gradient_is_the_mean_over_single_examples(name):
    truth, norms = dense(name), []
    for x, y in truth.batches:
        for i in range(len(x)):
            one = x[i : i + 1].clone().requires_grad_(True)
            loss = truth.loss(truth.outputs(truth.theta, one), y[i : i + 1])
            (slope,) = torch.autograd.grad(loss, one)
            norms.append(float(slope.norm()))
    found = value(InputGradient(), problem(name))
    assert found == pytest.approx(sum(norms) / len(norms), rel=1e-10)


def test_tokens_have_no_gradient():
    with pytest.raises(UserError, match="real inputs"):
        InputGradient().read(problem("embedding"), Effort(0))


class Tokens(nn.Embedding):
    """An embedding that takes tokens as floats."""

    def forward(self, x):
        return super().forward(x.long()).sum(1)


def test_inputs_that_the_model_rounds_have_no_gradient():
    given = Tokens(4, 3), nn.CrossEntropyLoss(), (torch.ones(6, 2), torch.arange(6) % 3)
    with pytest.raises(UserError, match="rounds or detaches them"):
        InputGradient().read(Problem(*given), Effort(0))


CLASSES = [name for name in CASES if name not in ("linear", "multi-output mse")]


@pytest.mark.parametrize("name", CLASSES)
def test_margin_is_the_smallest_lead_of_the_right_class(name):
    truth, leads = dense(name), []
    for x, y in truth.batches:
        for f, label in zip(truth.outputs(truth.theta, x).detach(), y.tolist(), strict=True):
            if f.ndim == 0:
                leads.append(float(f) * label)
            else:
                others = [float(f[k]) for k in range(len(f)) if k != label]
                leads.append(float(f[label]) - max(others))
    found = Margin().read(problem(name), Effort(0))
    assert found.value == pytest.approx(min(leads), abs=1e-10)
    assert found.details["mean"] == pytest.approx(sum(leads) / len(leads), abs=1e-10)
    assert found.details["accuracy"] == sum(lead > 0 for lead in leads) / len(leads)


class Fixed(nn.Module):
    """Outputs that are its parameters, whatever the input."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = nn.Parameter(torch.tensor(outputs, dtype=torch.float64))

    def forward(self, x):
        return self.outputs + 0 * x[:, : self.outputs.shape[-1]].sum() * self.outputs


MARGINS = [
    ([[1.0, 3.0, 2.0], [5.0, 0.0, 1.0]], torch.tensor([1, 2]), -4.0, 0.5),
    ([[1.0, 3.0], [5.0, 0.0]], torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 2.0, 1.0),
    ([[2.0], [-3.0]], torch.tensor([[1.0], [-1.0]]), 2.0, 1.0),
    ([[2.0], [-3.0]], torch.tensor([[0.0], [1.0]]), -3.0, 0.0),
    # A tie is an error, and so is f = 0.
    ([[3.0, 3.0, 2.0], [5.0, 0.0, 1.0]], torch.tensor([0, 0]), 0.0, 0.5),
    ([[0.0], [-3.0]], torch.tensor([[1.0], [-1.0]]), 0.0, 0.5),
    ([[0.0], [0.0]], torch.tensor([[0.0], [1.0]]), 0.0, 0.0),
]


@pytest.mark.parametrize(("outputs", "y", "expected", "accuracy"), MARGINS)
def test_margins_by_hand(outputs, y, expected, accuracy):
    x = torch.zeros(2, 3, dtype=torch.float64)
    made = Problem(Fixed(outputs), lambda f, y: f.square().mean(), (x, y))
    found = Margin().read(made, Effort(0))
    assert found.value == expected
    assert found.exact or (expected == 0 and found.stderr < 1e-14)  # a tie may be rounding
    assert Margin().read(made, Effort(0)).details["accuracy"] == accuracy
    assert Margin(quantile=1.0).read(made, Effort(0)).value >= expected


def test_a_margin_needs_classes():
    with pytest.raises(UserError, match="regression"):
        Margin().read(problem("linear"), Effort(0))
    with pytest.raises(UserError, match="quantile must be <= 1"):
        Margin(quantile=2.0)


def paths(layers):
    """The sum over all paths to all outputs by enumeration; layers are (weight, bias)."""
    (W, b), *rest = layers
    first = [
        math.sqrt(float(W[j].square().sum()) + (0.0 if b is None else float(b[j]) ** 2))
        for j in range(len(W))
    ]
    # A bias further up is a unit that is always 1.
    sizes = [len(first), *(len(V) for V, _ in rest)]
    total = 0.0
    for units in itertools.product(*(range(size) for size in sizes)):
        weight = first[units[0]]
        for (V, _), lower, upper in zip(rest, units, units[1:], strict=False):
            weight *= abs(float(V[upper, lower]))
        total += weight
    for start, (_, b) in enumerate(rest):
        if b is None:
            continue
        for units in itertools.product(*(range(size) for size in sizes[start + 1 :])):
            weight = abs(float(b[units[0]]))
            for (V, _), lower, upper in zip(rest[start + 1 :], units, units[1:], strict=False):
                weight *= abs(float(V[upper, lower]))
            total += weight
    return total


@pytest.mark.parametrize("name", CHAINS)
def test_path_norm_is_the_sum_over_paths(name):
    model = CASES[name].make()[0]
    layers = [(m.weight.detach(), None if m.bias is None else m.bias.detach()) for m in model[::2]]
    assert value(PathNorm(), problem(name)) == pytest.approx(paths(layers), rel=1e-10)


def test_path_norm_of_a_convolution_is_that_of_its_matrix():
    """Without padding a convolution is a linear layer with repeated weights."""
    conv, head = nn.Conv1d(2, 3, 2).double(), nn.Linear(9, 2).double()
    model = nn.Sequential(conv, nn.ReLU(inplace=True), nn.Flatten(), head)
    x = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = torch.eye(8, dtype=torch.float64).view(8, 2, 4)
    W = (conv(unit) - conv(0 * unit)).flatten(1).T.detach()
    layers = [
        (W, conv.bias.detach().repeat_interleave(3)),
        (head.weight.detach(), head.bias.detach()),
    ]
    made = Problem(model, nn.CrossEntropyLoss(), (x, torch.tensor([0, 1, 1, 0, 1])))
    assert value(PathNorm(), made) == pytest.approx(paths(layers), rel=1e-10)


@pytest.mark.parametrize("arch", [fl.models.TwoLayer(width=6), fl.models.Deep(width=4, depth=4)])
def test_path_norm_of_flatlabs_networks(arch):
    data = fl.data.xor(d=5, n=8, seed=1, n_test=4)
    params = {k: torch.tensor(v).double() for k, v in arch.initial(data.d, 0).items()}
    model = fl.models.build(arch, {k: p.numpy() for k, p in params.items()}, data.x_train)
    made = Problem(model, "mse", (torch.tensor(data.x_train), torch.tensor(data.y_train)))
    matrices = [params[f"W{i}"] for i in range(1, 1 + sum(k[0] == "W" for k in params))]
    layers = [(W if W.ndim == 2 else W[None], None) for W in matrices]
    layers[0] = (layers[0][0], params.get("b1"))
    assert value(PathNorm(), made) == pytest.approx(paths(layers), rel=1e-10)


@pytest.mark.parametrize("name", ["tanh", "batchnorm, eval", "attention", "simplified batchnorm"])
def test_path_norm_needs_a_chain(name):
    with pytest.raises(UserError, match="path_norm needs a Sequential"):
        PathNorm().read(problem(name), Effort(0))


@pytest.mark.parametrize("q", [None, 1.0, 5**0.5])
def test_weighted_norm_of_two_layers(q):
    model = CASES["two-layer"].make()[0]
    W, b, a = (p.detach() for p in (model.W1, model.b1, model.W2))
    truth = float(W.square().sum() + b.square().sum()) + (q or 5) * float(a.square().sum())
    found = WeightedNorm(q=q).read(problem("two-layer"), Effort(0))
    assert found.value == pytest.approx(truth, rel=1e-10)
    assert found.details["root"] == pytest.approx(math.sqrt(truth), rel=1e-10)
    path = PathNorm().read(problem("two-layer"), Effort(0)).value
    assert truth >= 2 * math.sqrt(q or 5) * path  # arithmetic and geometric means


def test_weighted_norm_of_a_sequential_and_of_others():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1, bias=False)).double()
    x = torch.ones(2, 3, dtype=torch.float64)
    made = Problem(model, nn.MSELoss(), (x, x[:, :1]))
    squares = [float(p.detach().square().sum()) for p in model.parameters()]
    assert value(WeightedNorm(q=7.0), made) == pytest.approx(
        squares[0] + squares[1] + 7 * squares[2]
    )
    for name in ("relu", "attention", "linear", "simplified layernorm"):
        with pytest.raises(UserError, match="two-layer networks"):
            WeightedNorm().read(problem(name), Effort(0))
