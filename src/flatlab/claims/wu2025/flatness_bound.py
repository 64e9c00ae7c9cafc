"""The PAC-Bayes bound for flat minima: its divergence, its steps, and what it is worth."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import stats

from ...data import Dataset, from_arrays
from ...measures import Effort
from ...measures.bounds import FlatnessBound, flatness_complexity, gaussian_kl
from ...models import TwoLayer
from ...problem import Problem
from ...theory.pac_bayes import flatness_terms, general_gaussian_kl
from ...theory.solution import Array, Solution
from ..contract import Trial, claim, printed
from ..instances import random_data, random_interpolator
from ..lines import Lines, above, at_least, at_most, equal, near_zero, shown


@claim("wu2025.gauss_kl", "Divergence of Gaussians", "identity",
       "KL(N(θ, σ²I)‖N(0, σ_P²I)) with σ_P² = σ² + ‖θ‖²/k, its minimiser, is (k/2) log(1 + "
       "‖θ‖²/(kσ²))")  # fmt: skip
def gaussians(trial: Trial) -> Lines:
    rng = trial.rng("gauss-kl")
    off = []
    for k in (1, 2, 3):
        for _ in range(20):
            mu1, mu2 = rng.normal(size=(2, k))
            cov1, cov2 = (_covariance(rng, k) for _ in range(2))
            truth = _by_quadrature(mu1, cov1, mu2, cov2)
            off.append(general_gaussian_kl(mu1, cov1, mu2, cov2) / truth - 1)
    yield near_zero("general formula over exact quadrature − 1, 60 pairs, k ≤ 3", off, 1e-8)
    special, above_least, at_least_of_all = [], [], []
    for _ in range(trial.size(100, 1000)):
        k, sigma = int(rng.integers(1, 30)), float(10 ** rng.uniform(-2, 1))
        theta, other = rng.normal(size=(2, k))
        prior = float(10 ** rng.uniform(-2, 1))
        squared = float((theta - other) @ (theta - other))
        one = gaussian_kl(k, sigma, prior, squared)
        eye = np.eye(k)
        two = general_gaussian_kl(theta, sigma**2 * eye, other, prior**2 * eye)
        special.append(one / two - 1)
        squared = float(theta @ theta)
        best = math.sqrt(sigma**2 + squared / k)
        least = gaussian_kl(k, sigma, best, squared)
        closed = k / 2 * math.log1p(squared / (k * sigma**2))
        at_least_of_all.append(least / closed - 1)
        around = best * np.geomspace(0.1, 10, 50)
        above_least.append(min(gaussian_kl(k, sigma, float(p), squared) - least for p in around))
    count = len(special)
    yield near_zero(f"isotropic over general formula − 1, {count} pairs, k ≤ 29", special, 1e-8)
    yield near_zero("(k/2) log(1 + ‖θ‖²/(kσ²)) over that at the best prior − 1", at_least_of_all,
                    1e-8)  # fmt: skip
    yield at_least("least excess of 50 other prior widths", min(above_least), 0)


def _covariance(rng: np.random.Generator, k: int) -> Array:
    root = rng.normal(size=(k, k))
    return np.asarray(root @ root.T + 0.1 * np.eye(k))


def _by_quadrature(mu1: Array, cov1: Array, mu2: Array, cov2: Array) -> float:
    """Return E log(p1/p2) under p1: Gauss–Hermite quadrature is exact for quadratic functions."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    k = len(mu1)
    z = np.array(list(itertools.product(nodes, repeat=k)))
    w = np.prod(list(itertools.product(weights / weights.sum(), repeat=k)), axis=1)
    x = mu1 + z @ np.linalg.cholesky(cov1).T
    one = stats.multivariate_normal(mu1, cov1).logpdf(x)
    return float(w @ (one - stats.multivariate_normal(mu2, cov2).logpdf(x)))


@claim("wu2025.thm1_flatness_bound", "Theorem 1 (flatness)", "inequality",
       "L − L̂ is at most the largest rise of L̂ within ρ = σ(√k + √log n) plus √((k log(1 + "
       "(‖θ‖²/ρ²)(1 + √(log n/k))²) + 4 log(n/δ) + Õ(1))/(n − 1))",
       as_printed="The rise within σ, any ρ > 0 in the second term, (1 + √(log n/k)) without the "
       "square, and n for n − 1", errata=("W8",),
       note="Õ(1) is written out as 3.7 + 2 log(2n + 1), which the union bound over priors that "
       "the lecture leaves as homework needs. n − 1 is as in Foret et al.")  # fmt: skip
