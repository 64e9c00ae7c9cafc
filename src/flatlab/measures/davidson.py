"""The largest eigenpair from one of a nearby matrix: Davidson's method.

What is nearby: the same loss on fewer examples, or the same data some training steps ago. Its Ritz
pairs (μ_i, u_i) stand in for the matrix A where the residual r = Av − θv is to be corrected:

    t = Σ_i u_i u_iᵀ r / (θ − μ_i) + (r − Σ_i u_i u_iᵀ r) / θ  ≈  (θ − A)⁻¹ r,

so that rᵀt ≈ λ_max − θ says how much is missing, to second order. Where rᵀt is not small the two
matrices are too far apart for that, and r itself joins the space, which is then Lanczos' method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from torch import Tensor

from ..problem import Matrix
from .krylov import LARGE, Krylov, Ritz

# Beyond this share of θ a correction is no small one, and its size no estimate.
TRUSTED = 0.05
# An error is so many times the estimated correction.
CAUTION = 4
# So many pairs are handed on; more would only cost memory.
KEPT = 16


@dataclass(frozen=True)
class Known:
    """Ritz pairs of a nearby matrix.

    Attributes:
        values: Ritz values, ascending.
        vectors: Ritz vectors, (size, k), orthonormal.
    """

    values: NDArray[np.float64]
    vectors: Tensor


def known_of(space: Krylov) -> Known:
    """Return the uppermost pairs of a Krylov space."""
    ritz = space.ritz()
    return Known(ritz.values[-KEPT:], space.vectors(ritz.coefficients[:, -KEPT:]))


class Davidson:
    """A growing space that starts with the uppermost vector of a nearby matrix.

    Attributes:
        exhausted: Whether the largest Ritz pair is exact up to rounding.
        missing: Error of the largest Ritz value by the nearby matrix; infinite where it is far.
    """

    def __init__(self, matrix: Matrix, known: Known):
        """Begin.

        Args:
            matrix: The matrix.
            known: Pairs of a nearby one; the last is the start.
        """
        self.matrix, self.near = matrix, known
        self.dtype = torch.float64 if matrix.size <= LARGE else torch.float32
        self.basis = torch.empty((matrix.size, 0), dtype=self.dtype)
        self.products = torch.empty((matrix.size, 0), dtype=self.dtype)
        self._next = known.vectors[:, -1:].to(self.dtype)
        self._is_near, self.exhausted = True, False
        self.missing = math.inf

    @property
    def steps(self) -> int:
        """Number of vectors multiplied so far."""
        return self.basis.shape[1]

    def grow(self) -> Ritz:
        """Multiply the newest vector and choose the next; return the Ritz pairs of the space."""
        v = self._next
        for _ in range(2):
            v = v - self.basis @ (self.basis.T @ v)
            v = v / v.norm()
        self.basis = torch.cat([self.basis, v], 1)
        self.products = torch.cat([self.products, (self.matrix @ v).to(self.dtype)], 1)
        T = (self.basis.T @ self.products).double().numpy()
        values, S = eigh((T + T.T) / 2)
        coefficients = torch.from_numpy(S).to(self.dtype)
        residuals = self.products @ coefficients - self.basis @ (
            coefficients * torch.from_numpy(values).to(self.dtype)
        )
        r, theta = residuals[:, -1:], float(values[-1])
        correction = self._corrected(r, theta)
        missing = float((r * correction).sum())
        self._is_near &= 0 <= missing <= TRUSTED * theta
        self.missing = CAUTION * missing if self._is_near else math.inf
        self._next = correction if self._is_near else r
        floor = 50 * float(torch.finfo(self.dtype).eps) * np.abs(values).max()
        self.exhausted = self.steps >= self.matrix.size or float(r.norm()) <= floor
        norms = residuals.norm(dim=0).double().numpy()
        self._ritz = Ritz(values, np.maximum(norms, floor), S)
        return self._ritz

    @property
    def known(self) -> Known:
        """What is known now: pairs of this space, or of the nearby matrix with the new uppermost.

        Whichever are more.
        """
        kept = KEPT if self.steps >= len(self.near.values) else 1
        coefficients = torch.from_numpy(self._ritz.coefficients[:, -kept:].copy())
        values, vectors = self._ritz.values[-kept:], self.basis.double() @ coefficients
        if kept == 1:
            values = np.append(self.near.values[:-1], values)
            vectors = torch.cat([self.near.vectors[:, :-1], vectors], 1)
        return Known(values, vectors)

    def _corrected(self, r: Tensor, theta: float) -> Tensor:
        values, others = self.near.values, self.near.vectors[:, :-1].to(self.dtype)
        if theta <= 0:
            return r
        overlap = others.T @ r
        gaps = theta - values[:-1]
        if len(values) > 1:
            gaps = np.maximum(gaps, (values[-1] - values[-2]) / 2)
        weights = torch.from_numpy(1 / gaps - 1 / theta).to(self.dtype)
        return r / theta + others @ (weights[:, None] * overlap)
