"""The second moment of linearised SGD near a minimum, and when it shrinks.

Near a point where every example's gradient vanishes, a step of SGD is θ' = (I − ηH_B)θ with
H_B = (1/B) Σ_{i∈B} H_i. The second moment C = E θθᵀ of its iterates then obeys C' = T(C) with

    T(C) = E (I − ηH_B) C (I − ηH_B) = (I − ηH) C (I − ηH) + η²κ ((1/n) Σ H_i C H_i − H C H),

where κ = (n − B)/(B(n − 1)) for batches without replacement and κ = 1/B with replacement. SGD is
stable in the mean square if and only if the spectral radius ρ of T is at most 1.

H_i = Σ_c s_ic r_ic r_icᵀ, so all that matters happens in the span of the rows r_ic. Directions v
with H_i v = 0 for all i never move: they are left out. In an orthonormal basis of the span, T is a
matrix of size (n·c)² at most, whatever the number of parameters, and is only multiplied with.

T is symmetric for the product ⟨C, D⟩ = Tr CD, and maps positive semi-definite matrices to such
matrices. So ρ is its largest eigenvalue, with a semi-definite eigenmatrix, and has two proven
bounds: ρ ≥ ⟨C, T(C)⟩/⟨C, C⟩ for every C, and ρ ≤ μ if T(C) ⪯ μC for one positive definite C
(Collatz and Wielandt). The Krylov space of the identity gives both: its largest Ritz value, and
C = (μ − T)⁻¹ I, whose residual must only be smaller than the identity.

The critical learning rate η* has ρ = 1. With L(C) = HC + CH and
N(C) = E H_B C H_B = HCH + κ((1/n) Σ H_i C H_i − HCH) it is T = I − ηL + η²N, so ρ ≤ 1 if and only
if η ≤ η* = 1/ρ(L⁻¹N), found in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky

from ..errors import UserError, whole_number
from ..problem import Matrix
from .effort import Effort
from .lanczos import ROUNDING, Lanczos, require_basis

Array = NDArray[np.float64]

# Directions of less curvature than this part of the largest count as flat, and are left out.
FLAT = 1e-10
# Matrices that are to be symmetric may differ from their transpose by this part of their size.
SYMMETRIC = 1e-8
# A bound is proven if the smallest eigenvalue behind it is this many roundings from zero.
SAFETY = 100


def require_rate(lr: float) -> float:
    """Refuse a learning rate that is not positive."""
    if not (math.isfinite(lr) and lr > 0):
        raise UserError(f"lr must be > 0, got {lr!r}")
    return float(lr)


def batch_noise(batch_size: int, n: int, replacement: bool = False) -> float:
    """Return κ: the noise of a batch's mean as a part of the variance of one example.

    >>> batch_noise(1, 10), batch_noise(10, 10), batch_noise(4, 10, replacement=True)
    (1.0, 0.0, 0.25)
    >>> batch_noise(11, 10)
    Traceback (most recent call last):
    flatlab.errors.UserError: batch_size must be <= n = 10, got 11: a batch has no more examples \
than the data
    """
    n = whole_number("n", n, least=1)
    batch_size = whole_number("batch_size", batch_size, least=1)
    if batch_size > n:
        raise UserError(
            f"batch_size must be <= n = {n}, got {batch_size}: a batch has no more examples than "
            "the data"
        )
    if replacement:
        return 1 / batch_size
    return (n - batch_size) / (batch_size * (n - 1)) if n > 1 else 0.0


def symmetric(name: str, matrix: ArrayLike) -> Array:
    """Return a matrix as an array, or refuse one that is not finite, square and symmetric.

    >>> symmetric("H", [[1.0, 2.0], [0.0, 1.0]])
    Traceback (most recent call last):
    flatlab.errors.UserError: H must be symmetric, got entries that differ from those of its \
transpose by up to 2: give (H + H.T)/2 if that is what you mean
    """
    found = np.asarray(matrix, np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise UserError(f"{name} must be a square matrix, got shape {found.shape}")
    if not np.isfinite(found).all():
        bad = int(np.sum(~np.isfinite(found)))
        raise UserError(f"{name} must be finite, got {bad} entries that are NaN or infinite")
    apart = float(np.abs(found - found.T).max(initial=0.0))
    if apart > SYMMETRIC * float(np.abs(found).max(initial=0.0)):
        raise UserError(
            f"{name} must be symmetric, got entries that differ from those of its transpose by up "
            f"to {apart:.3g}: give ({name} + {name}.T)/2 if that is what you mean"
        )
    return np.asarray((found + found.T) / 2)


@dataclass(frozen=True)
class Bracket:
    """A number between two proven bounds.

    Attributes:
        low, high: The bounds.
        matrix: The unit matrix that gives the lower one; its positive part nearly attains it.
        products: How many products with the operator were made.
        complete: Whether the bounds are as close as was asked for.
    """

    low: float
    high: float
    matrix: Array
    products: int
    complete: bool

    @property
    def middle(self) -> float:
        """The mean of the two bounds."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, eq=False)
