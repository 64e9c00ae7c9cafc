"""Rayleigh–Ritz on a growing block Krylov space: the Lanczos method, fully re-orthogonalised.

scipy's `eigsh` runs to its end or raises: it can neither stop at a budget with the best pair so far
nor say how good that pair is. This one can be stopped after any product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from torch import Tensor

from ..problem import Matrix
from .effort import Effort

# Larger vectors are kept in float32, to halve the memory of the basis.
LARGE = 5_000_000


@dataclass(frozen=True)
class Ritz:
    """Approximate eigenpairs, ascending.

    Attributes:
        values: Ritz values θ.
        residuals: ‖A v − θ v‖; some eigenvalue lies within this distance of θ.
        coefficients: Ritz vectors in the basis, one a column.
        floor: Rounding error, the smallest error reported.
    """

    values: NDArray[np.float64]
    residuals: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    floor: float = 0.0

    def error(self, index: int) -> float:
        """Return an error of one pair: the residual, or 4 residual²/gap if that is less.

        The residual bounds the distance to some eigenvalue. The square holds with a factor 1 for
        the gap to the other eigenvalues; here it is to the other Ritz values, less their residuals,
        hence the 4. A residual does not tell which eigenvalue it is: a start vector nearly
        orthogonal to the wanted eigenvector can miss it for a while (about once in a hundred small
        problems).
        """
        index %= len(self.values)
        residual = float(self.residuals[index])
        others = np.delete(np.arange(len(self.values)), index)
        if not len(others):
            return residual
        gaps = np.abs(self.values[others] - self.values[index]) - self.residuals[others]
        gap = float(gaps.min())
        return max(min(residual, 4 * residual**2 / gap), self.floor) if gap > 0 else residual

    def doubt(self, size: int) -> float:
        """Return how far away an end of the spectrum may be if the space was cut short.

        With k steps from a random start in R^n, (λ_max − θ)/(λ_max − λ_min) is below ε with
        probability at least 1 − 1.648 √n exp(−√ε (2k − 1)), whatever the spectrum (Kuczyński and
        Woźniakowski 1992); here for 95 %, with λ_max − λ_min taken from the Ritz values, and
        doubled while these are few. One product says nothing.
        """
        if len(self.values) == 1:
            return float("inf")
        ends = self.values[[0, -1]] + np.array([-1, 1]) * self.residuals[[0, -1]]
        share = (np.log(1.648 * np.sqrt(size) / 0.05) / (2 * len(self.values) - 1)) ** 2
        few = 2.0 if len(self.values) < 5 else 1.0
        return float(few * (ends[1] - ends[0]) * min(1.0, share))


def rounding(matrix: Matrix) -> float:
    """Return the relative error that rounding leaves in an eigenvalue.

    Products are sums over examples and layers in the model's own precision.
    """
    return 10 * matrix.precision + 50 * float(np.finfo(np.float64).eps)


class Krylov:
    """span{Q, AQ, A²Q, …} for a block Q of start vectors; each `grow` adds one block."""

    def __init__(self, matrix: Matrix, start: Tensor, fresh: Callable[[int], Tensor]):
        """Begin.

        Args:
            matrix: The matrix.
            start: Start vectors, (size, block).
            fresh: i ↦ a random vector, used if the space is exhausted in some direction.
        """
        self.matrix, self._fresh, self._drawn = matrix, fresh, 0
        self.dtype = torch.float64 if matrix.size <= LARGE else torch.float32
        self.basis = torch.empty((0, matrix.size), dtype=self.dtype)
        self.T = np.zeros((0, 0))
        self.coupling = np.zeros((0, 0))
        self._next, _ = self._orthonormal(start.to(self.dtype))

    @property
    def steps(self) -> int:
        """Number of vectors multiplied so far."""
        return len(self.T)

    @property
    def exhausted(self) -> bool:
        """Whether the space is the whole space."""
        return self.steps >= self.matrix.size or self._next.shape[1] == 0

    def grow(self) -> None:
        """Multiply the newest block and orthogonalise the product, twice."""
        block = self._next
        product = (self.matrix @ block).to(self.dtype)
        self.basis = torch.cat([self.basis, block.T])
        columns = torch.zeros((len(self.basis), block.shape[1]), dtype=self.dtype)
        for _ in range(2):
            overlap = self.basis @ product
            product = product - self.basis.T @ overlap
            columns += overlap
        k = len(self.T)
        T = np.zeros((len(self.basis), len(self.basis)))
        T[:k, :k] = self.T
        T[:, k:] = columns.double().numpy()
        T[k:, :k] = T[:k, k:].T
        T[k:, k:] = (T[k:, k:] + T[k:, k:].T) / 2
        self.T = T
        self._next, self.coupling = self._orthonormal(product)

    def ritz(self) -> Ritz:
        """Return the Ritz pairs."""
        values, vectors = eigh(self.T)
        last = vectors[len(self.T) - self.coupling.shape[1] :]
        floor = rounding(self.matrix) * float(np.abs(values).max())
        residuals = np.maximum(np.linalg.norm(self.coupling @ last, axis=0), floor)
        return Ritz(values, residuals, vectors, floor)

    def vectors(self, coefficients: NDArray[np.float64]) -> Tensor:
        """Return Ritz vectors, (size, k)."""
        return self.basis.T.double() @ torch.from_numpy(np.ascontiguousarray(coefficients))

    def _orthonormal(self, block: Tensor) -> tuple[Tensor, NDArray[np.float64]]:
        """Return an orthonormal block Q and R with block = Q R, Q orthogonal to the basis.

        A column that depends linearly on those before it is replaced by a random one, with a zero
        row in R. Columns that do not fit into the space are dropped.
        """
        room = self.matrix.size - len(self.basis)
        width = min(block.shape[1], room)
        scale = float(np.abs(self.T).max()) if len(self.T) else float(block.norm())
        made = torch.empty((block.shape[0], 0), dtype=self.dtype)
        R = np.zeros((width, block.shape[1]))
        eps = float(torch.finfo(self.dtype).eps)
        for column in range(block.shape[1]):
            v = block[:, column]
            for _ in range(2):
                overlap = made.T @ v
                v = v - made @ overlap
                R[: made.shape[1], column] += overlap.double().numpy()
            norm = float(v.norm())
            if norm > 100 * eps * scale and made.shape[1] < width:
                R[made.shape[1], column] = norm
                made = torch.cat([made, (v / norm)[:, None]], 1)
        while made.shape[1] < width:
            made = torch.cat([made, self._random(made)[:, None]], 1)
        return made, R

    def _random(self, made: Tensor) -> Tensor:
        v = self._fresh(self._drawn).to(self.dtype)
        self._drawn += 1
        for _ in range(3):
            v = v - self.basis.T @ (self.basis @ v) - made @ (made.T @ v)
            v = v / v.norm()
        return v


def krylov(
    matrix: Matrix, effort: Effort, purpose: str, block: int = 1, start: Tensor | None = None
) -> Krylov:
    """Return a Krylov space from random start vectors, or from given ones."""
    block = min(block, matrix.size)
    if start is None:
        start = effort.normal(purpose, 0, matrix.size, block)
    return Krylov(matrix, start, lambda i: effort.normal(f"{purpose}:fresh", i, matrix.size))
