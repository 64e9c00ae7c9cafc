"""The bound on an extreme eigenvalue: it holds, it is narrow, and it fails as rarely as it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from flatlab.measures import lanczos
from flatlab.measures.effort import Budget, Effort
from flatlab.measures.eigenvalues import LambdaMax, LambdaMin, LayerLambdaMax, TopK
from flatlab.measures.lanczos import Lanczos, growth, largest
from flatlab.problem import Matrix, Problem

SPECTRA = {
    "an outlier": np.append(np.linspace(-0.2, 1.0, 199), 3.0),
    "two close ones": np.append(np.linspace(0.0, 0.5, 198), [0.999, 1.0]),
    "no gap": np.linspace(-1.0, 1.0, 200),
    "many zeros": np.append(np.zeros(190), np.linspace(0.1, 1.0, 10)),
    "repeated": np.repeat([0.0, 0.5, 1.0], [180, 10, 10]),
    "all negative": np.linspace(-5.0, -1.0, 200),
    "zero": np.zeros(200),
    "hidden behind a cluster": np.concatenate([np.full(150, 1.0), np.zeros(49), [1.02]]),
}


def matrix_of(values):
    """Return a matrix with these eigenvalues; it is diagonal, which a random start cannot tell."""
    diagonal = torch.from_numpy(np.asarray(values, np.float64))
    shape = [-1, 1]
    return Matrix(len(values), lambda v: v * (diagonal if v.ndim == 1 else diagonal.view(shape)))


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("tolerance", [1e-1, 1e-3])
def test_the_bound_holds_and_is_as_narrow_as_asked(name, sign, tolerance):
    values = SPECTRA[name]
    truth, scale = float((sign * values).max()), float(np.abs(values).max())
    for seed in range(20):
        top = largest(matrix_of(values), Effort(seed), tolerance, 200, sign=sign)
        rounding = 1e-12 * scale
        assert top.value - rounding <= truth <= top.value + top.error + rounding
        assert top.complete and top.error <= 1.01 * tolerance * scale + rounding


@pytest.mark.parametrize("products", [1, 2, 5, 10])
def test_a_space_cut_short_has_a_wide_bound_that_holds(products):
    for name, values in SPECTRA.items():
        top = largest(matrix_of(values), Effort(1, Budget(products=products)), 1e-9, 200)
        off = values.max() - top.value
        assert -1e-9 <= off <= top.error + 1e-9 and math.isfinite(top.error), name


@pytest.mark.parametrize("doubt", [0.1, 0.3])
def test_it_fails_at_most_as_often_as_it_says(monkeypatch, doubt):
    """A start vector that nearly lacks the top eigenvector is the only way to fail."""
    monkeypatch.setattr(lanczos, "DOUBT", doubt)
    values = SPECTRA["hidden behind a cluster"]
    missed = 0
    for seed in range(400):
        top = largest(matrix_of(values), Effort(seed), 1e-2, 200)
        missed += values.max() > top.value + top.error + 1e-12
    assert 0.02 < missed / 400 <= doubt + 0.05  # a bound that never failed would be too wide


def test_the_growth_bounds_the_share_of_an_eigenvector():
    """⟨u, v⟩² Σ p_j(λ)² is the squared norm of u's projection on the space, at most one."""
    values = SPECTRA["an outlier"]
    space = Lanczos(matrix_of(values), Effort(0).normal("test", 0, len(values)))
    for _ in range(12):
        space.grow()
    for index in (0, 57, 199):
        share = float(space.basis[0, index]) ** 2
        projected = float(space.basis[:, index].square().sum())
        total = share * math.exp(growth(values[index], space.alpha, space.beta))
        assert total == pytest.approx(projected, rel=1e-6) and projected <= 1 + 1e-12


