"""Squared errors: whole, halved, and bent at a cutoff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from ..specs import spec
from .contract import Array, Loss, loss

if TYPE_CHECKING:
    import torch


@loss("mse", "(f − y)²")
@spec
class MSE(Loss):
    """ℓ = (f − y)²; with several outputs their mean, as torch.nn.MSELoss has it."""

    def values(self, f: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return ℓ, ℓ', ℓ'' elementwise.

        >>> MSE().values(np.array([3.0]), np.array([1.0]))
        (array([4.]), array([4.]), array([2.]))
        """
        e = f - y
        return e**2, 2 * e, np.full_like(e, 2.0)

    def torch(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean of (f − y)²."""
        return ((outputs - labels) ** 2).mean()


@loss("half_mse", "½ ‖f − y‖²")
@spec
class HalfMSE(Loss):
    """ℓ = ½ ‖f − y‖², the sum over outputs."""

    def values(self, f: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return ℓ, ℓ', ℓ'' elementwise.

        >>> HalfMSE().values(np.array([3.0]), np.array([1.0]))
        (array([2.]), array([2.]), array([1.]))
        """
        e = f - y
        return e**2 / 2, e, np.ones_like(e)

    def torch(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean over examples of ½ ‖f − y‖²."""
        return ((outputs - labels) ** 2).sum() / (2 * len(labels))


@loss("truncated_mse", "(f − y)² up to |f − y| = cutoff, then bent to 2·cutoff² at twice that")
@spec
class TruncatedMSE(Loss):
    """The squared error bent to a constant.

    With e = |f − y| and c = cutoff, ℓ = e² for e ≤ c, −e² + 4ce − 2c² for c ≤ e ≤ 2c, and 2c²
    beyond.
    """

    cutoff: Annotated[float, Field(gt=0)] = 1.0

    def values(self, f: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return ℓ, ℓ', ℓ'' elementwise."""
        e = f - y
        c, size = self.cutoff, np.abs(e)
        inner, outer = size <= c, size >= 2 * c
        value = np.where(inner, e**2, np.where(outer, 2 * c**2, -(e**2) + 4 * c * size - 2 * c**2))
        first = np.where(inner, 2 * e, np.where(outer, 0.0, -2 * e + 4 * c * np.sign(e)))
        return value, first, np.where(inner, 2.0, np.where(outer, 0.0, -2.0))

    def torch(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean over examples and outputs."""
        import torch

        e = outputs - labels
        c, size = self.cutoff, e.abs()
        bent = torch.where(size < 2 * c, -(e**2) + 4 * c * size - 2 * c**2, 2 * c**2 + 0 * e)
        return torch.where(size <= c, e**2, bent).mean()
