"""The rise of the loss in the worst direction: max_{‖δ‖₂ ≤ ρ} L(θ + δ) − L(θ)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field

from ..problem import Problem
from ..specs import spec
from .ascent import Hill, Region, quadratic, rounding, worst_rise
from .contract import About, Measured
from .effort import Effort

Radius = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0, le=10_000)]


@spec
class SamSharpness:
    """max_{‖δ‖₂ ≤ ρ} L(θ + δ) − L(θ), by projected ascent with restarts.

    The first ascent starts at θ, along the gradient; the others start at random points of the
    sphere. For ρ → 0 at a minimum it is ½ ρ² max(λ_max, 0).

    Reference: Foret et al., Sharpness-aware minimization, ICLR 2021.
    """

    rho: Radius = 0.05
    steps: Count = 20
    restarts: Count = 3
    about: ClassVar[About] = About(
        "S_ρ",
        "the largest rise of the loss in a ball of radius ρ",
        "max_{‖δ‖₂ ≤ ρ} L(θ + δ) − L(θ)",
        "restarts × steps gradients and two products with the Hessian",
        "the best rise that was found, a lower bound of the maximum: more steps and restarts can "
        "only raise it. At a small radius compare details['quadratic'] with details['rounding']",
        exact="no: a lower bound of the maximum",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        region = Region(torch.ones(problem.size, dtype=torch.float64), self.rho, "l2")
        return worst_rise(problem, region, effort, self.steps, self.restarts)


@spec
class OneStepSharpness:
    """max(0, L(θ + ρ ∇L/‖∇L‖) − L(θ)), the rise that SAM's ascent step sees.

    δ = 0 is in the ball too, so a fall of the loss counts as zero (details['rise'] keeps the sign).
    It is zero where the gradient is zero: SAM makes no ascent there.
    """

    rho: Radius = 0.05
    about: ClassVar[About] = About(
        "S_ρ (one step)",
        "the rise of the loss along the gradient",
        "max(0, L(θ + ρ ∇L/‖∇L‖) − L(θ))",
        "two gradients and one product with the Hessian",
        "one point of the ball: a lower bound of the maximum over it, zero at a stationary point",
        exact="yes, as the value of one step; a lower bound of the maximum",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        effort.expect(3)
        region = Region(torch.ones(problem.size, dtype=torch.float64), self.rho, "l2")
        hill = Hill(problem, region, effort)
        foot = hill.foot
        there = hill.at(region.farthest(foot.slope))
        details = {
            "rise": there.value - foot.value,
            "gradient_norm": float(foot.slope.norm()),
            "loss": foot.value,
            "quadratic": quadratic(problem, foot.slope @ there.u, there.u, effort),
            "rounding": rounding(problem, foot.value),
        }
        method = "one step along the gradient" if foot.slope.any() else "zero gradient: no step"
        return Measured(max(0.0, there.value - foot.value), 0.0, True, method, details=details)
