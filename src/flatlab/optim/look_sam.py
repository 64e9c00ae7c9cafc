"""LookSAM: a second gradient every k steps, remembered in between."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import whole_number
from . import _foreach as foreach
from ._checks import not_negative
from .ascent import Climb
from .sam import SAM
from .wrapper import Base, Stepped


class LookSAM(SAM):
    """LookSAM (Liu et al. 2022, arXiv:2203.02714, Algorithm 1).

        every k-th step:  g_s = ∇L(θ + rho g/‖g‖),   g_v = g_s − ⟨g_s, g⟩ g/‖g‖²
        other steps:      g_s = g + alpha ‖g‖ g_v/‖g_v‖
        θ ← base(θ, g_s)

    Norms and products are over all parameters together. If g_s is parallel to g up to rounding, g_v
    is zero and the other steps are the base optimizer's. A step whose gradients are
    not finite is not counted, so the next one climbs.

    Args:
        params, base, rho, options: As for `AscentOptimizer`.
        k: Steps from one ascent to the next; k = 1 is SAM.
        alpha: Weight of the remembered direction.
    """

    def __init__(
        self,
        params: Stepped,
        base: Base | None = None,
        rho: float = 0.05,
        *,
        k: int = 5,
        alpha: float = 0.7,
        **options: Any,
    ):
        alpha, k = not_negative("alpha", alpha), whole_number("k", k, least=1)
        super().__init__(params, base, rho, normalised=True, **options)
        self.k, self.alpha = k, alpha
        self._counters["steps"] = 0

    def _climbs(self) -> bool:
        return super()._climbs() and self._counters["steps"] % self.k == 0

    def _descent(self, climb: Climb) -> None:
        if not super()._climbs():  # rho = 0: the base optimizer alone
            return
        if climb.before is None:
            self._reuse(climb)
        elif self._remember(climb):
            self._counters["steps"] += 1

    def _remember(self, climb: Climb) -> bool:
        """Keep the direction of g_v; return whether it is finite."""
        params, lower, upper = climb.pairs()
        if not upper:
            return False
        across = foreach.times(lower, -foreach.part_along(upper, lower))
        torch._foreach_add_(across, upper)
        size, whole = foreach.norm(across), foreach.norm(upper)
        if not bool(torch.isfinite(size + whole)):
            return False
        rounding = 10 * torch.finfo(whole.dtype).eps * whole
        unit = foreach.times(across, torch.where(size > rounding, foreach.ratio(1.0, size), 0.0))
        for p, direction in zip(params, unit, strict=True):
            self.state[p]["look"] = direction
        return True

    def _reuse(self, climb: Climb) -> None:
        """Add the remembered direction to the gradients at θ."""
        grads = [p.grad for p in climb.params if p.grad is not None]
        norm = foreach.norm(grads)
        if not bool(torch.isfinite(norm)):
            return
        self._counters["steps"] += 1
        known = [p for p in climb.params if "look" in self.state[p]]
        if known:
            looks = foreach.times([self.state[p]["look"] for p in known], self.alpha * norm)
            for p, look in zip(known, looks, strict=True):
                p.grad = look if p.grad is None else p.grad.add_(look)
