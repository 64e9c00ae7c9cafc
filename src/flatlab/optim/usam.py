"""Unnormalised SAM: the ascent grows with the gradient."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import ParamsT

from .sam import SAM
from .wrapper import Base, Optimizer


class USAM(SAM):
    """SAM without the norm (Andriushchenko & Flammarion 2022, arXiv:2206.06232).

        e = rho g(θ),   θ ← base(θ, g(θ + e))

    Args:
        params: Parameters or groups, or a base optimizer.
        base: Class of the base optimizer; torch.optim.SGD if none is given.
        rho: Length of the ascent for a gradient of norm one.
        **options: Those of `AscentOptimizer` and of the base optimizer.
    """

    def __init__(
        self,
        params: ParamsT | Optimizer,
        base: Base | None = None,
        rho: float = 0.05,
        **options: Any,
    ):
        super().__init__(params, base, rho, normalised=False, **options)
