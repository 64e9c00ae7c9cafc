"""The density of eigenvalues, by stochastic Lanczos quadrature."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from ..problem import Problem
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Kind, Limit
from .krylov import krylov


@spec
class Spectrum:
    """The share of eigenvalues near each point of a grid (Ghorbani et al. 2019).

    From a random unit v, k Lanczos steps give nodes θ_j and weights w_j = (first entry of the j-th
    eigenvector of T)² with Σ w_j p(θ_j) = vᵀp(A)v for polynomials p of degree < 2k, whose mean over
    v is Tr p(A)/size. The density is Σ w_j N(·; θ_j, σ²), averaged over probes; σ is `width` of the
    spread of the spectrum.
    """

    matrix: Kind = "hessian"
    probes: Annotated[int, Field(ge=2)] = 8
    steps: Limit = 30
    points: Annotated[int, Field(ge=10, le=10_000)] = 400
    width: Annotated[float, Field(gt=0, lt=1)] = 0.01
    about: ClassVar[About] = About(
        "ρ(λ)",
        "the density of eigenvalues on a grid; it integrates to one",
        "(1/size) Σ_i N(λ; λ_i, σ²)",
        "probes × steps products (240 by default)",
        "a smoothed density: single outliers and the exact mass at zero are not resolved",
        exact="no: a standard error at each point",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; the error at a grid point is the standard error over probes."""
        matrix = problem.matrix(self.matrix)
        steps = min(self.steps, matrix.size)
        effort.expect(steps * self.probes)
        nodes, weights, complete = [], [], True
        for i in range(self.probes):
            space = krylov(matrix, effort, f"spectrum:{i}")
            while space.steps < steps and (space.steps < 2 or effort.left()):
                space.grow()
                effort.spend()
                if float(np.abs(space.coupling).max(initial=0.0)) == 0:
                    break  # an invariant subspace: the quadrature is exact
            else:
                complete &= space.steps >= steps
            ritz = space.ritz()
            nodes.append(ritz.values)
            weights.append(ritz.coefficients[0] ** 2)
            if 1 <= i < self.probes - 1 and not effort.left():
                complete = False
                break
        low, high = min(n.min() for n in nodes), max(n.max() for n in nodes)
        spread = (high - low) or abs(high) or 1.0
        sigma = self.width * spread
        grid = np.linspace(low - 4 * sigma, high + 4 * sigma, self.points)
        bumps = np.array([_density(grid, n, w, sigma) for n, w in zip(nodes, weights, strict=True)])
        stderr = bumps.std(0, ddof=1) / np.sqrt(len(bumps))
        details = {
            "grid": grid,
            "nodes": np.concatenate(nodes),
            "weights": np.concatenate(weights) / len(nodes),
            "sigma": sigma,
        }
        return Measured(
            bumps.mean(0), stderr, False, f"Lanczos quadrature, {len(bumps)} probes",
            len(bumps) - 1, complete, (), details,
        )  # fmt: skip


def _density(grid: np.ndarray, nodes: np.ndarray, weights: np.ndarray, sigma: float) -> np.ndarray:
    distance = (grid[:, None] - nodes) / sigma
    bumps = np.exp(-(distance**2) / 2) @ weights
    return np.asarray(bumps / (sigma * np.sqrt(2 * np.pi)))
