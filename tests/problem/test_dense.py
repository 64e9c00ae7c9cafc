"""Dense matrices in float64, against derivatives that torch.func takes of the whole loss."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from flatlab.problem import Problem
from flatlab.problem.examples import exact_traces, factors
from flatlab.problem.losses import slopes

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()
KINDS = ["hessian", "ggn", "fisher", "gram"]


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


class Recurrent(nn.Module):
    """Its kernel has no batching rule in vmap."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(3, 2, batch_first=True)

    def forward(self, x):
        return self.cell(x.view(len(x), 4, 3))[0][:, -1]


class Branching(nn.Module):
    """Looks at its input with an if, which vmap refuses."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 3)

    def forward(self, x):
        return torch.tanh(self.a(x)) if bool((x > -99).all()) else self.a(x)


MODELS = {
    "tanh": lambda: nn.Sequential(nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 3)),
    "relu": lambda: nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 12)), nn.Conv1d(1, 3, 3, padding=1), nn.GELU(), nn.MaxPool1d(2),
        nn.Flatten(), nn.Linear(18, 3)),
    "statistics": lambda: nn.Sequential(
        nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Softplus(), nn.LayerNorm(4), nn.Linear(4, 3)),
    "lstm": Recurrent,
    "branch": Branching,
}  # fmt: skip
LOSSES = {"cross-entropy": CE, "squares": nn.MSELoss(), "sum of squares": lambda o, y: (
    (o - y).square().sum() / len(o))}  # fmt: skip


def examples(n, loss):
    x = seeded(lambda: torch.randn(n, 12), 1)
    return x, torch.arange(n) % 2 if loss is CE else seeded(lambda: torch.randn(n, 3), 2)


def oracle(problem, kind):
    """Return the matrix by its definition, from the Jacobian of all outputs at once."""
    x, y = (torch.cat(parts) for parts in zip(*problem.batches, strict=True))
    sizes = [p.numel() for p in problem.params.values()]

    def outputs(theta):
        parts = zip(problem.params.items(), torch.split(theta, sizes), strict=True)
        given = {name: part.view_as(p) for (name, p), part in parts}
        return functional_call(problem.model, given, (x,))

    def each(f, y_i):
        return problem.loss(f[None], y_i[None])

    if kind == "hessian":
        return jacrev(jacrev(lambda theta: problem.loss(outputs(theta), y)))(problem.theta)
    total = torch.zeros(problem.size, problem.size, dtype=torch.float64)
    for J, f, y_i in zip(jacrev(outputs)(problem.theta), outputs(problem.theta), y, strict=True):
        u = jacrev(each)(f.detach(), y_i)
        middle = {"ggn": lambda f=f, y_i=y_i: jacrev(jacrev(each))(f.detach(), y_i),
                  "fisher": lambda u=u: torch.outer(u, u),
                  "gram": lambda f=f: torch.eye(len(f), dtype=f.dtype)}[kind]()  # fmt: skip
        total += J.detach().T @ middle @ J.detach()
    return total / len(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_dense_matrices_are_those_of_the_definition(name, kind, loss):
    """150 examples are two batches; 1e-10 is float64 with four digits to spare."""
    if (name == "lstm" and loss != "cross-entropy") or (name == "statistics" and kind == "hessian"):
        pytest.skip("two outputs; no second derivative in torch.func")
    model, loss = seeded(MODELS[name]), LOSSES[loss]
    found = Problem(model, loss, examples(150, loss)).dense(kind)
    truth = oracle(Problem(model, loss, examples(150, loss), dtype="float64"), kind)
    assert found.dtype == torch.float64
    assert torch.equal(found, found.T)
    assert float((found - truth).norm()) <= 1e-10 * float(truth.norm())


def by_differences(problem):
    """Return the Hessian from central differences of the gradient, to about 1e-8."""
    columns, h = [], 1e-5
    for unit in torch.eye(problem.size, dtype=torch.float64):
        sides = []
        for sign in (1, -1):
            with problem.moved(sign * h * unit):
                sides.append(problem.value_and_gradient()[1])
        columns.append((sides[0] - sides[1]) / (2 * h))
    return torch.stack(columns)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_statistics_are_differentiated_too(mode):
    """torch.func's second derivatives of BatchNorm in training and of LayerNorm are wrong."""
    model, data = seeded(MODELS["statistics"]).double(), examples(40, CE)
    problem = Problem(model, CE, data, mode=mode, batch_size=20)
    found, truth = problem.dense(), by_differences(problem)
    assert float((found - truth).norm()) <= 1e-7 * float(truth.norm())
    for kind in KINDS:  # in training there are no single examples: products
        assert torch.allclose(problem.dense(kind), problem.matrix(kind).dense(), atol=1e-12)


