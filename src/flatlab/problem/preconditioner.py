"""The diagonal P by which an adaptive optimizer divides its steps, at its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError, in_words
from .copying import plain_name

GIVE = (
    "pass measure(..., preconditioner=optimizer) with a torch.optim.Adam, AdamW or RMSprop that "
    "has stepped, or the diagonal of P as positive tensors by name"
)


@dataclass(frozen=True)
class Preconditioner:
    """The diagonal of P as one vector in float64, where it comes from, and the edge of stability.

    `threshold` is the eigenvalue of P⁻¹∇²L above which the optimizer, with P held fixed, is
    unstable on a quadratic; None if it is not known.
    """

    diagonal: Tensor
    words: str
    threshold: float | None = None


def preconditioner_of(
    given: Any, own: Mapping[str, Tensor], params: Mapping[str, Tensor]
) -> Preconditioner:
    """Return the preconditioner of the selected parameters.

    Args:
        given: An optimizer, a wrapper with such a `base`, or the diagonal of P by name.
        own: The parameters of the user's model by name, as the optimizer knows them.
        params: The selected parameters of the copy.
    """
    if isinstance(given, Mapping):
        parts = _by_name(given, params)
        made = Preconditioner(_joined(parts), "preconditioner as given")
    else:
        made = _of_optimizer(getattr(given, "base", given), own, params)
    bad = int((~(torch.isfinite(made.diagonal) & (made.diagonal > 0))).sum())
    if bad:
        raise UserError(
            f"the preconditioner is not a positive number for {bad:,} of {len(made.diagonal):,} "
            "parameters, so it has no inverse: use an optimizer with eps > 0, or leave these "
            "parameters out with params="
        )
    return made


def _by_name(given: Mapping[Any, Any], params: Mapping[str, Tensor]) -> list[Tensor]:
    try:
        named = {plain_name(name): torch.as_tensor(value) for name, value in given.items()}
    except (TypeError, ValueError, RuntimeError, AttributeError):
        raise UserError(f"a preconditioner must have tensors by name: {GIVE}") from None
    for name, p in params.items():
        if name not in named or named[name].shape != p.shape:
            raise UserError(
                f"the preconditioner needs {name} of shape {tuple(p.shape)}: give a tensor for "
                "each parameter, or select parameters with params="
            )
    return [named[name] for name in params]


def _of_optimizer(
    optimizer: Any, own: Mapping[str, Tensor], params: Mapping[str, Tensor]
) -> Preconditioner:
    kind = type(optimizer).__name__
    adam = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
    if not adam and not isinstance(optimizer, torch.optim.RMSprop):
        what = kind if isinstance(optimizer, torch.optim.Optimizer) else in_words(optimizer)
        raise UserError(
            f"preconditioner is {what}, which has no second moments that are known: {GIVE}"
        )
    named = {plain_name(name): p for name, p in own.items()}
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    parts, steps, used = [], set[int](), list[Any]()
    for name in params:
        p = named[name]
        if id(p) not in groups:
            raise UserError(
                f"the {kind} given as preconditioner does not step {name} of this model: pass the "
                "optimizer of this very model, or select its parameters with params="
            )
        group, state = groups[id(p)], optimizer.state.get(p, {})
        if ("exp_avg_sq" if adam else "square_avg") not in state:
            raise UserError(
                f"{kind} has no second moments of {name} yet: measure after its first step, or "
                "leave parameters that get no gradient out with params="
            )
        used.append(group)
        steps.add(int(state["step"]))
        parts.append(_adam(group, state) if adam else _rmsprop(group, state))
    words = f"{kind} after {max(steps):,} steps"
    return Preconditioner(_joined(parts), words, _threshold(used, adam))


def _adam(group: Mapping[str, Any], state: Mapping[str, Any]) -> Tensor:
    """Return √(v/(1 − β₂ᵗ)) + ε after t steps; with amsgrad v is the largest so far."""
    v = state["max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq"].detach().double()
    correction = 1 - float(group["betas"][1]) ** int(state["step"])
    scale: Tensor = (v / correction).sqrt() + float(group["eps"])
    return scale


def _rmsprop(group: Mapping[str, Any], state: Mapping[str, Any]) -> Tensor:
    """Return √v + ε, or √(v − m²) + ε with the mean gradient m if it is centred."""
    v = state["square_avg"].detach().double()
    if group["centered"]:
        v = v - state["grad_avg"].detach().double().square()
    scale: Tensor = v.clamp(min=0).sqrt() + float(group["eps"])
    return scale


def _threshold(groups: list[Any], adam: bool) -> float | None:
    """Return the edge of heavy-ball descent in the metric of P, if all parameters share a rate."""

    def edge(group: Mapping[str, Any]) -> float:
        lr = float(group["lr"])
        beta = float(group["betas"][0] if adam else group["momentum"])
        scale = 1 - beta if adam else 1.0  # Adam averages gradients, momentum adds them up
        return (2 + 2 * beta) / (scale * lr) if lr > 0 else float("inf")

    found = {edge(group) for group in groups}
    return found.pop() if len(found) == 1 else None


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.detach().to("cpu", torch.float64).flatten() for part in parts])
