"""The largest loss near θ by projected ascent: max L(θ + δ) over an ellipsoid or a box.

With δ = B u the region is a ball ‖u‖₂ ≤ ρ or a box ‖u‖_∞ ≤ ρ, and ascent runs in u. A step is
u ← Π(u + t ∇_u L). The first attempt is t = ∞, the point of the region farthest along the gradient.
If L is convex this never lowers the loss, since L(v) ≥ L(u) + ⟨∇L(u), v − u⟩ ≥ L(u). If it does
lower the loss, a finite t is halved until it does not.

An ascent ends in a local maximum, so there are several: from θ along the gradient, from the ends of
the region along the leading eigenvectors of Bᵀ ∇²L B, and from random points. What they find is a
lower bound of the maximum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..errors import UserError
from ..problem import Matrix, Problem
from ..problem.shaking import SMALL
from .contract import Measured
from .effort import Effort
from .lanczos import Lanczos, require_basis
from .rounding import EXACT, lost

# An ascent ends if a step adds less than this share of the rise so far.
SETTLED = 1e-7
# Number of leading eigenvectors to start along, each in both directions.
LEADING = 3
# Products of the Lanczos method that looks for them.
GLANCE = 20
# Starts by default: where gradients are cheap, and elsewhere.
MANY, FEW = 32, 8

Norm = Literal["l2", "linf"]
Radius = Annotated[float, Field(gt=0)]
Times = Annotated[int, Field(gt=0, le=10_000)]


@dataclass(frozen=True)
class Region:
    """All δ = B u with ‖u‖ ≤ ρ; B is the diagonal `scale` (size,) or a matrix (size, dimension)."""

    scale: Tensor
    radius: float
    norm: Norm

    @property
    def dimension(self) -> int:
        """Length of u."""
        return self.scale.shape[-1]

    def step(self, u: Tensor) -> Tensor:
        """Return δ = B u."""
        return self.scale * u if self.scale.ndim == 1 else self.scale @ u

    def pulled(self, gradient: Tensor) -> Tensor:
        """Return ∇_u L = Bᵀ ∇L."""
        return self.scale * gradient if self.scale.ndim == 1 else self.scale.T @ gradient

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
        if self.norm == "linf":
            return self.radius * effort.signs("ascent", index, self.dimension)
        return self.farthest(effort.normal("ascent", index, self.dimension))


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
        self.foot = self.at(torch.zeros(region.dimension, dtype=torch.float64))

    def at(self, u: Tensor) -> Place:
        """Return the loss and its gradient in u; a loss that is NaN counts as the smallest."""
        with self.problem.moved(self.region.step(u)):
            value, gradient = self.problem.value_and_gradient()
        self.effort.spend()
        slope = self.region.pulled(gradient.to("cpu", torch.float64))
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
        if math.isinf(t):
            return self.region.farthest(here.slope)
        size = here.slope.abs().max() if self.region.norm == "linf" else here.slope.norm()
        return self.region.project(here.u + (t * self.region.radius / size) * here.slope)

    def starts(self, count: int) -> Iterator[Place]:
        """Yield points to climb from: θ, both ends along each leading eigenvector, random ones."""
        yield self.foot
        made = 1
        for v in self._leading() if count > 1 else ():
            for end in (self.region.farthest(v), self.region.farthest(-v)):
                if made < count:
                    made += 1
                    yield self.at(end)
        for index in range(made, count):
            yield self.at(self.region.random(self.effort, index))

    def _leading(self) -> list[Tensor]:
        """Return the leading eigenvectors of Bᵀ ∇²L B, roughly."""
        region, size = self.region, self.region.dimension
        try:
            hessian = self.problem.matrix("hessian")
            matrix = Matrix(size, lambda u: region.pulled(hessian @ region.step(u)))
            require_basis(size, GLANCE, self.effort, "search")
            space = Lanczos(matrix, self.effort.normal("ascent:leading", 0, size))
            while not space.exhausted and len(space.alpha) < GLANCE and self.effort.left():
                space.grow()
                self.effort.spend()
        except UserError:  # no second derivative, or no memory for the vectors
            return []
        if not space.alpha:
            return []
        values, vectors = space.ritz()
        order = np.argsort(values)[::-1][:LEADING]
        return [space.vector(vectors[:, i]) for i in order]


def worst(
    problem: Problem, region: Region, effort: Effort, steps: int, restarts: int | None
) -> tuple[Hill, Place, list[float], bool]:
    """Climb from every start; return the best point, every start's rise, and completeness."""
    small = region.dimension <= SMALL
    count = restarts or (MANY if small else FEW)
    effort.expect(1 + GLANCE + count * (steps // 2 + 1))
    hill = Hill(problem.precise if small else problem, region, effort)
    best, rises, complete = hill.foot, [], True
    for number, start in enumerate(hill.starts(count)):
        if number and not effort.left():
            complete = False
            break
        top, finished = hill.climb(start, steps)
        if not number and top is hill.foot and not finished:
            top = hill.at(region.farthest(hill.foot.slope))  # the minimum that gives an answer
        rises.append(top.value - hill.foot.value)
        complete &= finished
        best = top if top.value > best.value else best
    return hill, best, rises, complete


def risen(problem: Problem, step: Tensor) -> float:
    """Return L(θ + δ) − L(θ) in float64, less its rounding if that can change printed digits."""

    def rise(part: Problem) -> float:
        base = part.value()
        with part.moved(step):
            return part.value() - base

    found, error = rise(problem.precise), float(lost(problem.precise, rise))
    return found if error <= EXACT * found else found - error


def worst_rise(
    problem: Problem, region: Region, effort: Effort, steps: int, restarts: int | None
) -> Measured:
    """Return the best rise found; δ = 0 is allowed, so it is never below zero.

    Its details have the second-order prediction at the first step along the gradient (`quadratic`;
    in a ball ρ‖g‖ + ½ρ² gᵀ∇²L g/‖g‖²) and at the best point (`quadratic_at_best`).
    """
    hill, best, rises, complete = worst(problem, region, effort, steps, restarts)
    far, step = region.farthest(hill.foot.slope), region.step(best.u)
    details = {
        "restarts": np.array(rises),
        "step": step,
        "loss": hill.foot.value,
        "quadratic": quadratic(problem, hill.foot.slope @ far, region.step(far), effort),
        "quadratic_at_best": quadratic(problem, hill.foot.slope @ best.u, step, effort),
    }
    rise = max(0.0, risen(problem, step))
    method = f"projected ascent, {len(rises)} starts; a lower bound"
    return Measured(rise, math.inf, False, method, None, complete, (), details, lower=True)


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
