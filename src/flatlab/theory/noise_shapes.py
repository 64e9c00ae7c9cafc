"""Noise shaped like the curvature against isotropic noise of equal variance, near a minimum.

On L = ½ θᵀHθ the loss is ½ Σ λ_i m_i with m_i = E θ_i² along the eigenvectors. With noise of
covariance 2LG/B and G = H, or 2Lσ²I/B with σ² = Tr G/m, the m_i follow

    m_i' = (1 − ηλ_i)² m_i + (η²/B) c_i Σ_j λ_j m_j,   c_i = λ_i or σ².

The lecture omits the 1/B in the covariances; the bounds on its next slide need it. A diagonal
matrix plus one of rank one, so it is stable if and only if ηλ_1 < 2 and
(η²/B) Σ_i c_iλ_i/(1 − (1 − ηλ_i)²) ≤ 1, that is (η/B) Σ_{λ_i > 0} c_i/(2 − ηλ_i) ≤ 1. Directions
without curvature drift, and act on no other direction.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from ..data.dataset import Array
from ..errors import UserError
from ..measures.second_moment import require_rate

Shape = Literal["geometry", "isotropic"]


def noise_strengths(eigenvalues: ArrayLike, shape: Shape) -> Array:
    """Return c_i: the part of the noise in each direction, of the same sum for both shapes."""
    if shape not in get_args(Shape):
        raise UserError(f"shape must be 'geometry' or 'isotropic', got {shape!r}")
    values = np.asarray(eigenvalues, float)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise UserError(
            "eigenvalues must be finite, >= 0 and not all 0, as those of a minimum are, got "
            f"{np.array2string(values, threshold=6, precision=3)}"
        )
    return values if shape == "geometry" else np.full(len(values), values.mean())


def moment_matrix(
    eigenvalues: ArrayLike, lr: float, batch_size: float, shape: Shape = "geometry"
) -> Array:
    """Return the matrix M with m' = M m."""
    c, values = noise_strengths(eigenvalues, shape), np.asarray(eigenvalues, float)
    shrink = np.diag((1 - require_rate(lr) * values) ** 2)
    return np.asarray(shrink + lr**2 / batch_size * np.outer(c, values))


def critical_rate(eigenvalues: ArrayLike, batch_size: float, shape: Shape = "geometry") -> float:
    """Return the largest η at which the moments of curved directions do not grow.

    For k equal eigenvalues and noise shaped like the curvature it is 2/(λ(1 + k/B)).

    >>> round(critical_rate([3.0, 3.0], batch_size=2), 12)
    0.333333333333
    """
    c, values = noise_strengths(eigenvalues, shape), np.asarray(eigenvalues, float)
    if not batch_size > 0:
        raise UserError(f"batch_size must be > 0, got {batch_size!r}")
    c, values = c[values > 0], values[values > 0]

    def excess(x: float) -> float:
        """Return how far the condition is from equality at η = 2x/λ_1, times the smallest 2 − ηλ.

        The factor keeps it finite at x = 1.
        """
        eta = 2 * x / values.max()
        room = 2 - eta * values
        scaled = c * np.where(room > 0, room.min() / np.where(room > 0, room, 1.0), 1.0)
        return float(eta / batch_size * scaled.sum() - room.min())

    return float(2 / values.max() * brentq(excess, 0.0, 1.0, xtol=1e-15, rtol=1e-14))
