"""The noise of SGD on (1/2n) Σ e_i²: its covariance, and how it is aligned with the curvature.

J has a row ∇f(x_i) for each example, and e_i = f(x_i) − y_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..data.dataset import Array
from ..errors import UserError
from ..measures.noise import alphabet


@dataclass(frozen=True)
class GradientNoise:
    """Rows J_i = ∇f(x_i) and residuals e_i.

    >>> noise = GradientNoise.of([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
    >>> noise.gram
    array([[0.5, 0. ],
           [0. , 0.5]])
    >>> round(noise.mu, 3), round(noise.mu_uncentred, 3), noise.gamma
    (0.5, 1.0, 1.0)
    """

    J: Array
    e: Array

    @classmethod
    def of(cls, J: ArrayLike, e: ArrayLike) -> GradientNoise:
        """Check the shapes and that all numbers are finite."""
        rows, residuals = np.asarray(J, float), np.asarray(e, float)
        if rows.ndim != 2 or residuals.shape != rows.shape[:1]:
            raise UserError(
                "J must have a row and e a number for each example, got shapes "
                f"{rows.shape} and {residuals.shape}"
            )
        if not (np.isfinite(rows).all() and np.isfinite(residuals).all()):
            raise UserError("J and e must be finite, got NaN or infinite entries")
        return cls(rows, residuals)

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.e)

    @property
    def twice_loss(self) -> float:
        """2L = (1/n) Σ e_i²."""
        return float(np.mean(self.e**2))

    @property
    def slope(self) -> Array:
        """∇L = (1/n) Σ e_i ∇f_i."""
        return np.asarray(self.J.T @ self.e / self.n)

    @property
    def gram(self) -> Array:
        """G = (1/n) Σ ∇f_i ∇f_iᵀ."""
        return np.asarray(self.J.T @ self.J / self.n)

    @property
    def uncentred(self) -> Array:
        """(1/n) Σ e_i² ∇f_i ∇f_iᵀ, the covariance without its centre."""
        return np.asarray((self.J.T * self.e**2) @ self.J / self.n)

    @property
    def covariance(self) -> Array:
        """Σ = (1/n) Σ e_i² ∇f_i ∇f_iᵀ − ∇L ∇Lᵀ, the covariance of one example's gradient."""
        return self.uncentred - np.outer(self.slope, self.slope)

    @property
    def decoupled(self) -> Array:
        """2LG, which Σ is close to where e_i² and ∇f_i are unrelated and ∇L is small."""
        return self.twice_loss * self.gram

    @property
    def sizes(self) -> Array:
        """‖∇f_i‖_G² = ∇f_iᵀ G ∇f_i for each example."""
        return np.asarray(np.sum(self.J @ self.gram * self.J, 1))

    @property
    def factors(self) -> Array:
        """α, β and μ of eqs. (7) to (9), by the formula of the measure "alignment"."""
        S, G = self.covariance, self.gram
        return alphabet(np.array([(S * G).sum(), (S * S).sum(), (G * G).sum()]), self.twice_loss)

    @property
    def mu(self) -> float:
        """μ = Tr(ΣG)/(2L‖G‖_F²)."""
        return float(self.factors[2])

    @property
    def mu_uncentred(self) -> float:
        """μ without the term ∇L∇Lᵀ in Σ."""
        return float(np.mean(self.e**2 * self.sizes) / (self.twice_loss * np.mean(self.sizes)))

    @property
    def gamma(self) -> float:
        """γ = min_i ‖∇f_i‖_G² / ((1/n) Σ ‖∇f_i‖_G²)."""
        return float(self.sizes.min() / self.sizes.mean())


def least_alignment(J: ArrayLike) -> float:
    """Return the least μ over all θ of a model that is linear in θ and can fit its data.

    There e = Jδ with δ = θ − θ*, so μ is a ratio of quadratic forms in δ,

        μ = δᵀ((1/n) Σ ‖J_i‖_G² J_iJ_iᵀ − G³)δ / (‖G‖_F² δᵀGδ),

    and its least value a generalised eigenvalue on the range of G.

    >>> round(least_alignment([[1.0, 0.0], [0.0, 1.0]]), 3)
    0.5
    """
    rows = np.asarray(J, float)
    left, sizes, right = np.linalg.svd(rows / np.sqrt(len(rows)), full_matrices=False)
    kept = sizes > 1e-7 * sizes[0]
    # With ε = G^½ δ on the range the denominator is ‖G‖_F² ‖ε‖², and J δ = √n U ε.
    left, curvature = left[:, kept], sizes[kept] ** 2
    along = rows @ right[kept].T
    weights = np.sum(along**2 * curvature, 1)
    form = (left.T * weights) @ left - np.diag(curvature**2)
    return float(np.linalg.eigvalsh(form)[0] / np.sum(curvature**2))
