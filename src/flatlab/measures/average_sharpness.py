"""The rise of the loss in a random direction: E L(θ + σξ) − L(θ)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from ..problem import Problem
from ..specs import spec
from .contract import About, Measured, Vector
from .effort import Effort
from .eigenvalues import Limit, Tolerance
from .lanczos import ROUNDING
from .probes import PILOT, Sample, sample
from .rounding import lost

Sigma = Annotated[float, Field(gt=0)]


def gaussian_mean(
    problem: Problem,
    effort: Effort,
    scale: Tensor | float,
    tolerance: float,
    limit: int,
    base: float = 0.0,
    plus: float = 0.0,
) -> Sample:
    """Estimate E L(θ + scale ⊙ ξ) − base, ξ standard normal.

    Values are taken in pairs θ ± scale ⊙ ξ, so odd orders cancel. The standard error should be at
    most `tolerance` of the estimate, to which `plus` is to be added, or the rounding of `base`.
    """

    def probe(index: int) -> Vector:
        step, total = scale * effort.normal("gaussian", index, problem.size), 0.0
        for sign in (1.0, -1.0):
            with problem.moved(sign * step):
                total += problem.value() - base
        effort.spend()  # the pair's second pass; the first is counted with the probe
        return np.array([total / 2])

    def wish(mean: Vector, error: Vector) -> tuple[float, float]:
        return error[0], max(tolerance * abs(float(mean[0]) + plus), ROUNDING * abs(base))

    effort.expect(2 * PILOT + 1)
    return sample(probe, effort, wish, max(limit // 2, 2), signs=False)


def average_rise(
    problem: Problem, effort: Effort, scale: Tensor | float, tolerance: float, limit: int
) -> Measured:
    """Estimate E L(θ + scale ⊙ ξ) − L(θ), in float64: the difference cancels."""
    problem = problem.precise
    base = problem.value()
    effort.spend()
    drawn = gaussian_mean(problem, effort, scale, tolerance, limit, base)
    mean, error = float(drawn.mean[0]), float(drawn.stderr[0]) + lost(problem, Problem.value)
    method = drawn.said(f"{len(drawn.rows)} antithetic pairs")
    return drawn.measured(mean, error, method, details={"loss": base})


@spec
class AverageSharpness:
    """E L(θ + σξ) − L(θ) with ξ ~ N(0, I), in antithetic pairs ±ξ.

    For σ → 0 it is ½ σ² Tr ∇²L; for a quadratic L it is exactly that.
    """

    sigma: Sigma = 0.01
    tolerance: Tolerance = 0.05
    max_products: Limit = 400
    about: ClassVar[About] = About(
        "S_σ",
        "the mean rise of the loss under Gaussian noise",
        "E L(θ + σξ) − L(θ), ξ ~ N(0, I)",
        "two passes a pair, until the standard error is small",
        "one σ for all parameters, whatever their size",
        exact="no: a standard error",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        return average_rise(problem, effort, self.sigma, self.tolerance, self.max_products)
