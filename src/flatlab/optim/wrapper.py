"""What every member of the family shares: a base optimizer inside, with one set of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..errors import UserError

Optimizer = torch.optim.Optimizer
Base = Callable[..., Optimizer]


def not_negative(name: str, value: float) -> None:
    """Refuse a number below zero, and what is no number.

    >>> not_negative("rho", -0.1)
    Traceback (most recent call last):
    flatlab.errors.UserError: rho must be a finite number >= 0, got -0.1
    """
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not 0 <= value < float("inf"):
        raise UserError(f"{name} must be a finite number >= 0, got {value!r}")


class WrappedOptimizer(Optimizer):
    """An optimizer that changes the gradient, or where it is taken, and lets a base step.

    Wrapper and base share one list of parameter groups, so a learning-rate scheduler may be given
    the wrapper and acts on the base. The wrapper's own options (`rho`) are keys of the groups.

    Attributes:
        base: The optimizer inside, which takes the steps and holds momentum or Adam's moments.
        strength: Name of the option that, at 0, leaves the base optimizer alone.
    """

    strength: ClassVar[str] = "rho"

    def __init__(
        self,
        params: ParamsT | Optimizer,
        base: Base | None,
        own: dict[str, float],
        options: dict[str, Any],
    ):
        self.base = _base(params, base, options)
        taken = sorted(own.keys() & self.base.defaults.keys())
        if taken:
            raise UserError(
                f"{type(self.base).__name__} has an option {taken[0]!r} of its own, which "
                f"{type(self).__name__} needs: choose another base optimizer"
            )
        self._own = tuple(own)
        self._counters: dict[str, int] = {}
        super().__init__(self.base.param_groups, {**self.base.defaults, **own})
        self.param_groups = self.base.param_groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, to the base too; it may have its own value of every option."""
        for name in self._own:
            not_negative(name, param_group.get(name, self.defaults[name]))
        if self.param_groups is self.base.param_groups:
            self.base.add_param_group(param_group)
            for name in self._own:
                param_group.setdefault(name, self.defaults[name])
        else:  # torch's constructor, which reads the base's groups
            super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return everything a resumed run needs, the base optimizer's state included."""
        own = super().state_dict()
        return {**own, "counters": dict(self._counters), "base": self.base.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict()`, bit by bit."""
        missing = {"state", "param_groups", "counters", "base"} - state_dict.keys()
        if missing:
            raise UserError(
                f"this is no state of {type(self).__name__}, it lacks "
                f"{', '.join(sorted(missing))}: load a plain optimizer's state into .base"
            )
        self.base.load_state_dict(state_dict["base"])
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})
        self.param_groups = self.base.param_groups
        self._counters = dict(state_dict["counters"])

    def __getstate__(self) -> dict[str, Any]:
        # A scheduler hangs a `step` bound to this very object on it: a copy must not have that.
        return {name: value for name, value in self.__dict__.items() if name != "step"}

    def _tensors(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


def _base(params: ParamsT | Optimizer, base: Base | None, options: dict[str, Any]) -> Optimizer:
    """Return the base optimizer: the one given, or one made from its class and options."""
    if isinstance(params, Optimizer):
        if base is not None or options:
            raise UserError(
                "the base optimizer was given as an object, which has its options already: "
                f"drop {', '.join((['base'] if base is not None else []) + sorted(options))}"
            )
        return params
    make = torch.optim.SGD if base is None else base
    if isinstance(make, Optimizer):
        raise UserError("base must be a class such as torch.optim.SGD; give an object as params")
    try:
        return make(params, **options)
    except (TypeError, ValueError) as error:
        name = getattr(make, "__name__", repr(make))
        raise UserError(f"the base optimizer {name} refuses its options: {error}") from error
