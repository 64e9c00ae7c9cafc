"""PAC-Bayes bounds on the generalisation error."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from ..errors import UserError
from ..problem import Problem
from ..specs import spec
from .ascent import Radius, Region, Times, worst_rise
from .average_sharpness import Sigma, gaussian_mean
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Limit, Tolerance
from .norms import flat
from .rounding import lost

Probability = Annotated[float, Field(gt=0, lt=1)]


def gaussian_kl(size: int, sigma: float, prior_sigma: float, squared_distance: float) -> float:
    """Return KL(N(μ, σ²I) ‖ N(μ_P, σ_P²I)) in `size` dimensions, from ‖μ − μ_P‖².

    >>> gaussian_kl(3, 0.5, 0.5, 0.0)
    0.0
    """
    ratio = (sigma / prior_sigma) ** 2
    return 0.5 * (size * (ratio - 1 - math.log(ratio)) + squared_distance / prior_sigma**2)


def mcallester_complexity(kl: float, n: int, delta: float) -> float:
    """Return √((KL + log(2√n/δ))/(2n)), the complexity term of McAllester's bound."""
    return math.sqrt((kl + math.log(2 * math.sqrt(n) / delta)) / (2 * n))


def flatness_complexity(size: int, n: int, squared_norm: float, rho: float, delta: float) -> float:
    """Return √((k log(1 + ‖θ‖²/ρ² (1 + √(log n/k))²) + 4 log(n/δ) + r) / (n − 1)).

    r = 3.7 + 2 log(2n + 1) makes the theorem's Õ(1) explicit. With ρ = σ(√k + √log n):
    ‖N(0, σ²I)‖ > ρ with probability at most 1/√n. For a prior N(0, cI) with c on the grid
    σ² e^{(2n+1−j)/k}, 1 ≤ j ≤ 2n + 1, each at level 6δ/(π²j²), some c has
    KL ≤ ½(1 + k log(1 + ‖θ‖²/(kσ²))), or the bound exceeds 1 and holds for that. So the gap less
    the sharpness is at most 1/√n + √((KL + log(2√n π²j²/(6δ)))/(2n)), and (a + b)² ≤ 2a² + 2b².
    """
    inside = 1 + squared_norm / rho**2 * (1 + math.sqrt(math.log(n) / size)) ** 2
    remainder = 3.7 + 2 * math.log(2 * n + 1)
    total = size * math.log(inside) + 4 * math.log(n / delta) + remainder
    return math.sqrt(total / (n - 1))


def _examples(problem: Problem, name: str) -> int:
    if problem.n < 2:
        raise UserError(f"{name} needs at least two examples, got {problem.n}")
    return problem.n


_RANGE = (
    "A bound only if the data are the i.i.d. training sample and the loss lies in [0, 1], such as "
    "min(ℓ, 1): nothing here checks that. Above 1 it says nothing"
)


@spec
class FlatnessBound:
    """The generalisation gap bounded by sharpness and norm, with probability 1 − δ over samples.

        L(θ) − L̂(θ) ≤ max_{‖ε‖₂ ≤ ρ} L̂(θ + ε) − L̂(θ)
                     + √((k log(1 + ‖θ‖²/ρ² (1 + √(log n/k))²) + 4 log(n/δ) + r) / (n − 1))

    if L(θ) ≤ E L(θ + ε) under ε ~ N(0, σ²I), ρ = σ(√k + √log n); k parameters, r of
    `flatness_complexity`. ρ must be chosen before the data are seen.

    Reference: Foret et al., Sharpness-aware minimization, ICLR 2021, Theorem 2.
    """

    rho: Radius = 0.05
    delta: Probability = 0.05
    steps: Times = 50
    restarts: Times | None = None
    about: ClassVar[About] = About(
        "flatness bound",
        "a PAC-Bayes bound on the generalisation gap from sharpness and norm",
        "max_{‖ε‖ ≤ ρ} L(θ + ε) − L(θ) + √((k log(1 + ‖θ‖²/ρ² (1 + √(log n/k))²) + 4 log(n/δ) + r)"
        " / (n − 1)), r = 3.7 + 2 log(2n + 1)",
        "as sam_sharpness_steps",
        f"the maximum is sought by ascent, so it can be too small. {_RANGE}, as it mostly is where "
        "there are more parameters than examples",
        exact="no: its maximum is a lower bound",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        n = _examples(problem, "pac_bayes_flatness")
        region = Region(torch.ones(problem.size, dtype=torch.float64), self.rho, "l2")
        rise = worst_rise(problem, region, effort, self.steps, self.restarts)
        squared = float(flat(problem).square().sum())
        complexity = flatness_complexity(problem.size, n, squared, self.rho, self.delta)
        details = {"sharpness": rise.value, "complexity": complexity, "loss": rise.details["loss"]}
        return dataclasses.replace(rise, value=float(rise.value) + complexity, details=details)


@spec
class McAllester:
    """A bound on the risk of the Gaussian posterior Q = N(θ, σ²I), with probability 1 − δ.

        L(Q) ≤ L̂(Q) + √((KL(Q‖P) + log(2√n/δ)) / (2n)),   P = N(θ₀, σ_P²I)

    for all Q at once, with Maurer's constant: log(1/δ) alone does not hold for all Q. θ₀ is the
    reference of the problem, or zero. L̂(Q) is a mean over antithetic pairs.

    References: McAllester, PAC-Bayesian model averaging, COLT 1999; Maurer, A note on the PAC
    Bayesian theorem, 2004.
    """

    sigma: Sigma = 0.01
    prior_sigma: Sigma = 1.0
    delta: Probability = 0.05
    tolerance: Tolerance = 0.01
    max_products: Limit = 400
    about: ClassVar[About] = About(
        "McAllester",
        "a PAC-Bayes bound on the risk of a Gaussian around θ",
        "L(Q) + √((KL(Q‖P) + log(2√n/δ))/(2n)), Q = N(θ, σ²I), P = N(θ₀, σ_P²I)",
        "two passes a pair, until the standard error is small",
        f"of a random network near θ, not of θ. σ_P and θ₀ must not depend on the data. {_RANGE}",
        exact="no: a standard error of the expected loss",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        n = _examples(problem, "mcallester")
        start = 0.0 if problem.reference is None else problem.reference
        distance = float((flat(problem) - start).square().sum())
        kl = gaussian_kl(problem.size, self.sigma, self.prior_sigma, distance)
        complexity = mcallester_complexity(kl, n, self.delta)
        limit, tolerance = self.max_products, self.tolerance
        drawn = gaussian_mean(problem, effort, self.sigma, tolerance, limit, plus=complexity)
        risk, error = float(drawn.mean[0]), float(drawn.stderr[0]) + lost(problem, Problem.value)
        details = {"risk": risk, "kl": kl, "complexity": complexity}
        method = drawn.said(f"{len(drawn.rows)} antithetic pairs")
        return drawn.measured(risk + complexity, error, method, details=details)
