"""GSAM: SAM that also reduces the gap between the perturbed loss and the loss."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import UserError
from . import _foreach as foreach
from ._checks import not_negative, number
from .ascent import Climb
from .sam import SAM
from .wrapper import Base, Stepped


class GSAM(SAM):
    """Surrogate-gap guided SAM (Zhuang et al. 2022, arXiv:2203.08065, Algorithm 1).

        g = ∇L(θ),   g_p = ∇L(θ + rho g/‖g‖),   g = g_∥ + g_⊥  along and across g_p,
        θ ← base(θ, g_p − alpha g_⊥)

    The decomposition is of the vector of all parameters. With `rho_min` the radius follows the
    learning rate, as in the paper:
    rho_t = rho_min + (rho − rho_min)(lr_t − lr_min)/(lr_max − lr_min).

    Args:
        params, base, options: As for `AscentOptimizer`.
        rho: Ascent radius, at lr_max if rho_min is given.
        alpha: Weight of the gap.
        rho_min: Ascent radius at lr_min; None keeps the radius fixed.
        lr_max: Largest learning rate of the schedule; needed with rho_min.
        lr_min: Smallest learning rate of the schedule.
    """

    def __init__(
        self,
        params: Stepped,
        base: Base | None = None,
        rho: float = 0.05,
        *,
        alpha: float = 0.4,
        rho_min: float | None = None,
        lr_max: float | None = None,
        lr_min: float = 0.0,
        **options: Any,
    ):
        alpha = not_negative("alpha", alpha)
        if rho_min is not None:
            rho_min, lr_min = not_negative("rho_min", rho_min), not_negative("lr_min", lr_min)
            if not lr_min < number(lr_max) < float("inf"):
                raise UserError(
                    f"rho_min needs a number lr_max > lr_min = {lr_min:g}, got lr_max={lr_max!r}"
                )
            lr_max = number(lr_max)
        super().__init__(params, base, rho, normalised=True, **options)
        self.alpha, self.rho_min, self.lr_max, self.lr_min = alpha, rho_min, lr_max, lr_min

    def _radius(self, group: dict[str, Any]) -> float:
        rho = super()._radius(group)
        if self.rho_min is None or self.lr_max is None or rho == 0:
            return rho
        share = (float(group["lr"]) - self.lr_min) / (self.lr_max - self.lr_min)
        return max(0.0, self.rho_min + (rho - self.rho_min) * share)

    def _descent(self, climb: Climb) -> None:
        if climb.before is None or self.alpha == 0:
            return
        _, lower, upper = climb.pairs()
        if not upper:
            return
        # g_p − α(g − c g_p) with c = ⟨g, g_p⟩/‖g_p‖².
        along = foreach.part_along(lower, upper)
        combined = foreach.times(upper, 1 + self.alpha * along)
        torch._foreach_add_(combined, lower, alpha=-self.alpha)
        torch._foreach_copy_(upper, combined)
