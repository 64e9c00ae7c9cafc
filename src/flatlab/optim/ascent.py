"""The frame of SAM: climb from θ to θ + e(θ), take the gradient there, step from θ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from . import _foreach as foreach
from ._checks import module, not_negative
from .passes import Noise, frozen_batchnorm
from .wrapper import Base, Stepped, WrappedOptimizer, adversary


@dataclass
class GroupPart:
    """The parameters of one group that have a gradient, and their gradients at θ."""

    group: dict[str, Any]
    params: list[Tensor]
    grads: list[Tensor]


@dataclass
class Climb:
    """A step under way: gradients at θ if still needed, and θ itself if the weights have left."""

    params: list[Tensor]
    grads: list[Tensor]
    before: list[Tensor] | None

    def pairs(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return the parameters that both passes reach, their gradients at θ and in .grad."""
        params = [p for p in self.params if p.grad is not None]
        lower = [g for p, g in zip(self.params, self.grads, strict=True) if p.grad is not None]
        return params, lower, [p.grad for p in params if p.grad is not None]


class AscentOptimizer(WrappedOptimizer):
    """One step: θ ← base(θ, G), with G made from the gradients at θ and at θ + e(θ).

    A member of the family defines e by `_ascend`, and G by `_descent` if G is not simply the
    gradient at θ + e. A zero gradient has no direction: then e = 0. Weight decay is the base
    optimizer's: it acts at θ and takes no part in the ascent. In a group that is maximised (the
    base optimizer's `maximize`), e(θ) points against the gradient.

    Args:
        params: Parameters or groups (a group may have its own `rho`), or a base optimizer.
        base: Class of the base optimizer; torch.optim.SGD if none is given.
        rho: Ascent radius. With rho = 0 in every group the step is the base optimizer's.
        model: The model whose BatchNorm statistics only the first pass updates; None for all
            modules that the second pass calls. Name it if the closure calls a compiled function
            instead of a module: no hook runs in there.
        same_noise: Whether both passes draw the same random numbers (dropout masks).
        clip: Largest norm of the gradient that the base optimizer receives; None is no limit.
        **options: Options of the base optimizer, such as lr, momentum and weight_decay.
    """

    def __init__(
        self,
        params: Stepped,
        base: Base | None = None,
        rho: float = 0.05,
        *,
        model: nn.Module | None = None,
        same_noise: bool = True,
        clip: float | None = None,
        **options: Any,
    ):
        rho = not_negative("rho", rho)
        if clip is not None:
            clip = not_negative("clip", clip)
        if model is not None:
            model = module(model, "name the one whose BatchNorm the first pass updates, or None")
        super().__init__(params, base, {"rho": rho}, options)
        self.model, self.same_noise, self.clip = model, same_noise, clip
        self._climb: Climb | None = None
        self._noise: Noise | None = None
        self._saved: dict[Tensor, Tensor] = {}

    @abstractmethod
    def _ascend(self, parts: list[GroupPart]) -> None:
        """Add e(θ) to the parameters, in place; the gradients stay as they are."""

    def _descent(self, climb: Climb) -> None:
        """Turn the gradients of the second pass, in .grad, into those for the base optimizer."""

    def _climbs(self) -> bool:
        """Return whether this step leaves θ at all."""
        radii = [self._radius(group) for group in self.param_groups]  # checks every group
        return any(radius > 0 for radius in radii)

    def _radius(self, group: dict[str, Any]) -> float:
        """Return the length of a group's ascent, checked because a schedule may have changed it."""
        return not_negative("rho", group["rho"])

    def _move(self, parts: list[GroupPart], moves: list[list[Tensor]], norm: Tensor) -> None:
        """Add radius · move/norm to each part, against the gradient where it is maximised."""
        for part, move in zip(parts, moves, strict=True):
            reach = adversary(part.group) * self._radius(part.group)
            foreach.add_scaled_(part.params, move, foreach.ratio(reach, norm))

    @torch.no_grad()
    def first_step(
        self, scaler: torch.amp.GradScaler | bool | None = None, zero_grad: bool = True
    ) -> bool:
        """Climb along the gradients in .grad, and clear them.

        Returns whether the step needs a second pass; running one that is not needed does no harm.
        With a scaler, gradients are unscaled first. Other libraries' `first_step(zero_grad=True)`
        works; the gradients are cleared in any case.
        """
        if isinstance(scaler, bool):
            scaler = None  # zero_grad by position
        if self._climb is not None:
            raise UserError(
                "first_step was called twice: run the second pass and call second_step, "
                "or give the step up with cancel"
            )
        climbs = self._climbs()
        if scaler is not None:
            scaler.unscale_(self if climbs else self.base)
        parts = self._parts()
        params = [p for part in parts for p in part.params]
        climb = Climb(params, [g for part in parts for g in part.grads], None)
        self._climb = climb
        if climbs:
            climb.before = self._save(params)
            try:
                self._ascend(parts)
            except BaseException:
                self.cancel()
                raise
            if type(self)._descent is AscentOptimizer._descent:
                climb.grads = []  # the second pass reuses their memory
        for p in params:
            p.grad = None  # `climb` keeps them if they are needed
        return climbs

    @torch.no_grad()
    def second_step(
        self, scaler: torch.amp.GradScaler | bool | None = None, zero_grad: bool = False
    ) -> None:
        """Return to θ and step from there along the gradients of the second pass.

        With a scaler, gradients are unscaled first, and the step is skipped if one is infinite.
        `zero_grad` clears the gradients afterwards.
        """
        if isinstance(scaler, bool):
            zero_grad, scaler = scaler, None
        climb = self._climb
        if climb is None:
            raise UserError("second_step needs a first_step before it: backward, first_step, ...")
        self.cancel()  # first, so that the weights are θ whatever fails later
        if climb.before is not None and scaler is not None:
            scaler.unscale_(self.base)
        if climb.before is None:
            for p, g in zip(climb.params, climb.grads, strict=True):
                if p.grad is None or scaler is not None:
                    p.grad = g
        self._descent(climb)
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self._tensors(), self.clip)
        if scaler is not None:
            scaler.step(self.base)
        else:
            self.base.step()
        self._opt_called = True  # torch's schedulers check that a step came before theirs
        if zero_grad:
            self._clear()

    def cancel(self) -> None:
        """Abandon a step between first_step and second_step: the weights are θ again."""
        if self._climb is not None:
            if self._climb.before is not None:
                with torch.no_grad():
                    torch._foreach_copy_(self._climb.params, self._climb.before)
            self._climb = None

    @contextmanager
    def first_pass(self) -> Iterator[None]:
        """Compute the gradients at θ inside this block; they are cleared on entry."""
        self._clear()
        if self.same_noise:
            self._noise = Noise(p.device for p in self._tensors())
        yield

    @contextmanager
    def second_pass(self) -> Iterator[None]:
        """Compute the gradients at θ + e inside this block, with the first pass's random numbers.

        Gradients are cleared on entry; BatchNorm statistics are left alone. If the block raises,
        the weights go back to θ and the step is abandoned.
        """
        if self._climb is None:
            raise UserError("second_pass needs a first_step before it")
        self._clear()
        with frozen_batchnorm(self.model):
            if self._noise is not None:
                self._noise.replay()
                self._noise = None
            try:
                yield
            except BaseException:
                self.cancel()
                raise

    def step(
        self,
        closure: Callable[[], Any] | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> Any:
        """Take one step; return the loss at θ.

        The closure computes the loss, calls backward (through the scaler if there is one) and
        returns the loss. It is called once for each pass, with gradients cleared.
        """
        if not callable(closure):
            raise UserError(
                f"{type(self).__name__}.step needs a closure that recomputes the loss and its "
                "gradient; without one, call first_step and second_step. With a GradScaler, write "
                "optimizer.step(closure, scaler=scaler) for scaler.step(optimizer)"
            )
        with torch.enable_grad(), self.first_pass():
            loss = closure()
        if self.first_step(scaler):
            with torch.enable_grad(), self.second_pass():
                closure()
        self.second_step(scaler)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return everything a resumed run needs, the base optimizer's state included."""
        if self._climb is not None:
            raise UserError("the weights are away from θ: save after second_step, not before it")
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict()`, bit by bit; a step under way is abandoned."""
        self.cancel()
        super().load_state_dict(state_dict)

    def _save(self, params: list[Tensor]) -> list[Tensor]:
        """Return a copy of θ in the memory of the last copy: fresh pages cost as much as a pass."""
        buffers = []
        for p in params:
            old = self._saved.get(p)
            if old is None or (old.shape, old.dtype, old.device) != (p.shape, p.dtype, p.device):
                old = self._saved[p] = torch.empty_like(p)
            buffers.append(old)
        torch._foreach_copy_(buffers, params)
        return buffers

    def _clear(self) -> None:
        for p in self._tensors():
            p.grad = None

    def _parts(self) -> list[GroupPart]:
        parts = []
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if any(p.grad.layout != torch.strided for p in params):
                raise UserError(f"{type(self).__name__} needs dense gradients, got a sparse one")
            if params:
                parts.append(GroupPart(group, params, [p.grad for p in params]))
        if not parts:
            raise UserError("no parameter has a gradient: call loss.backward() before the step")
        return parts