def _problem(seed: int, dtype: torch.dtype = torch.float64) -> Problem:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(60, 6, generator=draw, dtype=torch.float64)
    y = torch.randint(3, (60,), generator=draw)
    net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype) / 2)
    return Problem(net.to(dtype), nn.CrossEntropyLoss(), (x.to(dtype), y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["hessian", "ggn", "fisher", "gram"])
def test_lanczos_agrees_with_the_dense_matrix(kind, dtype):
    for seed in range(5):
        problem = _problem(seed, dtype)
        for measure in (LambdaMax, LambdaMin, TopK, LayerLambdaMax):
            exact = measure(matrix=kind).read(problem, Effort(seed))
            found = measure(matrix=kind, method="lanczos").read(problem, Effort(seed))
            assert not found.exact and found.complete
            off = np.abs(np.asarray(found.value) - exact.value)
            assert (off <= np.asarray(found.stderr) + exact.stderr).all()
            assert np.max(found.stderr) <= 0.02 * np.max(np.abs(problem.known[kind].values))


def test_repeated_eigenvalues_are_counted():
    """A linear model with four outputs has each eigenvalue of the inputs' covariance four times."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=draw, dtype=torch.float64)
    net = nn.Linear(3, 4, bias=False).double()
    problem = Problem(net, nn.MSELoss(), (x, torch.zeros(50, 4, dtype=torch.float64)))
    single = torch.linalg.eigvalsh(x.T @ x / 50) * 2 / 4
    truth = np.repeat(single.flip(0).numpy(), 4)[:6]
    for method in ("dense", "lanczos"):
        found = TopK(k=6, method=method).read(problem, Effort(0))
        np.testing.assert_allclose(found.value, truth, rtol=1e-6)
        assert found.complete


def test_rounding_is_part_of_the_error():
    single, double = _problem(0, torch.float32), _problem(0)
    truth = LambdaMax().read(double, Effort(0)).value
    found = LambdaMax(tolerance=1e-9, method="lanczos").read(single, Effort(0))
    assert abs(found.value - truth) <= found.stderr <= 1e-4 * truth
    assert "rounding is ±" in found.method and "dtype='float64'" in found.method


def test_a_small_float32_model_is_exact():
    single = _problem(0, torch.float32)
    raised = Problem(single.model, single.loss, single.batches, dtype="float64")
    found, truth = (LambdaMax().read(p, Effort(0)) for p in (single, raised))
    assert found.exact and found.value == pytest.approx(truth.value, rel=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_more_eigenvalues_than_are_positive(sign):
    """The vectors found so far are eigenvectors for zero of what is left, and must not return."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(20, 6, generator=draw, dtype=torch.float64)
    y = torch.randn(20, 2, generator=draw, dtype=torch.float64)
    net = nn.Sequential(nn.Linear(6, 2)).double()
    problem = Problem(net, lambda f, y: sign * (f - y).square().mean(), (x, y))
    exact = TopK(k=14).read(problem, Effort(0))
    found = TopK(k=14, method="lanczos").read(problem, Effort(0))
    assert (np.abs(found.value - exact.value) <= found.stderr + exact.stderr).all()
    assert found.stderr.max() <= 2e-3 * np.abs(exact.value).max()


def test_cancellation_near_a_fit_is_part_of_an_estimate():
    """1 − p of a fitted network loses digits in float64 too."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(30, 4, generator=draw, dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    net = nn.Linear(4, 2).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]]) * 500)
        net.bias.zero_()
    far = x[:, 0].abs() > 0.03  # 1 − p is below 1e-13 everywhere
    problem = Problem(net, nn.CrossEntropyLoss(), (x[far], y[far]))
    found = LambdaMax(method="lanczos").read(problem, Effort(0))
    margin = (1000 * x[far, 0].abs()).double()
    curvature = torch.exp(-margin) / (1 + torch.exp(-margin)) ** 2  # p (1 − p), without cancelling
    inputs = torch.cat([x[far], torch.ones(int(far.sum()), 1, dtype=torch.float64)], 1)
    exact = 2 * torch.linalg.eigvalsh(inputs.T @ (curvature[:, None] * inputs) / len(inputs))[-1]
    assert abs(found.value - float(exact)) <= found.stderr
