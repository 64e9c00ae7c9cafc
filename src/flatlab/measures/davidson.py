"""The largest eigenpair, with the eigenpairs of a nearby matrix as a guide: Davidson's method.

The nearby matrix is that of the same loss on fewer examples. Its Ritz pairs (μ_i, u_i) approximate
the matrix A in the correction of the residual r = Av − θv,

    t = Σ_i u_i u_iᵀ r / (θ − μ_i) + (r − Σ_i u_i u_iᵀ r) / θ  ≈  (θ − A)⁻¹ r,

so rᵀt ≈ λ_max − θ estimates the error of θ to second order. The estimate is trusted only if it is
small and the curvature of A along the last t is close to that of the nearby matrix. If it is not, t
is in the space from then on and the next steps take it into account.
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
from .krylov import LARGE, Krylov, Ritz, rounding

# Largest correction, as a share of θ, whose size is trusted as an estimate.
TRUSTED = 0.05
# The same for the first correction, which is not used as an estimate.
BLURRED = 0.2
# Largest excess of A's curvature along a correction over the nearby matrix's, as a share of θ.
SURPRISE = 0.25
# The error is this many times the estimated correction.
CAUTION = 8
# Number of pairs passed on; more would only cost memory.
KEPT = 16
# The second eigenvector joins the start if its eigenvalue is at least this share of the first: on
# other data it may be the larger one.
RIVAL = 0.9


@dataclass(frozen=True)
class Known:
    """Ritz pairs of a matrix.

    Attributes:
        values: Ritz values, ascending.
        vectors: Ritz vectors, (size, k), orthonormal.
    """

    values: NDArray[np.float64]
    vectors: Tensor

    @property
    def leaders(self) -> Tensor:
        """The top vector, and the second if its value is close."""
        close = len(self.values) > 1 and self.values[-2] >= RIVAL * self.values[-1] > 0
        return self.vectors[:, -2:] if close else self.vectors[:, -1:]


def known_of(space: Krylov) -> Known:
    """Return the top pairs of a Krylov space."""
    ritz = space.ritz()
    return Known(ritz.values[-KEPT:], space.vectors(ritz.coefficients[:, -KEPT:]))


class Davidson:
    """A growing space that starts with a given vector and continues with corrections.

    Attributes:
        exhausted: Whether the largest Ritz pair is exact up to rounding.
        is_near: Whether the nearby matrix was close enough to guide the last step.
        missing: Error of the largest Ritz value, estimated with the nearby matrix; infinite if that
            matrix is not close, and until the first correction has been multiplied.
    """

    def __init__(self, matrix: Matrix, start: Tensor, near: Known):
        """Begin.

        Args:
            matrix: The matrix.
            start: Vector to start with, (size, 1).
            near: Pairs of a nearby matrix.
        """
        self.matrix, self.near = matrix, near
        self.dtype = torch.float64 if matrix.size <= LARGE else torch.float32
        self.basis = torch.empty((matrix.size, 0), dtype=self.dtype)
        self.products = torch.empty((matrix.size, 0), dtype=self.dtype)
        self._next = start.to(self.dtype)
        self.is_near, self.exhausted = True, False
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
        product = (self.matrix @ v).to(self.dtype)
        self.basis = torch.cat([self.basis, v], 1)
        self.products = torch.cat([self.products, product], 1)
        T = (self.basis.T @ self.products).double().numpy()
        values, S = eigh((T + T.T) / 2)
        coefficients = torch.from_numpy(S).to(self.dtype)
        residuals = self.products @ coefficients - self.basis @ (
            coefficients * torch.from_numpy(values).to(self.dtype)
        )
        floor = rounding(self.matrix) * float(np.abs(values).max())
        norms = np.maximum(residuals.norm(dim=0).double().numpy(), floor)
        self._ritz = Ritz(values, norms, S, floor)
        self._choose(residuals[:, -1:], float(values[-1]), float((v * product).sum()), v)
        self.exhausted = self.steps >= self.matrix.size or norms[-1] <= floor
        return self._ritz

    def _choose(self, r: Tensor, theta: float, bent: float, v: Tensor) -> None:
        """Choose the next vector and estimate the error."""
        correction = self._corrected(r, theta)
        missing = float((r * correction).sum())
        first = self.steps == 1
        self.is_near = 0 <= missing <= (BLURRED if first else TRUSTED) * theta
        if not first:  # v was a correction: is A's curvature along it as expected?
            overlap = (self.near.vectors.to(self.dtype).T @ v)[:, 0].double().numpy()
            thought = float(self.near.values @ overlap**2)
            self.is_near &= bent <= thought + SURPRISE * theta
        self._next = correction if missing >= 0 else r
        good = self.is_near and not first
        self.missing = max(CAUTION * missing, self._ritz.floor) if good else math.inf

    @property
    def known(self) -> Known:
        """The top pairs of this space."""
        coefficients = torch.from_numpy(self._ritz.coefficients[:, -KEPT:].copy())
        return Known(self._ritz.values[-KEPT:], self.basis.double() @ coefficients)

    def _corrected(self, r: Tensor, theta: float) -> Tensor:
        values, others = self.near.values, self.near.vectors[:, :-1].to(self.dtype)
        if theta <= 0:
            return r
        gaps = theta - values[:-1]
        if len(values) > 1:
            gaps = np.maximum(gaps, (values[-1] - values[-2]) / 2)
        weights = torch.from_numpy(1 / gaps - 1 / theta).to(self.dtype)
        return r / theta + others @ (weights[:, None] * (others.T @ r))
