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
from torch import Tensor

from ..outside.memory import require_memory
from ..problem import Problem
from ..specs import spec
from .ascent import Region, Times, risen, worst
from .contract import About, Measured
from .effort import Effort


@spec
class Keskar:
    """φ(ε, A) = 100 · (max_{y ∈ C} L(θ + Ay) − L(θ)) / (1 + L(θ)), |y_i| ≤ ε(|(A⁺θ)_i| + 1) in C.

    A is the identity, or a matrix of independent standard normal numbers with `dimension` columns;
    then the value is the mean over `draws` such matrices. The maximum is sought by projected ascent
    from several starts (`ascent`). The paper takes ten iterations of L-BFGS-B from θ, which find
    less and, at an exact minimum, never leave θ.
    """

    epsilon: Annotated[float, Field(gt=0)] = 1e-3
    dimension: Annotated[int, Field(gt=0)] | None = None
    steps: Times = 50
    restarts: Times | None = None
    draws: Annotated[int, Field(gt=1)] = 5
    about: ClassVar[About] = About(
        "φ_ε",
        "the largest rise of the loss in a small box, in per cent of 1 + L",
        "100 · (max_{|y_i| ≤ ε(|(A⁺θ)_i| + 1)} L(θ + Ay) − L(θ)) / (1 + L(θ))",
        "about 10 gradients a start; in random subspaces that for each of the draws",
        "the best rise that was found, a lower bound. The box has an absolute and a relative part; "
        "the scale of the random A (standard normal entries) sets how far a subspace reaches",
        exact="no: a lower bound of the maximum",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; the interval of the mean over subspaces has no upper end either."""
        base = problem.precise.value()
        effort.spend()
        theta = problem.precise.theta.to("cpu", torch.float64)
        values, complete = [], True
        for draw in range(1 if self.dimension is None else self.draws):
            if draw >= 2 and not effort.left():
                complete = False
                break
            A = None if self.dimension is None else _subspace(problem, effort, draw, self.dimension)
            inside = theta if A is None else _coordinates(A, theta)
            sides = inside.abs() + 1
            region = Region(sides if A is None else A * sides, self.epsilon, "linf")
            _, best, rises, finished = worst(problem, region, effort, self.steps, self.restarts)
            complete &= finished
            step = region.step(best.u)
            values.append(100 * max(0.0, risen(problem, step)) / (1 + base))
        method = f"projected ascent, {len(rises)} starts; a lower bound"
        stderr, dof = math.inf, None
        if self.dimension is not None:
            method = f"{method}; {len(values)} random subspaces of dimension {self.dimension}"
            stderr, dof = float(np.std(values, ddof=1)) / math.sqrt(len(values)), len(values) - 1
        mean = float(np.mean(values))
        details = {"loss": base, "draws": np.array(values), "step": step}
        return Measured(mean, stderr, False, method, dof, complete, (), details, lower=True)


def _subspace(problem: Problem, effort: Effort, draw: int, dimension: int) -> Tensor:
    """Return A with standard normal entries, (size, dimension)."""
    first = draw * dimension
    every = range(first, first + dimension)
    require_memory(
        3 * 8 * problem.size * dimension,  # its columns, the matrix, and the matrix times the sides
        f"a random subspace of {dimension} vectors of {problem.size:.3g} numbers",
        "give a smaller dimension, or measure fewer parameters with params=",
    )
    return torch.stack([effort.normal("keskar:subspace", i, problem.size) for i in every], 1)


def _coordinates(A: Tensor, theta: Tensor) -> Any:
    """Return A⁺θ; by the normal equations, which are well conditioned, for a thin A."""
    if A.shape[1] > A.shape[0] // 4:
        return torch.linalg.pinv(A) @ theta
    return torch.linalg.solve(A.T @ A, A.T @ theta)