def flatness(trial: Trial) -> Lines:
    k, n, sigma = 100, 1000, 0.05
    rho = sigma * (math.sqrt(k) + math.sqrt(math.log(n)))
    mean = _mean_rise(k, sigma)
    what = f"L̂ = min(1, ½‖ε‖²), k = {k}, σ = {sigma}: mean rise under the noise"
    yield printed(at_most(f"{what}, against the largest rise within σ", mean, sigma**2 / 2))
    yield at_most(f"{what}, against that within ρ", mean, min(1, rho**2 / 2) + 1 / math.sqrt(n))
    ratios = [
        stats.chi2.sf((math.sqrt(k) + math.sqrt(math.log(n))) ** 2, k) * math.sqrt(n)
        for k in (1, 10, 100, 10_000) for n in (2, 10, 1000, 10**6)
    ]  # fmt: skip
    yield at_most("P(‖ε‖ > ρ) over 1/√n, k to 10⁴, n to 10⁶: largest", max(ratios), 1)
    squared = 3.0
    kl = gaussian_kl(k, sigma, math.sqrt(sigma**2 + squared / k), squared)
    one = 1 + math.sqrt(math.log(n) / k)
    text = f"2 KL for the best prior, k = {k}, n = {n}, ‖θ‖² = {squared:g}"
    yield printed(equal(text, 2 * kl, k * math.log(1 + squared / rho**2 * one)))
    yield equal(text, 2 * kl, k * math.log(1 + squared / rho**2 * one**2))
    ratio, table = [], itertools.product((1, 10, 100, 1000), (20, 1000, 20_000), (0.05, 0.5))
    for k, n, delta in table:
        for squared in (0.0, 1e-3, 1.0, 100.0):
            terms = flatness_terms(k, n, squared, 0.1, delta)
            if terms.closed_form < 1:
                ratio.append(terms.total / terms.closed_form)
    yield at_most(f"union bound over priors, over its closed form, {len(ratio)} cases below 1: "
                  "largest", max(ratio), 1)  # fmt: skip
    yield from _lookup_table(trial)


def _mean_rise(k: int, sigma: float) -> float:
    """Return E min(1, σ²χ²_k/2), by the identity x·p_k(x) = k·p_{k+2}(x) of the densities."""
    edge = 2 / sigma**2
    inside = sigma**2 / 2 * k * stats.chi2.cdf(edge, k + 2)
    return float(inside + stats.chi2.sf(edge, k))


def _lookup_table(trial: Trial) -> Lines:
    """A table that memorises fair labels: L̂ is flat around it, L = ½ everywhere.

    θ has an entry for each of N inputs and predicts its sign. Trained, θ_x = y_x = ±1 at the
    inputs seen and 0 elsewhere, so noise of length below 1 changes no prediction on them.
    """
    rng, n, inputs, delta = trial.rng("lookup"), 10_000, 10**10, 0.05
    x, y = rng.integers(0, inputs, n), rng.choice([-1.0, 1.0], n)
    cells, at = np.unique(x, return_inverse=True)
    theta = np.sign(np.bincount(at.ravel(), y) + 0.5)
    gap = 0.5 - float(np.mean(theta[at.ravel()] != y))
    loose = flatness_complexity(inputs, n, float(len(cells)), 1e9, delta)
    what = f"lookup table of fair labels, n = {n:,}, k = {inputs:.0e}, flat within σ = 0.5: gap"
    yield printed(at_most(f"{what}, against the bound at ρ = 10⁹", gap, loose))
    rho = 0.5 * (math.sqrt(inputs) + math.sqrt(math.log(n)))
    tight = flatness_complexity(inputs, n, float(len(cells)), rho, delta)
    yield at_most(f"{what}, against the bound: the rise within ρ is 1", gap, 1 + tight)


@claim("wu2025.pacbayes_criticism", "Let us criticise", "identity",
       "The complexity term k log(1 + ‖θ‖²/ρ²)/n is at least k/n where ‖θ‖² ≥ (e − 1)ρ², so "
       "vacuous for k ≥ n, and does not depend on the Hessian")  # fmt: skip
def criticism(trial: Trial) -> Lines:
    rho, delta, least = 0.05, 0.05, []
    for k, n in ((16_000, 100), (1000, 1000), (100, 100), (100, 10_000)):
        squared = (math.e - 1) * rho**2
        value = flatness_complexity(k, n, squared, rho, delta)
        least.append(value / math.sqrt(k / n))
        yield shown(f"complexity at ‖θ‖² = (e − 1)ρ², k = {k:,}, n = {n:,}", value)
        if k >= n:
            yield at_least("1 or more is vacuous", value, 1)
    yield at_least("least of them over √(k/n)", min(least), 1)
    rng, n = trial.rng("criticism"), 20
    data = random_data(rng, n, 3)
    net = random_interpolator(rng, TwoLayer(width=40, bias=False), data)
    flat, sharp = _terms(net, data, trial.seed), _terms(net, _wider(data), trial.seed)
    what = "the same θ, inputs three times as large"
    yield above(f"{what}: sharpness over that before", sharp[0] / flat[0], 1.5)
    yield equal(f"{what}: complexity over that before", sharp[1] / flat[1], 1)
    scaled = net.with_params(W1=1e4 * net.params["W1"], W2=net.params["W2"] / 1e4)
    off = np.max(np.abs(scaled.outputs() - net.outputs())) / np.max(np.abs(net.outputs()))
    yield near_zero("the same function, (10⁴ W1, W2/10⁴): relative change of f", off, 1e-12)
    other = _terms(scaled, data, trial.seed)[1]
    yield above("its complexity over that before", other / flat[1], 1.02)


def _wider(data: Dataset) -> Dataset:
    return from_arrays(3 * data.x_train, data.y_train)


def _terms(net: Solution, data: Dataset, seed: int) -> tuple[float, float]:
    """Return the sharpness and the complexity that the measure `pac_bayes_flatness` adds up."""
    on = Solution(net.arch, net.params, data)
    found = FlatnessBound(rho=0.05).read(Problem(on.module, "mse", data), Effort(seed))
    return float(found.details["sharpness"]), float(found.details["complexity"])
