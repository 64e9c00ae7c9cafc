"""The largest loss near θ by projected ascent: max L(θ + δ) over an ellipsoid or a box.

With δ = scale ⊙ u the region is a ball ‖u‖₂ ≤ ρ or a box ‖u‖_∞ ≤ ρ, and ascent runs in u. A step is
u ← Π(u + t ∇_u L). The first attempt is t = ∞, the point of the region farthest along the gradient.
If L is convex this never lowers the loss, since L(v) ≥ L(u) + ⟨∇L(u), v − u⟩ ≥ L(u). If it does
lower the loss, a finite t is halved until it does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..problem import Problem
from .contract import Measured
from .effort import Effort

# An ascent ends if a step adds less than this share of the rise so far.
SETTLED = 1e-9

Norm = Literal["l2", "linf"]


@dataclass(frozen=True)
class Region:
    """All δ = scale ⊙ u with ‖u‖ ≤ radius."""

    scale: Tensor
    radius: float
    norm: Norm

    def project(self, u: Tensor) -> Tensor:
        """Return the nearest point of the ball or box."""
        if self.norm == "linf":
            return u.clamp(-self.radius, self.radius)
        size = float(u.norm())
        return u if size <= self.radius else u * (self.radius / size)

    def farthest(self, gradient: Tensor) -> Tensor:
        """Return the point with the largest ⟨gradient, u⟩; zero for a zero gradient."""
        if self.norm == "linf":
            return self.radius * gradient.sign()
        size = float(gradient.norm())
        return gradient * (self.radius / size) if size > 0 else torch.zeros_like(gradient)

    def random(self, effort: Effort, index: int) -> Tensor:
        """Return a point of the sphere, or a corner of the box."""
        size = len(self.scale)
        if self.norm == "linf":
            return self.radius * effort.signs("ascent", index, size)
        return self.farthest(effort.normal("ascent", index, size))


@dataclass
class Place:
    """State of one ascent: a point, the loss there and its gradient."""

    u: Tensor
    value: float
    slope: Tensor


class Hill:
    """L over a region, counting the gradients spent."""

    def __init__(self, problem: Problem, region: Region, effort: Effort):
        self.problem, self.region, self.effort = problem, region, effort
        self.foot = self.at(torch.zeros_like(region.scale))

    def at(self, u: Tensor) -> Place:
        """Return the loss and its gradient in u; a loss that is NaN counts as the smallest."""
        with self.problem.moved(self.region.scale * u):
            value, gradient = self.problem.value_and_gradient()
        self.effort.spend()
        slope = gradient.to("cpu", torch.float64) * self.region.scale
        if not bool(torch.isfinite(slope).all()):
            slope = torch.zeros_like(slope)
        return Place(u, -math.inf if math.isnan(value) else value, slope)

    def climb(self, start: Place, steps: int) -> tuple[Place, bool]:
        """Return the highest point of an ascent, and whether the budget allowed all its steps."""
        here, t = start, math.inf
        for _ in range(steps):
            if not bool(here.slope.any()):
                break
            if not self.effort.left():
                return here, False
            there = self.at(self._step(here, t))
            gain = there.value - here.value
            small = SETTLED * abs(there.value - self.foot.value)
            if bool((there.u == here.u).all()) or (math.isinf(t) and 0 <= gain <= small):
                break
            if gain > 0:
                here, t = there, (2 * t if t < 2 else math.inf)
            else:
                t = 1.0 if math.isinf(t) else t / 2
        return here, True

    def _step(self, here: Place, t: float) -> Tensor:
        far = self.region.farthest(here.slope)
        return far if math.isinf(t) else self.region.project(here.u + t * far)


def worst(
    problem: Problem, region: Region, effort: Effort, steps: int, restarts: int
) -> tuple[Hill, Place, list[float], bool]:
    """Climb from θ and from random points; return the best, every restart's rise, completeness."""
    effort.expect(1 + restarts * (steps + 1))
    hill = Hill(problem, region, effort)
    best, rises, complete = hill.foot, [], True
    for restart in range(restarts):
        if restart and not effort.left():
            complete = False
            break
        start = hill.at(region.random(effort, restart)) if restart else hill.foot
        top, finished = hill.climb(start, steps)
        if not restart and top is hill.foot and steps and not finished:
            top = hill.at(region.farthest(hill.foot.slope))  # the minimum that gives an answer
        rises.append(top.value - hill.foot.value)
        complete &= finished
        best = top if top.value > best.value else best
    return hill, best, rises, complete


def worst_rise(
    problem: Problem, region: Region, effort: Effort, steps: int, restarts: int
) -> Measured:
    """Return the best rise found; δ = 0 is allowed, so it is never below zero.

    Its details have the second-order prediction at the first step along the gradient (`quadratic`;
    in a ball ρ‖g‖ + ½ρ² gᵀ∇²L g/‖g‖²) and at the best point (`quadratic_at_best`).
    """
    hill, best, rises, complete = worst(problem, region, effort, steps, restarts)
    far, step = region.farthest(hill.foot.slope), region.scale * best.u
    details = {
        "restarts": np.array(rises),
        "step": step,
        "loss": hill.foot.value,
        "quadratic": quadratic(problem, hill.foot.slope @ far, region.scale * far, effort),
        "quadratic_at_best": quadratic(problem, hill.foot.slope @ best.u, step, effort),
        "rounding": rounding(problem, hill.foot.value),
    }
    method = f"projected ascent, {steps} steps, {len(rises)} starts; a lower bound"
    return Measured(best.value - hill.foot.value, 0.0, False, method, None, complete, (), details)


def quadratic(problem: Problem, first: Tensor, step: Tensor, effort: Effort) -> float:
    """Return ⟨∇L, δ⟩ + ½ δᵀ∇²L δ, which does not cancel at a small radius; NaN without ∇²L."""
    if not bool(step.any()):
        return 0.0
    try:
        product = problem.matrix("hessian") @ step
    except UserError:
        return math.nan
    effort.spend()
    return float(first) + float(step @ product) / 2


def rounding(problem: Problem, loss: float) -> float:
    """Return the size of rounding in a difference of two losses."""
    return float(torch.finfo(problem.dtype).eps) * abs(loss)
