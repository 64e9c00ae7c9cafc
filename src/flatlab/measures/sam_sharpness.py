"""The rise of the loss in the worst direction: max_{‖δ‖₂ ≤ ρ} L(θ + δ) − L(θ)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from ..problem import Problem
from ..specs import spec
from .ascent import Hill, Place, Radius, Region, Times, quadratic, worst_rise
from .contract import About, Measured
from .effort import Effort
from .rounding import lost, settled


@spec
class SamSharpness:
    """max_{‖δ‖₂ ≤ ρ} L(θ + δ) − L(θ), by projected ascent from several starts (`ascent`).

    For ρ → 0 at a minimum it is ½ ρ² max(λ_max, 0).

    Reference: Foret et al., Sharpness-aware minimization, ICLR 2021.
    """

    rho: Radius = 0.05
    steps: Times = 50
    restarts: Times | None = None
    about: ClassVar[About] = About(
        "S_ρ",
        "the largest rise of the loss in a ball of radius ρ",
        "max_{‖δ‖₂ ≤ ρ} L(θ + δ) − L(θ)",
        "about 10 gradients a start, 20 products with the Hessian for the starts",
        "the best rise that was found, a lower bound of the maximum: more steps and restarts can "
        "only raise it",
        exact="no: a lower bound of the maximum",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        region = Region(torch.ones(problem.size, dtype=torch.float64), self.rho, "l2")
        return worst_rise(problem, region, effort, self.steps, self.restarts)


@spec
class OneStepSharpness:
    """max(0, L(θ + ρ ∇L/‖∇L‖) − L(θ)), the rise that SAM's ascent step sees, in float64.

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
        hill = Hill(problem.precise, region, effort)
        foot = hill.foot
        there = hill.at(region.farthest(foot.slope))
        details = {
            "rise": there.value - foot.value,
            "gradient_norm": float(foot.slope.norm()),
            "loss": foot.value,
            "quadratic": quadratic(problem.precise, foot.slope @ there.u, there.u, effort),
        }
        method = "one step along the gradient" if foot.slope.any() else "zero gradient: no step"
        error = self._rounding(problem.precise, foot, there)
        return settled(max(0.0, there.value - foot.value), error, method, details=details)

    def _rounding(self, problem: Problem, foot: Place, there: Place) -> float:
        """Return the rounding of both losses, and that of the direction near a stationary point."""
        error = lost(problem, Problem.value)
        with problem.moved(there.u):
            error += lost(problem, Problem.value)
        slope = lost(problem, lambda part: part.value_and_gradient()[1].to("cpu", torch.float64))
        length = float(foot.slope.norm())
        turned = float(np.linalg.norm(slope)) / length if length else 0.0
        return float(error + self.rho * float(there.slope.norm()) * turned * (1 + turned))
