"""SAM: the ascent of a fixed radius along the gradient."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import ParamsT

from . import _foreach as foreach
from .ascent import AscentOptimizer, GroupPart
from .wrapper import Base, Optimizer


class SAM(AscentOptimizer):
    r"""Sharpness-aware minimisation (Foret et al. 2021, arXiv:2010.01412, Algorithm 1).

        e = rho g(θ)/‖g(θ)‖   (or rho g(θ) if not normalised),   θ ← base(θ, g(θ + e))

    The norm is taken over all parameters of all groups together; each group has its own rho.

    Args:
        params: Parameters or groups, or a base optimizer.
        base: Class of the base optimizer; torch.optim.SGD if none is given.
        rho: Ascent radius.
        normalised: Whether the ascent has length rho, or rho‖g‖.
        **options: Those of `AscentOptimizer` and of the base optimizer.

    >>> import torch
    >>> w = torch.tensor([3.0], requires_grad=True)
    >>> optimizer = SAM([w], lr=0.1, rho=1.0)
    >>> def closure():
    ...     loss = (w**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)   # g(3 + 1) = 8
    >>> round(w.item(), 6)
    2.2
    """

    def __init__(
        self,
        params: ParamsT | Optimizer,
        base: Base | None = None,
        rho: float = 0.05,
        *,
        normalised: bool = True,
        **options: Any,
    ):
        super().__init__(params, base, rho, **options)
        self.normalised = normalised

    def _ascend(self, parts: list[GroupPart]) -> None:
        if self.normalised:
            norm = foreach.norm([g for part in parts for g in part.grads])
        else:
            first = parts[0].grads[0]
            norm = first.new_ones((), dtype=first.dtype.to_real())
        for part in parts:
            factor = foreach.ratio(self._reach(part.group), norm)
            foreach.add_scaled_(part.params, part.grads, factor)
