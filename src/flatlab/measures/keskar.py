"""ε-sharpness of Keskar et al.: the rise of the loss in a small box, in per cent of 1 + L.

Reference: Keskar et al., On large-batch training for deep learning, ICLR 2017, Metric 2.1 (their
Tables 3 and 4).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from scipy.optimize import minimize
from torch import Tensor

from ..problem import Problem
from ..specs import spec
from .ascent import rounding
from .contract import About, Measured, Vector
from .effort import Effort


class _Spent(Exception):
    """Raised when the budget ends inside the solver."""


class _Box:
    """z ↦ L(θ + A(b ⊙ z)) − L(θ) for z in [−1, 1]^p; A is a matrix or None for the identity."""

    def __init__(
        self, problem: Problem, A: Tensor | None, sides: Tensor, effort: Effort, base: float
    ):
        self.problem, self.A, self.sides, self.effort, self.base = problem, A, sides, effort, base
        self.best, self.calls, self.unit = 0.0, 0, 1.0

    def rise(self, z: Vector) -> tuple[float, Vector]:
        """Return the rise and its gradient in z, and remember the largest."""
        if self.calls and not self.effort.left():
            raise _Spent
        y = self.sides * torch.from_numpy(np.asarray(z, np.float64))
        step = y if self.A is None else self.A @ y.to(self.A.dtype)
        with self.problem.moved(step):
            value, gradient = self.problem.value_and_gradient()
        self.calls += 1
        self.effort.spend()
        rise = value - self.base
        if math.isfinite(rise):
            self.best = max(self.best, rise)
        flat = gradient.to("cpu")
        pulled = flat if self.A is None else self.A.T @ flat
        return rise, (self.sides * pulled.to(torch.float64)).numpy()

    def descended(self, z: Vector) -> tuple[float, Vector]:
        """Return what the solver minimises, scaled so that the first gradient is of order one."""
        rise, slope = self.rise(z)
        finite = math.isfinite(rise)
        return (-rise / self.unit, -slope / self.unit) if finite else (math.inf, 0 * slope)

    def solve(self, start: Vector, iterations: int) -> None:
        """Run L-BFGS-B from one start."""
        _, slope = self.rise(start)
        self.unit = float(np.abs(slope).max(initial=0.0))
        if self.unit == 0:
            return
        options: Any = {"maxiter": iterations, "maxfun": 5 * iterations, "ftol": 0, "gtol": 0}
        minimize(
            self.descended,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[(-1.0, 1.0)] * len(start),
            options=options,
        )


@spec
class Keskar:
    """φ(ε, A) = 100 · (max_{y ∈ C} L(θ + Ay) − L(θ)) / (1 + L(θ)), |y_i| ≤ ε(|(A⁺θ)_i| + 1) in C.

    A is the identity, or a matrix of independent standard normal numbers with `dimension` columns;
    then the value is the mean over `draws` such matrices with its standard error. The maximum is
    sought with L-BFGS-B, ten iterations as in the paper, from θ and from random corners of the box
    (at an exact minimum the solver would never leave θ).
    """

    epsilon: Annotated[float, Field(gt=0)] = 1e-3
    dimension: Annotated[int, Field(gt=0)] | None = None
    iterations: Annotated[int, Field(gt=0)] = 10
    restarts: Annotated[int, Field(gt=0)] = 2
    draws: Annotated[int, Field(gt=1)] = 5
    about: ClassVar[About] = About(
        "φ_ε",
        "the largest rise of the loss in a small box, in per cent of 1 + L",
        "100 · (max_{|y_i| ≤ ε(|(A⁺θ)_i| + 1)} L(θ + Ay) − L(θ)) / (1 + L(θ))",
        "about 15 gradients a start; in random subspaces that for each of the draws",
        "the best rise that was found, a lower bound. The box has an absolute and a relative part; "
        "the scale of the random A (standard normal entries) sets how far a subspace reaches",
        exact="no: a lower bound of the maximum",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        draws = 1 if self.dimension is None else self.draws
        effort.expect(1 + draws * self.restarts * int(1.5 * self.iterations))
        base = problem.value()
        effort.spend()
        theta = problem.theta.to("cpu")
        values, complete = [], True
        for draw in range(draws):
            if draw >= 2 and not effort.left():
                complete = False
                break
            A = None if self.dimension is None else _subspace(problem, effort, draw, self.dimension)
            inside = theta.double() if A is None else _coordinates(A, theta)
            box = _Box(problem, A, self.epsilon * (inside.abs() + 1), effort, base)
            complete &= self._search(box, effort, draw)
            values.append(100 * box.best / (1 + base))
        details = {"loss": base, "draws": np.array(values), "rounding": rounding(problem, base)}
        method = f"L-BFGS-B, {self.iterations} iterations, {self.restarts} starts; a lower bound"
        if self.dimension is None:
            return Measured(values[0], 0.0, False, method, None, complete, (), details)
        method = f"{method}; {len(values)} random subspaces of dimension {self.dimension}"
        stderr = float(np.std(values, ddof=1)) / math.sqrt(len(values))
        dof = len(values) - 1
        return Measured(float(np.mean(values)), stderr, False, method, dof, complete, (), details)

    def _search(self, box: _Box, effort: Effort, draw: int) -> bool:
        """Run all starts; return whether the budget allowed them."""
        size = len(box.sides)
        try:
            for start in range(self.restarts):
                index = draw * self.restarts + start
                z = effort.signs("keskar:start", index, size).numpy() if start else np.zeros(size)
                box.solve(z, self.iterations)
        except _Spent:
            return False
        return True


def _subspace(problem: Problem, effort: Effort, draw: int, dimension: int) -> Tensor:
    """Return A with standard normal entries, (size, dimension), in the model's precision."""
    A = torch.empty((problem.size, dimension), dtype=problem.dtype)
    for i in range(dimension):
        A[:, i] = effort.normal("keskar:subspace", draw * dimension + i, problem.size)
    return A


def _coordinates(A: Tensor, theta: Tensor) -> Tensor:
    """Return A⁺θ; by the normal equations, which are well conditioned, for a thin A."""
    if A.shape[1] > A.shape[0] // 4:
        inside: Tensor = torch.linalg.pinv(A.double()) @ theta.double()
    else:
        inside = torch.linalg.solve((A.T @ A).double(), (A.T @ theta).double())
    return inside
