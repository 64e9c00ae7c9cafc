"""PAC-Bayes bounds on the generalisation gap Δ(Q) = E_{h~Q}(L(h) − L̂(h)), each term separate.

The loss lies in [0, 1], S are n independent examples, and the prior P does not depend on them.
With probability at least 1 − δ over S, for every posterior Q at once,

    Catoni:     Δ(Q) ≤ λ/(8n) + (KL(Q‖P) + log(1/δ))/λ,    λ chosen before S is seen;
    McAllester: Δ(Q) ≤ √((KL(Q‖P) + log(2√n/δ))/(2n)),     with Maurer's constant.

Catoni's bound at the λ that is best for each Q would be McAllester's with log(1/δ). That is false,
because λ may not depend on S.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UserError, whole_number
from ..measures.bounds import flatness_complexity, gaussian_kl, mcallester_complexity
from .discrete import divergence, gibbs, numbers, probabilities
from .solution import Array

ACROSS, STEPS, REFINEMENTS = 400, 40, 3
"""Values of λ in the search for the worst one, values in each refinement, refinements."""
AT_ONCE = 2**21
"""Numbers in memory at once during that search."""


@dataclass(frozen=True)
class Certificate:
    """A bound on the risk L(Q): the empirical risk and the complexity term, which add up to it."""

    empirical: float
    kl: float
    complexity: float

    @property
    def bound(self) -> float:
        """The bound; at 1 or above it says nothing."""
        return self.empirical + self.complexity


def mcallester(kl: float, n: int, delta: float) -> float:
    """Return √((KL + log(2√n/δ))/(2n)).

    >>> round(mcallester(0.0, 100, 0.05), 4)
    0.1731
    """
    return mcallester_complexity(_divergence(kl), *_sample(n, delta))


def catoni(kl: float, n: int, delta: float, temperature: float) -> float:
    """Return λ/(8n) + (KL + log(1/δ))/λ for λ = `temperature`, chosen before the data are seen."""
    n, delta = _sample(n, delta)
    lam = _positive("temperature", temperature)
    return lam / (8 * n) + (_divergence(kl) - math.log(delta)) / lam


def certified(
    losses: ArrayLike, posterior: ArrayLike, prior: ArrayLike, n: int, delta: float
) -> Certificate:
    """Bound the risk of a posterior on finitely many hypotheses, by McAllester's theorem.

    Args:
        losses: The mean training loss L̂(h) in [0, 1] of each hypothesis.
        posterior: Q, which may depend on the training set.
        prior: P, which may not.
        n: Number of training examples.
        delta: Probability with which the bound may fail.
    """
    Q = probabilities("posterior", posterior)
    mean = numbers("losses", losses, like=Q)
    if mean.min() < 0 or mean.max() > 1:
        worst = mean.min() if mean.min() < 0 else mean.max()
        raise UserError(f"losses must lie in [0, 1] for this bound, got {worst:g}: rescale or clip")
    kl = divergence(Q, prior)
    complexity = mcallester(kl, n, delta) if math.isfinite(kl) else math.inf
    return Certificate(float(Q @ mean), kl, complexity)


def worst_posterior(prior: ArrayLike, gaps: ArrayLike, n: int) -> tuple[float, Array]:
    """Return c* = sup_Q sup_{λ>0} (λ E_Q Δ − KL(Q‖P) − λ²/(8n)) and the posterior that attains it.

    Some Q has E_Q Δ > √((KL(Q‖P) + c)/(2n)) if and only if c* > c. By Donsker and Varadhan c* is
    the supremum over λ of log E_P e^{λΔ} − λ²/(8n), and Q the Gibbs distribution of λΔ.

    Args:
        prior: P on finitely many hypotheses.
        gaps: Δ(h) = L(h) − L̂(h) on one training set, between −1 and 1.
        n: Number of training examples.
    """
    pi = probabilities("prior", prior)
    delta = numbers("gaps", gaps, like=pi)
    value, lam = worst_temperatures(pi, delta[None], n)
    return float(value[0]), gibbs(pi, lam[0] * delta)


def worst_temperatures(prior: Array, gaps: Array, n: int) -> tuple[Array, Array]:
    """Return c* of `worst_posterior` and its λ for many training sets, a row of gaps for each.

    As Δ ≤ max Δ, only λ ≤ 8n max Δ can make the expression positive. It is searched on a grid,
    which is then refined around the best value.
    """
    n = whole_number("n", n, least=1)
    if not (np.isfinite(gaps).all() and np.abs(gaps).max() <= 1 + 1e-9):
        raise UserError("gaps must lie in [-1, 1], as differences of losses in [0, 1] do")
    piece = max(1, AT_ONCE // (ACROSS * gaps.shape[1]))
    parts = [_search(prior, gaps[i : i + piece], n) for i in range(0, len(gaps), piece)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _search(prior: Array, gaps: Array, n: int) -> tuple[Array, Array]:
    largest, rows = gaps.max(1, keepdims=True), np.arange(len(gaps))
    below = gaps - largest
    low, high = np.zeros(len(gaps)), 8 * n * np.maximum(largest[:, 0], 1e-9)
    for count in (ACROSS, *[STEPS] * REFINEMENTS):
        tried = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, count + 1)
        means = np.exp(tried[:, :, None] * below[:, None]) @ prior
        values = tried * largest + np.log(means) - tried**2 / (8 * n)
        best = values.argmax(1)
        low = tried[rows, np.maximum(best - 1, 0)]
        high = tried[rows, np.minimum(best + 1, count)]
    return values[rows, best], tried[rows, best]


def general_gaussian_kl(mu1: Array, cov1: Array, mu2: Array, cov2: Array) -> float:
    """Return KL(N(μ1, Σ1)‖N(μ2, Σ2)).

    ½ (log(|Σ2|/|Σ1|) − k + (μ1 − μ2)ᵀ Σ2⁻¹ (μ1 − μ2) + Tr(Σ2⁻¹ Σ1)).

    >>> eye = np.eye(2)
    >>> general_gaussian_kl(np.zeros(2), eye, np.ones(2), eye)
    1.0
    """
    roots = []
    for name, cov in (("cov1", cov1), ("cov2", cov2)):
        if not np.isfinite(cov).all() or not np.allclose(cov, cov.T, rtol=1e-9, atol=0):
            raise UserError(f"{name} must be a symmetric matrix of finite numbers")
        try:
            roots.append(np.linalg.cholesky(cov))
        except np.linalg.LinAlgError:
            raise UserError(f"{name} must be positive definite") from None
    logs = [2 * float(np.log(np.diag(root)).sum()) for root in roots]
    difference = np.asarray(mu1, np.float64) - np.asarray(mu2, np.float64)
    solved = np.linalg.solve(cov2, np.column_stack([difference, cov1]))
    moved = float(difference @ solved[:, 0]) + float(np.trace(solved[:, 1:]))
    return 0.5 * (logs[1] - logs[0] - len(difference) + moved)


@dataclass(frozen=True)
class FlatnessTerms:
    """The complexity in the flatness bound, as its proof adds it up, and in closed form.

    L(θ) − L̂(θ) ≤ max_{‖ε‖≤ρ} L̂(θ + ε) − L̂(θ) + outside + √((kl + confidence)/(2n)), if
    L(θ) ≤ E L(θ + ε) for ε ~ N(0, σ²I_k).

    Attributes:
        rho: σ(√k + √log n), the radius of the ball that holds the noise.
        outside: 1/√n, a bound on P(‖ε‖ > ρ), where the loss may be 1.
        prior_variance: σ_P², the member of the grid that gives the least sum.
        index: Its number j in the grid.
        kl: KL(N(θ, σ²I)‖N(0, σ_P²I)).
        confidence: log(2√n/δ_j) at the level δ_j = 6δ/(π²j²) of that prior.
        closed_form: The lecture's √(…), with the remainder Õ(1) written out; at least `total`
            wherever it is below 1.
        per_example: KL/n with the best prior variance there is, ignoring the union bound.
    """

    rho: float
    outside: float
    prior_variance: float
    index: int
    kl: float
    confidence: float
    total: float
    closed_form: float
    per_example: float


def flatness_terms(
    k: int, n: int, squared_norm: float, sigma: float, delta: float
) -> FlatnessTerms:
    """Return the terms of the flatness bound for k parameters of squared norm ‖θ‖².

    The best prior variance σ² + ‖θ‖²/k depends on θ, hence on S, which a prior may not. So one
    prior is taken from the grid σ² e^{(2n+1−j)/k}, 1 ≤ j ≤ 2n + 1, and McAllester's bound for
    prior j is used at the level δ_j = 6δ/(π²j²). As Σ δ_j ≤ δ, all hold at once with probability
    1 − δ, so the best of them may be taken after S is seen.
    """
    k, (n, delta) = whole_number("k", k, least=1), _sample(n, delta)
    n = whole_number("n", n, least=2)
    sigma, squared = _positive("sigma", sigma), _at_least_zero("squared_norm", squared_norm)
    rho = sigma * (math.sqrt(k) + math.sqrt(math.log(n)))
    j = np.arange(1, 2 * n + 2)
    exponents = np.minimum((2 * n + 1 - j) / k, 600.0)  # e^600 is far above any useful variance
    variances = sigma**2 * np.exp(exponents)
    ratio = sigma**2 / variances
    kls = 0.5 * (k * (ratio - 1 - np.log(ratio)) + squared / variances)
    confidences = np.log(2 * math.sqrt(n) * math.pi**2 * j**2 / (6 * delta))
    best = int(np.argmin(kls + confidences))
    kl, confidence = float(kls[best]), float(confidences[best])
    outside = 1 / math.sqrt(n)
    ideal = math.sqrt(sigma**2 + squared / k)
    return FlatnessTerms(
        rho=rho,
        outside=outside,
        prior_variance=float(variances[best]),
        index=best + 1,
        kl=kl,
        confidence=confidence,
        total=outside + math.sqrt((kl + confidence) / (2 * n)),
        closed_form=flatness_complexity(k, n, squared, rho, delta),
        per_example=gaussian_kl(k, sigma, ideal, squared) / n,
    )


def _sample(n: int, delta: float) -> tuple[int, float]:
    n = whole_number("n", n, least=1)
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
        raise UserError(f"delta must lie between 0 and 1, got {delta!r}")
    return n, float(delta)


def _divergence(kl: float) -> float:
    return _at_least_zero("kl", kl)


def _at_least_zero(name: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise UserError(f"{name} must be >= 0 and finite, got {value!r}")
    return float(value)


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{name} must be > 0 and finite, got {value!r}")
    return float(value)
