"""What every member of the family shares: a base optimizer and one set of parameter groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..errors import UserError
from ._checks import not_negative

Optimizer = torch.optim.Optimizer
Base = Callable[..., Optimizer]
Stepped = ParamsT | Optimizer


def adversary(group: dict[str, Any]) -> int:
    """Return the sign of the ascent along the gradient: −1 if the base optimizer maximises.

    >>> adversary({"maximize": True}), adversary({"lr": 0.1})
    (-1, 1)
    """
    return -1 if group.get("maximize") else 1


class WrappedOptimizer(Optimizer):
    """An optimizer that changes the gradient, or where it is taken, and lets a base optimizer step.

    Wrapper and base share one list of parameter groups, so a learning-rate scheduler may be given
    the wrapper and acts on the base. The wrapper's own options (`rho`) are keys of the groups.

    Attributes:
        base: The optimizer inside, which takes the steps and holds momentum or Adam's moments.
        strength: Name of the option that, at 0, leaves the base optimizer alone.
    """

    strength: ClassVar[str] = "rho"

    def __init__(
        self,
        params: Stepped,
        base: Base | None,
        own: dict[str, float],
        options: dict[str, Any],
    ):
        self.base = _base(params, base, options)
        if not _steps_alone(self.base):
            raise UserError(
                f"{type(self.base).__name__} cannot be the base of {type(self).__name__}, its step "
                "needs a closure: choose one that steps from gradients alone, as torch.optim.SGD"
            )
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
            param_group[name] = not_negative(name, param_group.get(name, self.defaults[name]))
        if self.param_groups is self.base.param_groups:
            self.base.add_param_group(param_group)
        else:  # torch's constructor, which reads the base's groups
            super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return everything a resumed run needs, the base optimizer's state included."""
        own = super().state_dict()
        inner = self.base.state_dict()
        return {**own, "counters": dict(self._counters), "base": inner, "names": self._names()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict()`, bit by bit; a state that does not fit changes nothing."""
        missing = {"state", "param_groups", "counters", "base"} - state_dict.keys()
        if missing:
            raise UserError(
                f"this is no state of {type(self).__name__}, it lacks "
                f"{', '.join(sorted(missing))}: load a plain optimizer's state into .base"
            )
        self._check_fit(state_dict)
        try:
            self.base.load_state_dict(state_dict["base"])
        except ValueError as error:  # torch compares the groups before it changes anything
            raise UserError(
                f"this state is of other parameters: {error}; make the groups as they were saved"
            ) from error
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})
        self.param_groups = self.base.param_groups
        self._counters = dict(state_dict["counters"])

    def _names(self) -> dict[str, str]:
        return {"optimizer": type(self).__name__, "base": type(self.base).__name__}

    def _check_fit(self, state_dict: dict[str, Any]) -> None:
        """Refuse the state of another class or base; a state without names goes by its keys."""
        ours = self._names()
        theirs = state_dict.get("names", ours)
        if theirs != ours:
            raise UserError(
                f"this state is of {theirs['optimizer']} over {theirs['base']}, not of "
                f"{ours['optimizer']} over {ours['base']}: make the optimizer that was saved"
            )
        if "names" in state_dict:
            return
        lacking = {k for g in state_dict["param_groups"] for k in self.defaults.keys() - g.keys()}
        lacking |= self._counters.keys() ^ state_dict["counters"].keys()
        if lacking:
            raise UserError(
                f"this state is not of {ours['optimizer']} over {ours['base']}, they differ in "
                f"{', '.join(sorted(lacking))}: make the optimizer that was saved"
            )

    def __getstate__(self) -> dict[str, Any]:
        # A scheduler replaces `step` on the object by one bound to it; a copy must not inherit
        # that.
        return {name: value for name, value in self.__dict__.items() if name != "step"}

    def _tensors(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


def _steps_alone(base: Optimizer) -> bool:
    """Return whether `base.step()` works without a closure, unlike LBFGS's and this family's."""
    # Look at the class, whose first argument is self: a scheduler replaces `step` on the object.
    given = list(inspect.signature(type(base).step).parameters.values())[1:]
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in given if p.default is p.empty and p.kind not in optional]
    return not needed and not isinstance(base, WrappedOptimizer)


def _base(params: Stepped, base: Base | None, options: dict[str, Any]) -> Optimizer:
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
        made = make(params, **options)
    except (TypeError, ValueError) as error:
        name = getattr(make, "__name__", repr(make))
        raise UserError(f"the base optimizer {name} refuses its options: {error}") from error
    if not isinstance(made, Optimizer):
        raise UserError(
            f"base must be a class such as torch.optim.SGD, got one that makes a "
            f"{type(made).__name__}"
        )
    return made
