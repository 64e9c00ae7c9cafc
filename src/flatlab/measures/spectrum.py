"""The density of eigenvalues, by stochastic Lanczos quadrature."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from scipy.special import ive

from ..problem import Problem
from ..specs import spec
from .contract import About, Measured, Vector
from .effort import Effort
from .eigenvalues import EXACT, Kind, Limit, Method
from .exact import whole
from .lanczos import Lanczos, require_basis
from .rounding import rounding, scaled, settled


@spec
class Spectrum:
    """The share of eigenvalues near each point of a grid (Ghorbani et al. 2019).

    From a random unit v, k Lanczos steps give nodes θ_j and weights w_j = (first entry of the j-th
    eigenvector of T)² with Σ w_j p(θ_j) = vᵀp(A)v for polynomials p of degree < 2k, whose mean over
    v is Tr p(A)/size. The density is Σ w_j N(·; θ_j, σ²), averaged over probes; σ is `width` of the
    spread of the spectrum. How far the bumps are from polynomials of degree < 2k is part of the
    error.
    """

    matrix: Kind = "hessian"
    method: Method = "auto"
    probes: Annotated[int, Field(ge=2)] = 8
    steps: Limit = 40
    points: Annotated[int, Field(ge=10, le=10_000)] = 400
    width: Annotated[float, Field(gt=0, lt=1)] = 0.03
    about: ClassVar[About] = About(
        "ρ(λ)",
        "the density of eigenvalues on a grid; it integrates to one",
        "(1/size) Σ_i N(λ; λ_i, σ²)",
        "probes × steps products (320 by default)",
        "a smoothed density: single outliers and the exact mass at zero are not resolved",
        exact=f"{EXACT}; otherwise a standard error at each point, and a bound on the quadrature's",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; details have the grid, σ, the nodes with weights, and the first two moments."""
        known = whole(problem, self.matrix, effort, self.method)
        if known is not None:
            values = known.values
            density, _, details = self._smoothed([values], [np.full(len(values), 1 / len(values))])
            shift = rounding(problem.precise, self.matrix).size(known.scale)
            details["moments_stderr"] = shift * np.array([1, 2 * known.scale])
            error = shift * _slope(details["sigma"])
            return settled(density[0], error, known.how, details=details)
        matrix, noise = scaled(problem, self.matrix)
        steps = min(self.steps, matrix.size)
        require_basis(matrix.size, steps, effort, "number of steps")
        effort.expect(steps * self.probes)
        nodes, weights, least = list[Vector](), list[Vector](), steps
        for i in range(self.probes):
            if len(nodes) >= 2 and not effort.left():
                break
            space = Lanczos(matrix, effort.normal(f"spectrum:{i}", 0, matrix.size))
            while len(space.alpha) < steps and (len(space.alpha) < 2 or effort.left()):
                space.grow()
                effort.spend()
                if space.exhausted:
                    break
            if not space.exhausted:
                least = min(least, len(space.alpha))
            values, vectors = space.ritz()
            nodes.append(noise.unit * values)
            weights.append(vectors[0] ** 2)
        bumps, moments, details = self._smoothed(nodes, weights)
        every, sigma, density = details["nodes"], details["sigma"], bumps.mean(0)
        far, draws = float(np.abs(every).max()), matrix.size * len(nodes)
        # A lone eigenvalue may show in few probes, so that their spread is too small.
        first = np.mean([float(w @ abs(n)) for n, w in zip(nodes, weights, strict=True)])
        sizes, peaks = np.array([first, details["moments"][1]]), np.array([far, far**2])
        errors = np.maximum(_stderr(moments), least_error(sizes, peaks, draws))
        stderr = np.maximum(_stderr(bumps), least_error(density, _height(sigma), draws))
        shift = noise.size(far)  # of each node, by rounding
        details["moments_stderr"] = errors + shift * np.array([1, 2 * far])
        quadrature = unresolved(2 * sigma / _spread(every), 2 * least)
        stderr = stderr + _height(sigma) * quadrature + _slope(sigma) * shift
        method = f"Lanczos quadrature, {len(nodes)} probes"
        method = noise.said(method, self.width * float(np.ptp(every)))
        complete = len(nodes) == self.probes and least >= steps
        return Measured(density, stderr, False, method, len(nodes) - 1, complete, (), details)

    def _smoothed(
        self, nodes: list[Vector], weights: list[Vector]
    ) -> tuple[Vector, Vector, dict[str, Any]]:
        """Return the density and the first two moments of each probe, and the details."""
        every = np.concatenate(nodes)
        sigma = self.width * _spread(every)
        grid = np.linspace(every.min() - 4 * sigma, every.max() + 4 * sigma, self.points)
        pairs = list(zip(nodes, weights, strict=True))
        bumps = np.array([_density(grid, n, w, sigma) for n, w in pairs])
        moments = np.array([[float(w @ n), float(w @ n**2)] for n, w in pairs])
        details = {
            "grid": grid,
            "nodes": every,
            "weights": np.concatenate(weights) / len(nodes),
            "sigma": sigma,
            "moments": moments.mean(0),
        }
        return bumps, moments, details


def _spread(nodes: Vector) -> float:
    return float(np.ptp(nodes)) or abs(float(nodes.max())) or 1.0


def _stderr(rows: Vector) -> Vector:
    return np.asarray(rows.std(0, ddof=1) / np.sqrt(len(rows)))


def least_error(mean: Vector, peak: float | Vector, draws: int) -> Vector:
    """Return the error of an estimate of Tr f(A)/size, from its own value.

    For a random unit v, Var vᵀf(A)v ≤ 2 Tr f(A)²/size² ≤ 2 peak (Tr |f(A)|/size)/size, where |f|
    is at most `peak`. With c = 2 peak/draws and draws = size × probes, the true mean m differs from
    the estimate by an error of √(c m); solved for m this is about √(c mean + c²).
    """
    c = 2 * peak / draws
    return np.asarray(np.sqrt(c) * np.sqrt(mean + c))


def unresolved(sigma: float, degree: int) -> float:
    """Bound the error of a quadrature that is exact below a degree, for a bump of height one.

    On [−1, 1] a Gaussian of width σ has Chebyshev coefficients of at most
    2 e^{−z} I_{m/2}(z) with z = 1/(4σ²), reached by bumps in the middle; the quadrature of each
    polynomial that it does not integrate is off by at most twice its coefficient.
    """
    z = 1 / (4 * sigma**2)
    orders = np.arange(degree, degree + 10 * int(np.ceil(1 / sigma)) + 40)
    return float(min(1.0, 2 * np.sum(2 * ive(orders / 2, z))))


def _height(sigma: float) -> float:
    """Return the largest value of N(0, σ²)."""
    return float(1 / (sigma * np.sqrt(2 * np.pi)))


def _slope(sigma: float) -> float:
    """Return the steepest slope of N(0, σ²)."""
    return float(_height(sigma) / (sigma * np.sqrt(np.e)))


def _density(grid: Vector, nodes: Vector, weights: Vector, sigma: float) -> Vector:
    distance = (grid[:, None] - nodes) / sigma
    bumps = np.exp(-(distance**2) / 2) @ weights
    return np.asarray(bumps * _height(sigma))
