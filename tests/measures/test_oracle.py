"""Every curvature measure against whole matrices in float64, on every case."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch

import flatlab as fl
from cases import CASES, Dense
from flatlab.measures import CATALOGUE, Effort
from flatlab.measures.spectrum import Spectrum
from flatlab.measures.trace import Diagonal, Frobenius, LayerTrace, Trace
from flatlab.problem import Problem
from flatlab.problem.certificate import linear_in_each_parameter
from thinning import thinned

KINDS = ("hessian", "ggn", "fisher", "gram")
EXACT = 1e-10
PRODUCT = list(itertools.product(CASES, KINDS))
# Estimates are tried with the Hessian of every case, and with the other matrices where they differ
# most; those share all of their code.
ESTIMATED = [
    *((name, "hessian") for name in CASES),
    *((name, kind) for name in ("tanh", "batchnorm, train", "attention") for kind in KINDS[1:]),
]


@functools.cache
def matrix(name, kind):
    return Dense(name).matrix(kind)


@functools.cache
def problem(name):
    case = CASES[name]
    return Problem(*case.make(), **case.options)


def close(outcome, truth, ceiling):
    """Exact values agree to 1e-10; bounds hold; estimates lie within five standard errors.

    No error bar may be wider than the ceiling, so that a useless one does not pass.
    """
    scale = float(np.abs(truth).max()) or 1.0
    if outcome.exact:
        allowed = EXACT * scale
    elif outcome.dof is None:
        allowed = outcome.stderr + 1e-12 * scale
    else:
        allowed = 5 * np.asarray(outcome.stderr) + 1e-9 * scale
    narrow = outcome.exact or (np.asarray(outcome.stderr) <= ceiling).all()
    return bool(narrow and (np.abs(np.asarray(outcome.value) - truth) <= allowed).all())


def widest(name, kind, probes):
    """Return twice the standard error of Hutchinson's trace, which is at most √(2/m)‖A‖_F.

    That of any part of the diagonal is no larger.
    """
    return 2 * (2 / probes) ** 0.5 * float(matrix(name, kind).norm())


@pytest.mark.parametrize("name, kind", thinned(PRODUCT))
def test_products_are_those_of_the_whole_matrix(name, kind):
    made, truth = problem(name).matrix(kind).dense(), matrix(name, kind)
    assert torch.allclose(made, truth, rtol=0, atol=1e-12 * float(truth.abs().max() + 1))


@pytest.mark.parametrize("name", CASES)
def test_the_certificate_knows_networks_linear_in_each_parameter(name):
    assert linear_in_each_parameter(problem(name)) == CASES[name].linear


@pytest.mark.parametrize("name, kind", thinned(PRODUCT))
def test_trace(name, kind):
    outcome = Trace(matrix=kind).read(problem(name), Effort(0))
    assert close(outcome, float(matrix(name, kind).trace()), widest(name, kind, 100))
    mixed = CASES[name].options.get("mode") == "train"
    assert outcome.exact == (not mixed and (kind != "hessian" or CASES[name].linear)) or (
        outcome.method == "exact, dense"
    )


@pytest.mark.parametrize("name, kind", thinned(ESTIMATED))
def test_trace_by_probes_and_by_layers(name, kind):
    p, truth = problem(name), matrix(name, kind).diagonal().numpy()
    whole = Trace(matrix=kind, method="probes", max_products=100).read(p, Effort(1))
    assert close(whole, truth.sum(), widest(name, kind, 100))
    for method in ("auto", "probes"):
        outcome = LayerTrace(matrix=kind, method=method, max_products=100).read(p, Effort(1))
        assert outcome.labels == tuple(p.layers)
        sums = np.array([truth[part].sum() for part in p.layers.values()])
        assert close(outcome, sums, widest(name, kind, 100))


@pytest.mark.parametrize("name, kind", thinned(ESTIMATED))
def test_ends_of_the_spectrum(name, kind):
    p, values = problem(name), torch.linalg.eigvalsh(matrix(name, kind)).numpy()
    ceiling = 1e-3 * np.abs(values).max()  # the measures' usual tolerance
    for measure, truth in (("lambda_max", values[-1]), ("lambda_min", values[0])):
        spec = type(CATALOGUE[measure])(matrix=kind)
        assert close(spec.read(p, Effort(0)), truth, ceiling), measure
    top = type(CATALOGUE["top_k"])(matrix=kind, k=4).read(p, Effort(0))
    assert close(top, values[::-1][:4], ceiling)


@pytest.mark.parametrize("name", CASES)
def test_largest_eigenvalue_of_each_layer(name):
    p, truth = problem(name), matrix(name, "hessian")
    outcome = CATALOGUE["layer_lambda_max"].read(p, Effort(0))
    blocks = [torch.linalg.eigvalsh(truth[part, part])[-1] for part in p.layers.values()]
    assert close(outcome, np.array(blocks), 1e-3 * float(torch.linalg.norm(truth, 2)))


@pytest.mark.parametrize("name, kind", thinned(ESTIMATED))
def test_frobenius_norm(name, kind):
    truth = float(matrix(name, kind).norm())
    for method, seed in (("auto", 0), ("probes", 2)):
        measure = Frobenius(matrix=kind, method=method, max_products=100)
        assert close(measure.read(problem(name), Effort(seed)), truth, 0.05 * truth)


@pytest.mark.parametrize("name, kind", thinned(PRODUCT))
def test_diagonal(name, kind):
    truth = matrix(name, kind).diagonal().numpy()
    outcome = Diagonal(matrix=kind, max_products=30).read(problem(name), Effort(0))
    assert close(outcome, truth, widest(name, kind, 30))


@pytest.mark.parametrize("name, kind", thinned(ESTIMATED))
def test_diagonal_by_probes(name, kind):
    truth = matrix(name, kind).diagonal().numpy()
    drawn = Diagonal(matrix=kind, method="probes", max_products=100).read(problem(name), Effort(0))
    # Hundreds of entries at once: the root mean square of their errors in standard errors is one.
    off = (drawn.value - truth) / np.maximum(drawn.stderr, 1e-9 * np.abs(truth).max() + 1e-300)
    assert np.sqrt(np.mean(off**2)) < 1.6 and drawn.stderr.max() <= widest(name, kind, 100)


@pytest.mark.parametrize("name", CASES)
def test_spectrum(name):
    p, values = problem(name), torch.linalg.eigvalsh(matrix(name, "hessian")).numpy()
    outcome = Spectrum(probes=12).read(p, Effort(0))
    grid, sigma = outcome.details["grid"], outcome.details["sigma"]
    bumps = np.exp(-(((grid[:, None] - values) / sigma) ** 2) / 2)
    truth = bumps.mean(1) / (sigma * np.sqrt(2 * np.pi))
    assert abs(np.trapezoid(outcome.value, grid) - 1) < 1e-3  # four σ beyond both ends
    # Quadrature error of 30 steps is far below a bump's height; probes give the rest.
    off = np.abs(outcome.value - truth) > 5 * outcome.stderr + 0.01 * truth.max()
    assert off.mean() < 0.03 and outcome.stderr.max() <= 0.5 * truth.max()


def test_blocks_that_repeat_are_all_found():
    """A linear model with c outputs has every eigenvalue c times."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x, y = torch.randn(30, 6).double(), torch.randn(30, 3).double()
        p = Problem(torch.nn.Linear(6, 3, bias=False).double(), torch.nn.MSELoss(), (x, y))
    found = fl.measures.named("top_k:k=6").read(p, Effort(0)).value
    truth = torch.linalg.eigvalsh(2 / 30 / 3 * x.T @ x).numpy()[::-1]
    np.testing.assert_allclose(found, np.repeat(truth, 3)[:6], rtol=1e-9)
