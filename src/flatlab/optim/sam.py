"""Sharpness-aware minimisation (Foret et al. 2021) as a torch optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError


class SAM(torch.optim.Optimizer):
    """Plain SGD at the point that an ascent of radius rho reaches.

        θ ← θ − lr (g(θ + s g(θ)) + weight_decay θ),   s = rho/‖g(θ)‖, or rho if not normalised

    The norm is taken over all parameters together. At a zero gradient there is no ascent. Weight
    decay acts at θ and takes no part in the ascent.

    >>> w = torch.tensor([3.0], requires_grad=True)
    >>> optimizer = SAM([w], lr=0.1, rho=1.0)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (w**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)   # g(3 + 1) = 8
    >>> round(w.item(), 6)
    2.2
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        rho: float,
        weight_decay: float = 0.0,
        normalised: bool = True,
    ):
        for name, value in {"lr": lr, "rho": rho, "weight_decay": weight_decay}.items():
            if value < 0:
                raise UserError(f"{name} must be >= 0, got {value!r}")
        super().__init__(params, {"lr": lr, "rho": rho, "weight_decay": weight_decay})
        self.normalised = normalised

    def _with_gradient(self) -> list[tuple[dict[str, Any], Tensor, Tensor]]:
        return [
            (group, p, p.grad)
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        ]

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:  # type: ignore[override]
        """Take one step; the closure clears gradients, calls backward and returns the loss."""
        if closure is None:
            raise UserError("SAM.step needs a closure that recomputes the loss and its gradient")
        with torch.enable_grad():
            loss = closure()
        found = self._with_gradient()
        if not found:  # as torch.optim.SGD: nothing to do
            return loss
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for _, _, g in found]))
        before = [p.clone() for _, p, _ in found]
        if norm > 0:
            for group, p, g in found:
                p.add_(g, alpha=float(group["rho"] / norm) if self.normalised else group["rho"])
        with torch.enable_grad():
            closure()
        for (group, p, _), old in zip(found, before, strict=True):
            p.copy_(old)
            assert p.grad is not None  # the closure has just filled it
            p.mul_(1 - group["lr"] * group["weight_decay"]).add_(p.grad, alpha=-group["lr"])
        return loss
