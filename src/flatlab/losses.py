"""Losses of one output f and one label y; a training loss is their mean over examples.

Each has its numpy value and two derivatives in f, which the engine and the exact Hessian trace
need, and a torch form, which is the meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from .errors import UserError, unknown
from .specs import spec

if TYPE_CHECKING:
    import torch

Array = NDArray[np.floating[Any]]

LOSSES: dict[str, str] = {
    "mse": "(f − y)²",
    "logistic": "log(1 + e^f) − q f with the smoothed label q = ½ + y(½ − smoothing), y = ±1",
    "truncated_mse": "(f − y)² up to |f − y| = cutoff, then bent to reach 2·cutoff² at twice that",
}


@spec
class Loss:
    """A loss by name.

    mse: ℓ = (f − y)².

    logistic: label smoothing p moves the label b = (1 + y)/2 ∈ {0, 1} to
    q = (1 − p) b + p (1 − b) = ½ + y(½ − p), and ℓ = log(1 + e^f) − q f. Its minimum is at
    f = y log((1 − p)/p). The printed definition of the source has p and 1 − p exchanged.

    truncated_mse: with e = |f − y| and c = cutoff, ℓ = e² for e ≤ c, −e² + 4ce − 2c² for
    c ≤ e ≤ 2c, and 2c² beyond.
    """

    name: Literal["mse", "logistic", "truncated_mse"] = "mse"
    smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    cutoff: Annotated[float, Field(gt=0)] = 1.0

    @property
    def least(self) -> float:
        """The least value on a label ±1; for the logistic loss the entropy of the smoothed label.

        >>> round(Loss("logistic", smoothing=0.2).least, 4)
        0.5004
        """
        p = self.smoothing
        if self.name != "logistic" or p == 0:
            return 0.0
        return float(-p * np.log(p) - (1 - p) * np.log(1 - p))

    def values(self, f: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return ℓ, ℓ', ℓ'' elementwise.

        >>> Loss("mse").values(np.array([3.0]), np.array([1.0]))
        (array([4.]), array([4.]), array([2.]))
        """
        if self.name == "logistic":
            q = 0.5 + y * (0.5 - self.smoothing)
            sigmoid = np.exp(-np.logaddexp(0, -f))
            return np.logaddexp(0, f) - q * f, sigmoid - q, sigmoid * (1 - sigmoid)
        e = f - y
        if self.name == "mse":
            return e**2, 2 * e, np.full_like(e, 2.0)
        c, size = self.cutoff, np.abs(e)
        inner, outer = size <= c, size >= 2 * c
        value = np.where(inner, e**2, np.where(outer, 2 * c**2, -(e**2) + 4 * c * size - 2 * c**2))
        first = np.where(inner, 2 * e, np.where(outer, 0.0, -2 * e + 4 * c * np.sign(e)))
        return value, first, np.where(inner, 2.0, np.where(outer, 0.0, -2.0))

    def torch(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean loss as a torch scalar."""
        import torch

        if self.name == "logistic":
            q = 0.5 + y * (0.5 - self.smoothing)
            return (torch.logaddexp(f, torch.zeros_like(f)) - q * f).mean()
        e = f - y
        if self.name == "mse":
            return (e**2).mean()
        c, size = self.cutoff, e.abs()
        bent = torch.where(size < 2 * c, -(e**2) + 4 * c * size - 2 * c**2, 2 * c**2 + 0 * e)
        return torch.where(size <= c, e**2, bent).mean()


def as_loss(loss: Any) -> Loss:
    """Accept a `Loss` or its name."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):
        raise UserError(f"loss must be a name or a Loss, got {loss!r}")
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    return Loss(name=loss)  # type: ignore[arg-type]