def test_a_part_of_the_parameters_is_a_block():
    model, data = seeded(MODELS["tanh"]), examples(20, CE)
    whole, part = Problem(model, CE, data), Problem(model, CE, data, params="2")
    for kind in KINDS:
        assert torch.allclose(part.dense(kind), whole.dense(kind)[78:, 78:], atol=1e-14)


def test_the_precise_problem_is_the_same_in_float64():
    model = seeded(MODELS["statistics"])
    loss = nn.CrossEntropyLoss(weight=torch.full((3,), 2.0))  # its own numbers are float32
    problem = Problem(model, loss, examples(20, CE), params="0", reference=model.state_dict())
    precise = problem.precise
    assert precise is problem.precise is precise.precise
    assert {precise.dtype, precise.theta.dtype, precise.outputs[0].dtype} == {torch.float64}
    assert precise.batches[0][0].dtype == precise.reference.dtype == torch.float64
    assert torch.equal(precise.theta, problem.theta.double())
    assert list(precise.params) == list(problem.params)
    assert precise.value() == pytest.approx(problem.value(), rel=1e-6)
    assert problem.theta.dtype == problem.outputs[0].dtype == torch.float32


class Single(nn.Module):
    """Runs in float32 only, or returns float32 always."""

    def __init__(self, fails):
        super().__init__()
        self.a, self.fails = nn.Linear(12, 3), fails

    def forward(self, x):
        return self.a(x.float()) if self.fails else self.a(x).float()


@pytest.mark.parametrize("fails", [True, False])
def test_a_model_that_is_not_for_float64_is_measured_as_it_is(fails):
    problem = Problem(seeded(lambda: Single(fails)), CE, examples(20, CE))
    assert problem.precise is problem
    plain = Problem(seeded(lambda: Single(fails)).a, CE, examples(20, CE))
    assert torch.allclose(problem.dense(), plain.dense(), rtol=1e-4, atol=1e-6)


def test_other_data_and_other_parameters_are_another_precise_problem():
    problem = Problem(seeded(MODELS["tanh"]), CE, examples(60, CE))
    here, outputs = problem.dense(), problem.outputs
    made = copy.copy(problem)
    made.batches, made.n = [(x[:7], y[:7]) for x, y in problem.batches], 7
    assert made.precise.n == len(made.outputs[0]) == 7
    with problem.moved(torch.ones(problem.size)):
        assert torch.equal(problem.precise.theta, problem.theta.double())
        assert not torch.allclose(problem.dense(), here)
        assert not torch.allclose(problem.outputs[0], outputs[0])
    assert torch.equal(problem.dense(), here) and problem.outputs is outputs
    assert torch.equal(problem.precise.theta, problem.theta.double())


def fitted():
    """Return a float32 network with margins of 22, so that 1 − p is below float32's rounding."""
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.diag(torch.tensor([22.0, 22.5, 23.0])))
    return model, (torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4))


def test_a_loss_below_the_rounding_of_float32_has_its_curvature():
    """Outputs are the same in both precisions; 1e-5 is float64's 1 − p at p = 1 − 5e-10."""
    model, data = fitted()
    problem, double = Problem(model, CE, data), Problem(model, CE, data, dtype="float64")
    assert 0 < double.value() < 1e-9
    assert problem.value() == pytest.approx(double.value(), rel=1e-6)
    assert problem.value_and_gradient()[0] == problem.value()
    gradient = double.value_and_gradient()[1].norm()
    assert float(problem.value_and_gradient()[1].norm()) == pytest.approx(float(gradient), rel=1e-5)
    curvature = float(oracle(double, "hessian").trace())
    assert float(problem.matrix().dense().trace()) == pytest.approx(curvature, rel=1e-5)
    for kind in ("ggn", "fisher"):
        truth = float(oracle(double, kind).trace())
        assert exact_traces(problem, kind).sum() == pytest.approx(truth, rel=1e-5)
        assert float(problem.dense(kind).trace()) == pytest.approx(truth, rel=1e-5)
        assert float(problem.matrix(kind).dense().trace()) == pytest.approx(truth, rel=1e-5)
    f, y = problem.outputs[0], problem.batches[0][1]
    assert slopes(CE, f, y).dtype == factors(problem, "ggn", f, y)[0].dtype == torch.float64


def test_a_loss_that_takes_float32_only_is_taken_as_it_is():
    def picky(o, y):
        assert o.dtype == torch.float32
        return nn.functional.cross_entropy(o, y)

    model, data = seeded(MODELS["tanh"]), examples(20, CE)
    problem, plain = Problem(model, picky, data), Problem(model, CE, data)
    assert problem.precise is problem
    assert problem.value() == pytest.approx(plain.value(), rel=1e-6)
    for kind in KINDS:
        assert torch.allclose(problem.dense(kind), plain.dense(kind), rtol=1e-4, atol=1e-5)
