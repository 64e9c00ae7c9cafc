"""The largest eigenvalue with a proven bound: the Lanczos method from a random vector.

k products from a unit vector v = q_1 give orthonormal q_1, …, q_{k+1} and a tridiagonal T with
entries α_j, β_j. The largest eigenvalue θ of T is a lower bound of λ_max. A small residual would
show only that *some* eigenvalue is near θ; the upper bound below says that none is larger.

Let p_0 = 1 and β_j p_j(λ) = (λ − α_j) p_{j−1}(λ) − β_{j−1} p_{j−2}(λ), so that q_{j+1} = p_j(A) v.
If u is a unit eigenvector for λ, then ⟨u, q_{j+1}⟩ = p_j(λ) ⟨u, v⟩, and as the q are orthonormal,

    ⟨u, v⟩² Σ_{j=0}^{k} p_j(λ)² ≤ 1.

The sum increases for λ > θ, exponentially in k where there is no spectrum. With v = g/‖g‖ for a
standard normal g, ⟨u, g⟩ is standard normal, so |⟨u, g⟩| ≥ t except with probability
`DOUBT` = P(|N(0, 1)| < t). Hence λ_max ≤ λ* where Σ_j p_j(λ*)² = ‖g‖²/t², for all k at once, so
that stopping when λ* − θ is small does not spoil the bound.

Reference: van Dorsselaer, Hochstenbach and van der Vorst, Computing probabilistic bounds for
extreme eigenvalues of symmetric matrices with the Lanczos method, SIAM J. Matrix Anal. 2001.

scipy's `eigsh` runs to its end or raises: it can neither stop at a budget with the best pair so far
nor bound how far that is from the end of the spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import brentq
from scipy.special import erfinv
from torch import Tensor

from ..outside.memory import require_memory
from ..problem import Matrix
from .effort import Effort

# Probability that an eigenvalue lies outside its stated bound.
DOUBT = 1e-6
HOW = "Lanczos, bounded with probability 1 − 10⁻⁶"

# Larger vectors are kept in float32, to halve the memory of the basis.
LARGE = 5_000_000
# An extreme eigenvalue takes at least about this many products: fewer do not meet its tolerance.
FEWEST = 20
EPS = float(np.finfo(np.float64).eps)
# Rounding of an eigenvalue computed in float64, relative to the largest in magnitude.
ROUNDING = 50 * EPS


class Lanczos:
    """A Krylov space from a random vector, fully re-orthogonalised.

    `alpha` is the diagonal of T; `beta` is its off-diagonal, and last the norm of what the newest
    product adds to the space.
    """

    def __init__(self, matrix: Matrix, start: Tensor):
        self.matrix = matrix
        self.length = float(start.norm())
        self.basis = (start / self.length).to(_kept(matrix.size))[None]
        self.alpha: list[float] = []
        self.beta: list[float] = []

    @property
    def exhausted(self) -> bool:
        """Whether the space holds every eigenvalue that the start vector can show."""
        if not self.alpha:
            return False
        scale = max(map(abs, [*self.alpha, *self.beta]))
        return len(self.alpha) >= self.matrix.size or self.beta[-1] <= EPS * scale

    def grow(self) -> None:
        """Multiply the newest vector and orthogonalise the product, twice."""
        product = (self.matrix @ self.basis[-1].double()).to(self.basis.dtype)
        for turn in range(2):
            overlap = self.basis @ product
            if not turn:
                self.alpha.append(float(overlap[-1]))
            product = product - self.basis.T @ overlap
        self.beta.append(float(product.norm()))
        if not self.exhausted:
            self.basis = torch.cat([self.basis, (product / self.beta[-1])[None]])

    def ritz(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the eigenvalues of T, ascending, and its eigenvectors as columns."""
        values, vectors = eigh_tridiagonal(np.array(self.alpha), np.array(self.beta[:-1]))
        return values.astype(np.float64), vectors.astype(np.float64)

    def vector(self, coefficients: NDArray[np.float64]) -> Tensor:
        """Return a vector of the space in float64."""
        chosen = torch.from_numpy(np.ascontiguousarray(coefficients)).to(self.basis.dtype)
        return (chosen @ self.basis[: len(coefficients)]).double()


