"""The copy of a user's model that is measured."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import UserError
from .losses import first_line


def copied(model: Any, dtype: str | None) -> nn.Module:
    """Return a deep copy without gradients, in a dtype, or raise and say why there is none."""
    if not isinstance(model, nn.Module):
        raise UserError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise UserError(
            "model is scripted or traced by torch.jit, which torch.func cannot differentiate: pass "
            "the nn.Module it was made from"
        )
    for name, p in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(p):
            raise UserError(f"{name} is not initialised yet: run the model on one batch first")
        if p.is_meta:
            raise UserError(f"{name} is on the meta device and has no values: load them first")
    if dtype is not None and dtype not in ("float32", "float64"):
        raise UserError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    made = _copy(model)
    for p in made.parameters():
        p.grad = None
    for module in made.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False  # only affects how a gradient is stored
    return made if dtype is None else made.to(getattr(torch, dtype))


def _copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        text = first_line(error)
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and not value.is_leaf:
                whole = f"{prefix}.{name}" if prefix else name
                raise UserError(
                    f"the model cannot be copied: {whole} is computed from parameters and carries "
                    "their gradient. If a forward pass left it there, detach it; if the model is "
                    "pruned, write that as a parametrization (torch.nn.utils.parametrize), or end "
                    "it with prune.remove, after which pruned weights count as parameters"
                )
    raise UserError(f"the model cannot be copied: {text}")


def copied_again(model: nn.Module) -> nn.Module:
    """Return a copy of the copy; tensors left by forward passes are copied without a graph."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                try:
                    memo[id(value)] = value.detach().clone()
                except RuntimeError:  # it belongs to a vmap that has ended
                    memo[id(value)] = torch.empty(0)
    return copy.deepcopy(model, memo)


def require_numbers(model: nn.Module, params: Mapping[str, nn.Parameter]) -> None:
    """Raise unless the parameters are finite, and the selected ones real and of one dtype."""
    for name, p in model.named_parameters():
        if not bool(torch.isfinite(p).all()):
            raise UserError(
                f"the parameter {name} holds NaN or infinity: there is nothing to measure. Take "
                "weights from before training diverged"
            )
    for name, p in params.items():
        if p.is_complex():
            raise UserError(
                f"the parameter {name} is complex: measures are of real parameters; leave it out "
                "with params=, or keep its real and imaginary parts as two parameters"
            )
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in params.values()})
    if len(kinds) > 1:
        raise UserError(
            f"the parameters are {' and '.join(kinds)}: measuring needs one dtype, pass "
            "dtype='float64' or select some with params="
        )