class LinearisedSGD:
    """SGD on (1/n) Σ ½ θᵀH_iθ, in coordinates of the span of all rows where H is diagonal.

    Attributes:
        rows: The rows r_ic, (n, c, rank).
        signs: The signs s_ic, (n, c).
        curvatures: The eigenvalues of H on the span, (rank,).
        basis: The coordinates as unit vectors of the parameters, (rank, parameters).
    """

    rows: Array
    signs: Array
    curvatures: Array
    basis: Array

    @classmethod
    def of_rows(cls, rows: ArrayLike, signs: ArrayLike | None = None) -> LinearisedSGD:
        """Make it from rows r_ic, (n, c, parameters) or (n, parameters), and signs s_ic.

        >>> sgd = LinearisedSGD.of_rows([[1.0, 0.0], [0.0, 2.0]])
        >>> sgd.curvatures
        array([0.5, 2. ])
        """
        given = np.asarray(rows, np.float64)
        R = given[:, None] if given.ndim == 2 else given
        s = np.ones(R.shape[:2]) if signs is None else np.asarray(signs, np.float64)
        if not np.isfinite(R).all():
            raise UserError("the rows must be finite, got NaN or infinite entries")
        basis = _span(R.reshape(-1, R.shape[2]))
        inside = R @ basis.T
        if not len(basis):  # every row is 0
            return cls(inside, s, np.zeros(0), basis)
        curvatures, vectors = np.linalg.eigh(_weighted(inside, s, len(R)))
        return cls(inside @ vectors, s, curvatures, vectors.T @ basis)

    @classmethod
    def of_hessians(cls, hessians: Sequence[ArrayLike]) -> LinearisedSGD:
        """Make it from the examples' Hessians H_i."""
        rows, signs = [], []
        for i, each in enumerate(hessians):
            values, vectors = np.linalg.eigh(symmetric(f"H_{i}", each))
            rows.append(vectors.T * np.sqrt(np.abs(values))[:, None])
            signs.append(np.sign(values))
        return cls.of_rows(np.array(rows), np.array(signs))

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.rows)

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return len(self.curvatures)

    def each(self, C: Array, rows: Array | None = None) -> Array:
        """Return (1/n) Σ H_i C H_i."""
        R = self.rows if rows is None else rows
        if R.shape[1] == 1:
            flat = R[:, 0]
            weights = self.signs[:, 0] ** 2 * np.einsum("ir,ir->i", flat @ C, flat)
            return np.asarray((flat.T * weights) @ flat / len(R))
        middle = np.matmul(R @ C, R.transpose(0, 2, 1))
        middle *= self.signs[:, :, None] * self.signs[:, None, :]
        wide = np.matmul(middle, R).reshape(-1, R.shape[2])
        return np.asarray(R.reshape(-1, R.shape[2]).T @ wide / len(R))

    def second_order(self, C: Array, kappa: float) -> Array:
        """Return N(C) = E H_B C H_B."""
        mean = self.curvatures[:, None] * C * self.curvatures
        return np.asarray((1 - kappa) * mean + kappa * self.each(C)) if kappa else mean

    def step(self, C: Array, lr: float, kappa: float) -> Array:
        """Return T(C), the second moment after a step."""
        first = self.curvatures[:, None] + self.curvatures
        return np.asarray(C - lr * first * C + lr**2 * self.second_order(C, kappa))

    def radius(
        self,
        lr: float,
        batch_size: int,
        replacement: bool = False,
        *,
        tolerance: float = 1e-6,
        limit: int = 500,
        effort: Effort | None = None,
    ) -> Bracket:
        """Return the spectral radius of T on the span, relative to `tolerance`.

        >>> sgd = LinearisedSGD.of_rows([[1.0], [1.0]])
        >>> bracket = sgd.radius(lr=0.5, batch_size=1)
        >>> round(bracket.low, 9), round(bracket.high, 5)
        (0.25, 0.25)
        """
        kappa = batch_noise(batch_size, self.n, replacement)
        lr = require_rate(lr)
        ones = np.ones((self.rank, self.rank))
        return _largest(lambda C: self.step(C, lr, kappa), ones, tolerance, limit, effort)

    def critical_lr(
        self,
        batch_size: int,
        replacement: bool = False,
        *,
        tolerance: float = 1e-6,
        limit: int = 500,
        effort: Effort | None = None,
    ) -> Bracket:
        """Return the largest learning rate at which the radius is at most 1.

        It is zero if some direction of the span has no positive curvature.

        >>> gd = LinearisedSGD.of_rows([[2.0, 0.0], [0.0, 1.0]]).critical_lr(batch_size=2)
        >>> round(gd.middle, 4)  # 2/λ_max, λ_max = 4/2
        1.0
        """
        kappa = batch_noise(batch_size, self.n, replacement)
        if not self.rank:
            return Bracket(math.inf, math.inf, np.zeros((0, 0)), 0, True)
        if self.curvatures[0] <= 0:
            return Bracket(0.0, 0.0, np.zeros((self.rank, self.rank)), 0, True)
        first = self.curvatures[:, None] + self.curvatures
        found = _largest(lambda C: self.second_order(C, kappa), first, tolerance, limit, effort)
        return Bracket(1 / found.high, 1 / found.low, found.matrix, found.products, found.complete)


