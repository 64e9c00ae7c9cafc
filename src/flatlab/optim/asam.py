"""ASAM: the ascent, with each weight as its own unit of length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from . import _foreach as foreach
from ._options import not_negative
from .ascent import AscentOptimizer, GroupPart
from .wrapper import Base, Optimizer


class ASAM(AscentOptimizer):
    """Adaptive SAM (Kwon et al. 2021, arXiv:2102.11600, equation 4), elementwise.

        e = rho T² g(θ)/‖T g(θ)‖,   T = diag(|θ| + eta),   θ ← base(θ, g(θ + e))

    The norm is taken over all parameters of all groups together.

    Args:
        params: Parameters or groups, or a base optimizer.
        base: Class of the base optimizer; torch.optim.SGD if none is given.
        rho: Ascent radius in rescaled weights; about ten times SAM's.
        eta: Added to |θ|, so that a weight of zero still moves.
        adapt_bias: If False, T = 1 for biases and norm scales: parameters of at most one dimension.
        **options: Those of `AscentOptimizer` and of the base optimizer.
    """

    def __init__(
        self,
        params: ParamsT | Optimizer,
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
        scales = [self._scales(part) for part in parts]
        moves = [list(part.grads) for part in parts]
        for move, scale in zip(moves, scales, strict=True):
            for k, t in scale.items():
                move[k] = move[k] * t
        norm = foreach.norm([t for move in moves for t in move])
        for part, move, scale in zip(parts, moves, scales, strict=True):
            for k, t in scale.items():
                move[k].mul_(t)
            factor = foreach.ratio(self._reach(part.group), norm)
            foreach.add_scaled_(part.params, move, factor)

    def _scales(self, part: GroupPart) -> dict[int, Tensor]:
        """Return T for each rescaled parameter, by its index in the part."""
        places = [k for k, p in enumerate(part.params) if self.adapt_bias or p.ndim > 1]
        if not places:
            return {}
        scales = torch._foreach_abs([part.params[k] for k in places])
        torch._foreach_add_(scales, self.eta)
        return dict(zip(places, scales, strict=True))
