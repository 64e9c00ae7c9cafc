"""Curvature matrices known entirely, in float64: every measure of them is then exact.

The Hessian of a small problem is computed row by row. The other matrices are A = Fᵀ S F with a row
of F for each example and direction, scaled gradients √|λ_ic|/√n J_iᵀ v_ic, and S = diag(sign λ_ic);
with fewer rows than parameters all nonzero eigenvalues are those of R S Rᵀ, where Fᵀ = Q R.
The matrix and its eigenvalues are computed once for all measures of a call.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor

from ..problem import Problem
from ..problem.examples import ROOM, every_row, mixing
from ..problem.shaking import SMALL
from .contract import Vector
from .effort import Effort

# The whole matrix of at most `SMALL` parameters is always computed. One of more is computed if it
# takes at most this many multiplications, about as long as an estimate.
WORK = 2e9


def _eigen(matrix: Tensor) -> tuple[Vector, Tensor]:
    """Return all eigenvalues, ascending, and the eigenvectors as columns."""
    try:
        values, vectors = torch.linalg.eigh(matrix)
        return values.numpy(), vectors
    except RuntimeError:  # divide and conquer can fail; QR iterations do not
        found, columns = eigh(matrix.numpy(), driver="ev")
        return found, torch.from_numpy(columns)


class Dense:
    """A symmetric matrix by its entries."""

    how = "exact, dense"

    def __init__(self, matrix: Tensor):
        self.matrix = matrix

    @cached_property
    def eigen(self) -> tuple[Vector, Tensor]:
        """All eigenvalues, ascending, and the eigenvectors as columns."""
        return _eigen(self.matrix)

    @property
    def scale(self) -> float:
        """The largest eigenvalue in magnitude."""
        return float(np.abs(self.eigen[0]).max())

    @property
    def diagonal(self) -> Vector:
        """The diagonal."""
        return np.asarray(self.matrix.diagonal().numpy())

    @property
    def values(self) -> Vector:
        """All eigenvalues, ascending."""
        return self.eigen[0]

    def top(self, k: int) -> tuple[Vector, Tensor]:
        """Return the k largest eigenvalues, descending, and their vectors."""
        values, vectors = self.eigen
        return values[::-1][:k].copy(), vectors.flip(1)[:, :k]

    def end(self, sign: int) -> tuple[float, Tensor]:
        """Return the largest eigenvalue (sign 1) or the smallest (−1), and its vector."""
        values, vectors = self.eigen
        index = -1 if sign > 0 else 0
        return float(values[index]), vectors[:, index]

    def block(self, part: slice) -> Dense:
        """Return a diagonal block."""
        return Dense(self.matrix[part, part])


class Factored(Dense):
    """Fᵀ diag(signs) F with fewer rows than columns."""

    how = "exact, per-example gradients"

    def __init__(self, F: Tensor, signs: Tensor):
        self.F, self.signs = F, signs

    @cached_property
    def eigen(self) -> tuple[Vector, Tensor]:
        """The eigenvalues of the range and zero, ascending, and their vectors.

        The kernel has many eigenvectors for zero; one stands for them.
        """
        Q, R = torch.linalg.qr(torch.cat([self.F.T, self._outside()], 1))
        inside = R[:, : len(self.F)]
        values, vectors = _eigen((inside * self.signs) @ inside.T)
        return values, Q @ vectors

    def _outside(self) -> Tensor:
        """Return a vector that is not in the range, (size, 1): any fixed one will do."""
        waves = torch.arange(self.F.shape[1], dtype=torch.float64)
        return torch.cos(waves * waves)[:, None] * self.F.abs().max()

    @property
    def diagonal(self) -> Vector:
        """The diagonal."""
        return np.asarray((self.signs @ self.F.square()).numpy())

    @property
    def values(self) -> Vector:
        """All eigenvalues, ascending; those outside the range are zero."""
        found = self.eigen[0]
        return np.sort(np.append(found, np.zeros(self.F.shape[1] - len(found))))

    def top(self, k: int) -> tuple[Vector, Tensor]:
        """Return the k largest eigenvalues, descending, and their vectors."""
        if k >= len(self.F):
            return Dense((self.F.T * self.signs) @ self.F).top(k)
        return super().top(k)

    def block(self, part: slice) -> Dense:
        """Return a diagonal block."""
        F = self.F[:, part]
        if F.shape[1] > len(F):
            return Factored(F, self.signs)
        return Dense((F.T * self.signs) @ F)


def whole(problem: Problem, kind: str, effort: Effort, method: str = "auto") -> Dense | None:
    """Return the whole matrix, or None if an estimate costs less or the budget is too small.

    The method "dense" asks for it at any cost, any other than "auto" never does.
    """
    if method not in ("auto", "dense"):
        return None
    if kind not in problem.known:
        made = _made(problem, kind, effort, method == "dense")
        if made is None:
            return None
        problem.known[kind] = made
    found: Dense = problem.known[kind]
    return found


def _made(problem: Problem, kind: str, effort: Effort, always: bool) -> Dense | None:
    size, n = problem.size, problem.n
    if kind != "hessian" and size > SMALL and mixing(problem) is None:
        count = n if kind == "fisher" else n * problem.outputs[0][0].numel()
        few = count < size and count * size <= ROOM and float(count) ** 2 * size <= WORK
        if few and effort.affordable(0, 1) >= count:
            effort.expect(effort.spent + count)
            F, weights = every_row(problem.precise, kind)
            F *= weights.abs().sqrt()[:, None]
            effort.spend(count)
            return Factored(F.cpu(), weights.sign().cpu())
    cheap = size <= SMALL or size**3 + 10.0 * n * size**2 <= WORK
    if not (cheap or always) or effort.affordable(0, 1) < size:
        return None
    effort.expect(effort.spent + size)
    matrix = problem.dense(kind, effort.pace())
    if matrix is None:
        return None
    effort.spend(size)
    return Dense(matrix)
