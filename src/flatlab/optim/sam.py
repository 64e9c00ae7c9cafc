"""SAM: the ascent along the gradient, of a fixed radius or (USAM) as long as the gradient."""

from __future__ import annotations

from typing import Any

from ..errors import UserError
from . import _foreach as foreach
from .ascent import AscentOptimizer, GroupPart
from .wrapper import Base, Stepped


class SAM(AscentOptimizer):
    r"""Sharpness-aware minimisation (Foret et al. 2021, arXiv:2010.01412, Algorithm 1).

        e = rho g(θ)/‖g(θ)‖   (or rho g(θ) if not normalised),   θ ← base(θ, g(θ + e))

    The norm is taken over all parameters of all groups together; each group has its own rho.

    Args:
        params, base, rho, options: As for `AscentOptimizer`.
        normalised: Whether the ascent has length rho, or rho‖g‖.
        adaptive: Other libraries' name for `ASAM`; True is refused with the equivalent call.
        base_optimizer: Other libraries' name for `base`.

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
        params: Stepped,
        base: Base | None = None,
        rho: float = 0.05,
        *,
        normalised: bool = True,
        adaptive: bool = False,
        base_optimizer: Base | None = None,
        **options: Any,
    ):
        if adaptive:
            raise UserError(
                "adaptive=True is a class of its own here: ASAM(params, base, rho=..., eta=0) "
                "takes the same steps; eta=0.01, the default, also moves weights of zero"
            )
        if base_optimizer is not None and base is not None:
            raise UserError("base and base_optimizer are two names of one option: give one")
        super().__init__(params, base or base_optimizer, rho, **options)
        self.normalised = normalised

    def _ascend(self, parts: list[GroupPart]) -> None:
        if self.normalised:
            norm = foreach.norm([g for part in parts for g in part.grads])
        else:
            first = parts[0].grads[0]
            norm = first.new_ones((), dtype=first.dtype.to_real())
        self._move(parts, [part.grads for part in parts], norm)


class USAM(SAM):
    """SAM without the norm (Andriushchenko & Flammarion 2022, arXiv:2206.06232).

        e = rho g(θ),   θ ← base(θ, g(θ + e))

    So rho is the length of the ascent for a gradient of norm one.
    """

    def __init__(
        self, params: Stepped, base: Base | None = None, rho: float = 0.05, **options: Any
    ):
        super().__init__(params, base, rho, normalised=False, **options)
