"""PAC-Bayes bounds: formulas by hand, the steps of their proofs, and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, t
from torch import nn

from cases import CASES, Dense
from flatlab.errors import UserError
from flatlab.measures import Effort
from flatlab.measures.bounds import FlatnessBound, McAllester, flatness_complexity, gaussian_kl
from flatlab.measures.sam_sharpness import SamSharpness
from flatlab.problem import Problem


def linear():
    return Problem(*CASES["linear"].make())


def test_the_divergence_of_gaussians_is_torchs():
    mu = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    Q = torch.distributions.Normal(mu, 0.2)
    P = torch.distributions.Normal(torch.zeros(3, dtype=torch.float64), 0.7)
    truth = float(torch.distributions.kl_divergence(Q, P).sum())
    assert gaussian_kl(3, 0.2, 0.7, float(mu @ mu)) == pytest.approx(truth, rel=1e-12)


def test_the_best_prior_gives_half_k_log():
    """σ_P² = σ² + ‖θ‖²/k is the minimiser, with KL = (k/2) log(1 + ‖θ‖²/(kσ²))."""
    k, sigma, squared = 7, 0.3, 2.5
    best = math.sqrt(sigma**2 + squared / k)
    truth = k / 2 * math.log(1 + squared / (k * sigma**2))
    assert gaussian_kl(k, sigma, best, squared) == pytest.approx(truth, rel=1e-12)
    for other in (0.9 * best, 1.1 * best):
        assert gaussian_kl(k, sigma, other, squared) > truth


def closed_form(sigma, prior, delta, start):
    """KL and bound for the linear case: L(Q) = L + ½σ² Tr H."""
    truth, n = Dense("linear"), 20
    risk = float(truth.value(truth.theta)) + sigma**2 / 2 * float(truth.matrix("hessian").trace())
    kl = gaussian_kl(6, sigma, prior, float((truth.theta - start).square().sum()))
    return kl, risk + math.sqrt((kl + math.log(2 * math.sqrt(n) / delta)) / (2 * n))


@pytest.mark.parametrize("prior", [0.5, 1.0])
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_mcallester_of_a_quadratic_is_its_closed_form(prior, start):
    model, loss, data = CASES["linear"].make()
    reference = {key: torch.full_like(p, start) for key, p in model.named_parameters()}
    made = Problem(model, loss, data, reference=reference if start else None)
    kl, bound = closed_form(0.3, prior, 0.1, start)
    found = McAllester(sigma=0.3, prior_sigma=prior, delta=0.1).read(made, Effort(0))
    assert found.details["kl"] == pytest.approx(kl, rel=1e-10)
    assert found.stderr <= 0.02 * found.value  # 200 pairs come near the tolerance of 0.01
    assert abs(found.value - bound) <= 5 * found.stderr


@pytest.mark.slow
def test_intervals_of_mcallester_cover():
    """95 % intervals cover the closed form for 90 to 99 % of 200 seeds."""
    made, covered = linear(), 0
    _, bound = closed_form(0.3, 1.0, 0.05, 0.0)
    for seed in range(200):
        found = McAllester(sigma=0.3, tolerance=0.03, max_products=4000).read(made, Effort(seed))
        assert found.complete
        covered += abs(found.value - bound) <= t.ppf(0.975, found.dof) * found.stderr
    assert 180 <= covered <= 198


def test_the_bound_with_log_one_over_delta_fails_and_ours_does_not():
    """N = 1, two hypotheses, δ = .98104: every sample has a posterior that breaks log(1/δ)."""
    delta = 0.98104
    risks = np.array([0.28, 0.72])
    for seen, Q in (([0, 1], [0.70640, 0.29360]), ([1, 0], [0.03899, 0.96101])):
        q, p = np.array(Q), np.array([0.65, 0.35])
        gap = float(q @ (risks - np.array(seen)))
        kl = float((q * np.log(q / p)).sum())
        assert gap > math.sqrt((kl + math.log(1 / delta)) / 2)
        assert gap < math.sqrt((kl + math.log(2 / delta)) / 2)


@pytest.mark.parametrize("name", ["linear", "tanh", "convolution", "part of the parameters"])
def test_the_flatness_bound_by_hand(name):
    case = CASES[name]
    made = Problem(*case.make(), **case.options)
    found = FlatnessBound(rho=0.1, delta=0.02).read(made, Effort(3))
    sharp = SamSharpness(rho=0.1).read(made, Effort(3)).value
    k, n, squared = made.size, made.n, float(Dense(name).theta.square().sum())
    inside = 1 + squared / 0.01 * (1 + math.sqrt(math.log(n) / k)) ** 2
    over = k * math.log(inside) + 4 * math.log(n / 0.02) + 3.7 + 2 * math.log(2 * n + 1)
    assert found.value == pytest.approx(sharp + math.sqrt(over / (n - 1)), rel=1e-10)
    assert found.details["sharpness"] == sharp


@pytest.mark.parametrize("n", [2, 20, 1000, 10**6])
@pytest.mark.parametrize("k", [1, 10, 1000, 10**6])
def test_noise_leaves_the_ball_rarely(k, n):
    """P(‖N(0, σ²I_k)‖ > σ(√k + √log n)) <= 1/√n, the first step of the proof."""
    assert chi2.sf((math.sqrt(k) + math.sqrt(math.log(n))) ** 2, k) <= 1 / math.sqrt(n)


@pytest.mark.parametrize("delta", [0.01, 0.5])
@pytest.mark.parametrize("n", [2, 20, 1000, 10**5])
@pytest.mark.parametrize("k", [1, 10, 1000])
def test_the_explicit_remainder_covers_the_union_over_priors(k, n, delta):
    """Wherever the bound is below 1 it is at least what a prior from the grid gives."""
    sigma = 0.1
    rho = sigma * (math.sqrt(k) + math.sqrt(math.log(n)))
    for squared in (0.0, 1e-3, 1.0, 100.0, 1e6):
        bound = flatness_complexity(k, n, squared, rho, delta)
        ideal = sigma**2 + squared / k
        steps = 2 * n - k * math.log(ideal / sigma**2)
        if steps < 0:
            assert bound >= 1
            continue
        j = 1 + math.floor(steps)
        prior = sigma * math.exp((2 * n + 1 - j) / (2 * k)) if n / k < 300 else None
        if prior is None or not math.isfinite(prior):
            continue
        assert ideal * (1 - 1e-9) <= prior**2 <= ideal * math.exp(1 / k) * (1 + 1e-9)
        kl = gaussian_kl(k, sigma, prior, squared)
        level = 6 * delta / (math.pi * j) ** 2
        proved = 1 / math.sqrt(n) + math.sqrt((kl + math.log(2 * math.sqrt(n) / level)) / (2 * n))
        assert proved <= bound


def test_bounds_need_examples_and_sense():
    x = torch.ones(1, 2, dtype=torch.float64)
    one = Problem(nn.Linear(2, 1).double(), nn.MSELoss(), (x, x[:, :1]))
    for measure in (FlatnessBound(), McAllester()):
        with pytest.raises(UserError, match="at least two examples"):
            measure.read(one, Effort(0))
    with pytest.raises(UserError, match="delta must be < 1"):
        McAllester(delta=1.0)
    with pytest.raises(UserError, match="rho must be > 0"):
        FlatnessBound(rho=0.0)
    with pytest.raises(UserError, match="prior_sigma must be > 0"):
        McAllester(prior_sigma=0.0)
