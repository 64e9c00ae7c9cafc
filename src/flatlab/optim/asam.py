"""ASAM: the ascent, with each weight as its own unit of length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _foreach as foreach
from ._checks import not_negative
from .ascent import AscentOptimizer, GroupPart
from .wrapper import Base, Stepped


class ASAM(AscentOptimizer):
    """Adaptive SAM (Kwon et al. 2021, arXiv:2102.11600, equation 4), elementwise.

        e = rho T² g(θ)/‖T g(θ)‖,   T = diag(|θ| + eta),   θ ← base(θ, g(θ + e))

    The norm is taken over all parameters of all groups together.

    Args:
        params, base, options: As for `AscentOptimizer`.
        rho: Ascent radius in rescaled weights; about ten times SAM's.
        eta: Added to |θ|, so that a weight of zero still moves.
        adapt_bias: If False, T = 1 for biases and norm scales: parameters of at most one dimension.
    """

    def __init__(
        self,
        params: Stepped,
        base: Base | None = None,
        rho: float = 0.5,
        *,
        eta: float = 0.01,
        adapt_bias: bool = True,
        **options: Any,
    ):
        eta = not_negative("eta", eta)
        super().__init__(params, base, rho, **options)
        self.eta, self.adapt_bias = eta, adapt_bias

    def _ascend(self, parts: list[GroupPart]) -> None:
        scales = [self._scales(part.params) for part in parts]
        moves = [
            list(torch._foreach_mul(part.grads, scale))
            for part, scale in zip(parts, scales, strict=True)
        ]
        norm = foreach.norm([t for move in moves for t in move])
        for move, scale in zip(moves, scales, strict=True):
            torch._foreach_mul_(move, scale)
        self._move(parts, moves, norm)

    def _scales(self, params: list[Tensor]) -> list[Tensor]:
        """Return T of each parameter."""
        scales = list(torch._foreach_abs(params))
        torch._foreach_add_(scales, self.eta)
        if self.adapt_bias:
            return scales
        return [t if t.ndim > 1 else torch.ones_like(t) for t in scales]