def _kept(size: int) -> torch.dtype:
    return torch.float64 if size <= LARGE else torch.float32


def require_basis(size: int, vectors: int, effort: Effort, option: str) -> None:
    """Refuse a Krylov space that does not fit; `option` says how many vectors it has.

    Adding a vector copies the basis, so for a moment it is there twice.
    """
    vectors = min(vectors, size, effort.budget.products or vectors)
    require_memory(
        2 * vectors * size * _kept(size).itemsize,
        f"a Krylov space of {vectors} vectors of {size:.3g} numbers",
        f"give a smaller {option}, or measure fewer parameters with params=",
    )


def growth(value: float, alpha: Sequence[float], beta: Sequence[float]) -> float:
    """Return log Σ_j p_j(λ)².

    >>> round(math.exp(growth(3.0, [1.0], [0.5])))  # 1 + ((3 − 1)/0.5)²
    17
    """
    before, now, total, scale = 0.0, 1.0, 1.0, 0.0
    for j, (a, b) in enumerate(zip(alpha, beta, strict=True)):
        if b == 0:
            return math.inf
        before, now = now, ((value - a) * now - (beta[j - 1] * before if j else 0.0)) / b
        total += now * now
        if total > 1e100:  # divide p and its sum, before they overflow
            before, now, total, scale = before * 1e-50, now * 1e-50, total * 1e-100, scale + 1
    return math.log(total) + scale * 100 * math.log(10)


@dataclass(frozen=True)
class Top:
    """The largest Ritz value, a lower bound of the largest eigenvalue, and its vector.

    `error` is how far λ_max can lie above it, with probability 1 − `DOUBT`; `scale` is the largest
    Ritz value in magnitude, which the tolerance is relative to.
    """

    value: float
    error: float
    vector: Tensor
    scale: float
    complete: bool


def largest(
    matrix: Matrix,
    effort: Effort,
    tolerance: float,
    limit: int,
    purpose: str = "lanczos",
    sign: int = 1,
    without: Tensor | None = None,
    unit: float = 1.0,
) -> Top:
    """Return the largest eigenvalue of `sign` times `unit` times a matrix.

    With orthonormal vectors `without`, whose span and complement the matrix must map to themselves,
    the start vector is in the complement, and so is everything that follows.

    It stops when the error is at most `tolerance` times the largest eigenvalue in magnitude, after
    `limit` products, or when the budget is spent.
    """
    require_basis(matrix.size, min(limit, FEWEST), effort, "max_products")
    start = effort.normal(purpose, 0, matrix.size)
    for _ in range(0 if without is None else 2):
        start = start - without @ (without.T @ start)  # type: ignore[operator,union-attr]
    space = Lanczos(matrix, start)
    wanted = 2 * math.log(space.length / (math.sqrt(2) * float(erfinv(DOUBT))))
    while True:
        space.grow()
        effort.spend()
        values, vectors = space.ritz()
        values, end = sign * values, -1 if sign > 0 else 0
        top, scale = float(values[end]), float(np.abs(values).max())
        alpha = [sign * a for a in space.alpha]
        done = space.exhausted or growth(top + tolerance * scale, alpha, space.beta) >= wanted
        if done or len(alpha) >= limit or not effort.left():
            break
    error = ROUNDING * scale
    if not space.exhausted:
        error += _reach(top, scale, alpha, space.beta, wanted)
    return Top(unit * top, unit * error, space.vector(vectors[:, end]), unit * scale, done)


def _reach(top: float, scale: float, alpha: list[float], beta: list[float], wanted: float) -> float:
    """Return λ* − θ."""

    def short(step: float) -> float:
        return growth(top + step, alpha, beta) - wanted

    high = scale or 1.0
    while short(high) < 0:  # the sum grows at least like λ²
        high *= 2
    if short(0.0) >= 0:
        return 0.0
    return float(brentq(short, 0.0, high, xtol=1e-3 * ROUNDING * scale or 1e-300, rtol=1e-6))