def _span(R: Array) -> Array:
    """Return an orthonormal basis of the span of rows, (rank, parameters).

    It comes from the smaller of R Rᵀ and Rᵀ R.
    """
    if len(R) < R.shape[1]:
        squared, left = np.linalg.eigh(R @ R.T)
        kept = squared > FLAT * squared[-1]
        basis = (left[:, kept] / np.sqrt(squared[kept])).T @ R
        return np.asarray(np.linalg.qr(basis.T)[0].T)  # R Rᵀ loses half the digits
    squared, right = np.linalg.eigh(R.T @ R)
    return np.asarray(right[:, squared > FLAT * squared[-1]].T)


def _weighted(R: Array, signs: Array, n: int) -> Array:
    """Return (1/n) Σ s_ic r_ic r_icᵀ."""
    flat = R.reshape(-1, R.shape[2])
    return np.asarray((flat.T * signs.ravel()) @ flat / n)


def _largest(
    product: Callable[[Array], Array],
    weights: Array,
    tolerance: float,
    limit: int,
    effort: Effort | None,
) -> Bracket:
    """Return the largest ν with P(C) = ν W∘C for a C ≠ 0, between two bounds.

    P must be symmetric and map positive semi-definite matrices to such, and so must C ↦ (1/W)∘C:
    W is all ones, or W_jk = λ_j + λ_k with λ > 0. Then ν < μ is proven by a positive definite C
    with μ W∘C − P(C) positive definite.
    """
    r, effort = len(weights), effort or Effort(0)
    if not r:
        return Bracket(0.0, 0.0, weights, 0, True)
    root = np.sqrt(weights)

    def balanced(flat: torch.Tensor) -> torch.Tensor:
        C = flat.numpy().reshape(r, r) / root
        found = product((C + C.T) / 2) / root
        return torch.from_numpy((found + found.T).ravel() / 2)

    require_basis(r * r, min(limit, 50), effort, "max_products")
    identity = torch.from_numpy((np.eye(r) / root).ravel())
    space = Lanczos(Matrix(r * r, balanced), identity)
    done, next_look, complete = 0, 1, False
    plain = product(np.eye(r) / weights)  # W∘C = I for this C
    high = float(np.linalg.eigvalsh((plain + plain.T) / 2)[-1])
    while True:
        space.grow()
        effort.spend()
        done += 1
        last = space.exhausted or done >= limit or not effort.left()
        if done < next_look and not last:
            continue
        next_look = max(done + 1, int(1.15 * done))
        values, vectors = space.ritz()
        low = float(values[-1])
        if low <= 0:  # rounding of an operator that is zero
            return Bracket(0.0, max(high, 0.0), np.zeros((r, r)), done, True)
        for factor in (1.0,) if not last else (1.0, 10.0, 100.0, 1e3, 1e4, 1e5):
            mu = (1 + factor * tolerance) * low
            if mu >= high:
                break
            if _proven(space, values, vectors, mu, root):
                high, complete = mu, factor == 1.0
                break
        complete = complete or high <= (1 + tolerance) * low
        if last or complete:
            break
    top = space.vector(vectors[:, -1]).numpy().reshape(r, r) / root
    top = (top + top.T) / 2
    size = float(np.linalg.norm(top))
    low, high = (1 - ROUNDING) * low, (1 + ROUNDING) * max(low, high)
    return Bracket(low, high, top / size if size else top, done, complete)


def _proven(space: Lanczos, values: Array, vectors: Array, mu: float, root: Array) -> bool:
    """Return whether the Krylov space shows that no eigenvalue is as large as μ.

    C solves μ W∘C − P(C) = I in the Krylov space up to a residual, which is a multiple of the next
    Krylov vector: I minus the residual, and C, must be positive definite.
    """
    r = len(root)
    y = vectors @ (vectors[0] / (mu - values)) * space.length
    C = space.vector(y).numpy().reshape(r, r) / root
    C = (C + C.T) / 2
    left = np.eye(r)
    if len(space.basis) > len(y):
        rest = space.basis[len(y)].double().numpy().reshape(r, r) * root
        left = left + space.beta[-1] * y[-1] * (rest + rest.T) / 2
    return _positive(left, 1.0 + mu * float(np.abs(C * root**2).max())) and _positive(C)


def _positive(A: Array, scale: float | None = None) -> bool:
    """Return whether a matrix is positive definite, by more than rounding of this scale."""
    scale = float(np.abs(A).max()) if scale is None else scale
    margin = SAFETY * float(np.finfo(np.float64).eps) * scale
    try:
        cholesky(A - margin * np.eye(len(A)), check_finite=True)
    except (np.linalg.LinAlgError, ValueError):
        return False
    return True
