"""Attention layers of torch, whose fast path in eval mode has no derivatives of every kind."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev
from torch.nn.attention import SDPBackend, sdpa_kernel

import flatlab as fl
from flatlab.errors import UserError
from flatlab.problem import Problem
from flatlab.problem.examples import exact_diagonal, exact_traces, rows
from flatlab.problem.problem import kernels

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()
N, TOKENS, WIDTH = 7, 3, 4


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.inner(x, x, x, need_weights=False)[0].mean(1))


class Encoder(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(WIDTH, 2, 5, dropout, batch_first=True)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.inner(x).mean(1))


MODELS = {"attention": Attention, "encoder": Encoder}


def data():
    return seeded(lambda: torch.randn(N, TOKENS, WIDTH), 1), torch.arange(N) % 3


@pytest.fixture(scope="module")
def truths():
    """The dense matrices of each model, in float64, from jacrev with the fast path off."""
    found = {}
    for name, make in MODELS.items():
        model, (x, y) = seeded(make).double().train(False), data()
        params = dict(model.named_parameters())
        theta = torch.cat([p.detach().flatten() for p in params.values()])
        sizes = [p.numel() for p in params.values()]

        def outputs(theta, model=model, params=params, sizes=sizes, x=x):
            parts = zip(params.items(), torch.split(theta, sizes), strict=True)
            given = {name: part.view_as(p) for (name, p), part in parts}
            return functional_call(model, given, (x.double(),))

        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with sdpa_kernel(SDPBackend.MATH):
                J, f = jacrev(outputs)(theta).detach(), outputs(theta).detach()
                hessian = torch.autograd.functional.hessian(  # torch.func's is wrong for LayerNorm
                    lambda theta, outputs=outputs, y=y: CE(outputs(theta), y), theta
                )
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
        p = f.softmax(1)
        middle = {
            "ggn": torch.diag_embed(p) - p[:, :, None] * p[:, None, :],
            "fisher": (p - torch.eye(3)[y])[:, :, None] * (p - torch.eye(3)[y])[:, None, :],
            "gram": torch.eye(3).double().expand(N, 3, 3),
        }
        found[name] = {
            kind: torch.einsum("nap,nab,nbq->pq", J, B, J) / N for kind, B in middle.items()
        }
        found[name] |= {"hessian": hessian, "rows": J.sum(1)}
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["hessian", "ggn", "fisher", "gram"])
@pytest.mark.parametrize("name", MODELS)
def test_products_and_exact_routes_are_those_of_the_definition(truths, name, kind, dtype):
    truth, problem = truths[name][kind], Problem(seeded(MODELS[name]), CE, data(), dtype=dtype)
    rounding = {"float32": 1e-5, "float64": 1e-12}[dtype]

    def agree(found, expected, digits=rounding):
        return float((found - expected).norm()) <= digits * float(expected.norm())

    assert agree(problem.matrix(kind).dense(), truth)
    assert agree(problem.dense(kind), truth, 1e-12)
    if kind != "hessian":
        blocks = torch.split(truth.diagonal(), [p.numel() for p in problem.params.values()])
        found = torch.split(torch.from_numpy(exact_traces(problem, kind)), list(map(len, blocks)))
        found, true = (torch.stack([part.sum() for part in each]) for each in (found, blocks))
        assert agree(found, true)
        assert agree(torch.from_numpy(exact_diagonal(problem, kind)), truth.diagonal())
        each = rows(problem, problem.batches[0][0], torch.ones(N, 3))
        assert agree(each, truths[name]["rows"])


def test_the_usual_measures_work(truths):
    found = fl.measure(seeded(Encoder), CE, data(), ["trace", "lambda_max", "ggn_lambda_max"])
    for name, kind in (("lambda_max", "hessian"), ("ggn_lambda_max", "ggn")):
        truth = float(torch.linalg.eigvalsh(truths["encoder"][kind])[-1])
        assert found[name].value == pytest.approx(truth, rel=2e-3)  # a tolerance of 1e-3


@pytest.mark.parametrize("enabled", [True, False])
def test_the_switch_of_the_fast_path_is_put_back(enabled):
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        with pytest.raises(ValueError, match="inside"), kernels():
            assert not torch.backends.mha.get_fastpath_enabled()
            raise ValueError("inside")
        assert torch.backends.mha.get_fastpath_enabled() is enabled
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


class Distances(nn.Linear):
    """Distances have no forward mode in torch, in any precision."""

    def forward(self, x):
        return torch.cdist(super().forward(x.flatten(1))[:, :, None], torch.ones_like(x[:, :1, :1]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_hint_does_not_advise_the_dtype_that_it_is(dtype):
    problem = Problem(
        seeded(lambda: Distances(TOKENS * WIDTH, 3)),
        lambda o, y: CE(o[:, :, 0], y),
        data(),
        dtype=dtype,
    )
    with pytest.raises(UserError, match="a product with the ggn failed") as caught:
        problem.matrix("ggn") @ torch.ones(problem.size)
    assert ("float64" in str(caught.value)) == (dtype == "float32")
