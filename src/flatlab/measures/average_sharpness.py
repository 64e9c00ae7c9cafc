"""The rise of the loss in a random direction: E L(θ + σξ) − L(θ)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from ..problem import Problem
from ..specs import spec
from .ascent import rounding
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Limit, Tolerance
from .probes import MINIMUM, Sample, sample

Sigma = Annotated[float, Field(gt=0)]


def gaussian_mean(
    problem: Problem,
    effort: Effort,
    scale: Tensor | float,
    value: Callable[[], float],
    allowed: Callable[[float], float],
    limit: int,
) -> Sample:
    """Estimate E value(θ + scale ⊙ ξ), ξ standard normal, until stderr <= allowed(mean).

    Values are taken in pairs θ ± scale ⊙ ξ, so odd orders cancel.
    """

    def probe(index: int) -> np.ndarray:
        step, total = scale * effort.normal("gaussian", index, problem.size), 0.0
        for sign in (1.0, -1.0):
            with problem.moved(sign * step):
                total += value()
        effort.spend()  # the pair's second pass; the first is counted with the probe
        return np.array([total / 2])

    effort.expect(2 * MINIMUM + 1)
    return sample(
        probe, effort, lambda m, e: float(e[0]) <= allowed(float(m[0])), max(limit // 2, 2)
    )


def average_rise(
    problem: Problem, effort: Effort, scale: Tensor | float, tolerance: float, limit: int
) -> Measured:
    """Estimate E L(θ + scale ⊙ ξ) − L(θ)."""
    base = problem.value()
    effort.spend()
    floor = rounding(problem, base)
    drawn = gaussian_mean(
        problem,
        effort,
        scale,
        lambda: problem.value() - base,
        lambda mean: max(tolerance * abs(mean), floor),
        limit,
    )
    return Measured(
        float(drawn.mean[0]),
        float(drawn.stderr[0]),
        False,
        f"{len(drawn.rows)} antithetic pairs",
        drawn.dof,
        drawn.complete,
        (),
        {"loss": base, "rounding": floor},
    )


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
