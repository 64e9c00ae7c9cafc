"""The logistic loss of one output, with label smoothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from ..specs import spec
from .contract import Array, Labels, Loss, loss

if TYPE_CHECKING:
    import torch


@loss("logistic", "log(1 + e^f) − q f with the smoothed label q = ½ + y(½ − smoothing), y = ±1")
@spec
class Logistic(Loss):
    """ℓ = log(1 + e^f) − q f.

    Label smoothing p moves the label b = (1 + y)/2 ∈ {0, 1} to q = (1 − p) b + p (1 − b) =
    ½ + y(½ − p). The minimum is at f = y log((1 − p)/p).
    """

    smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    labels: ClassVar[Labels] = "signs"

    @property
    def least(self) -> float:
        """The least value on a label ±1: the entropy of the smoothed label.

        >>> round(Logistic(smoothing=0.2).least, 4)
        0.5004
        """
        p = self.smoothing
        return 0.0 if p == 0 else float(-p * np.log(p) - (1 - p) * np.log(1 - p))

    def values(self, f: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return ℓ, ℓ', ℓ'' elementwise."""
        q = 0.5 + y * (0.5 - self.smoothing)
        sigmoid = np.exp(-np.logaddexp(0, -f))
        return np.logaddexp(0, f) - q * f, sigmoid - q, sigmoid * (1 - sigmoid)

    def torch(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean over examples."""
        import torch

        q = 0.5 + labels * (0.5 - self.smoothing)
        return (torch.logaddexp(outputs, torch.zeros_like(outputs)) - q * outputs).mean()
