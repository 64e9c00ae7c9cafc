"""Friendly-SAM: the ascent along the gradient noise of the batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from . import _foreach as foreach
from ._checks import not_negative, number
from .ascent import AscentOptimizer, Climb, GroupPart
from .wrapper import Base, Stepped


class FriendlySAM(AscentOptimizer):
    """Friendly-SAM (Li et al. 2024, arXiv:2403.12350, Algorithm 1).

        m_t = lam m_{t−1} + (1 − lam) g_t,   m_{−1} = 0
        d_t = g_t − sigma m_t
        e = rho d_t/‖d_t‖,   θ ← base(θ, g(θ + e))

    The norm is over all parameters together. A step whose gradient is not finite leaves m alone.

    Args:
        params, base, rho, options: As for `AscentOptimizer`.
        sigma: How much of the mean gradient m is removed.
        lam: Decay of the moving average, the paper's λ.
    """

    def __init__(
        self,
        params: Stepped,
        base: Base | None = None,
        rho: float = 0.05,
        *,
        sigma: float = 1.0,
        lam: float = 0.9,
        **options: Any,
    ):
        sigma = not_negative("sigma", sigma)
        if not 0 <= number(lam) < 1:
            raise UserError(f"lam must be a number in [0, 1), got {lam!r}")
        super().__init__(params, base, rho, **options)
        self.sigma, self.lam = sigma, number(lam)
        self._means: list[Tensor] = []

    def _ascend(self, parts: list[GroupPart]) -> None:
        self._means, directions = [], []
        for part in parts:
            means = self._averages(part.params, part.grads)
            directions.append(list(torch._foreach_add(part.grads, means, alpha=-self.sigma)))
            self._means += means
        norm = foreach.norm([d for some in directions for d in some])
        self._move(parts, directions, norm)

    def _averages(self, params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        """Return m_t of these parameters."""
        means = list(torch._foreach_mul(grads, 1 - self.lam))
        for mean, p in zip(means, params, strict=True):
            if "mean" in self.state[p]:
                mean.add_(self.state[p]["mean"], alpha=self.lam)
        return means

    def _descent(self, climb: Climb) -> None:
        if climb.before is None:  # rho = 0: m follows the gradients even so
            self._means = self._averages(climb.params, climb.grads)
        # Only now, so that an abandoned step leaves no trace.
        if bool(torch.isfinite(foreach.norm(self._means))):
            for p, mean in zip(climb.params, self._means, strict=True):
                self.state[p]["mean"] = mean
        self._means = []
