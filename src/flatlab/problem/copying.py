"""The copy of a user's model that is measured, and its outputs as one tensor."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import UserError, in_words
from .losses import first_line

# The name under which the wrapper of torch.compile holds a module.
COMPILED = "_orig_mod"
# Outputs with several entries.
SEVERAL = (list, tuple, Mapping)


def copied(model: Any, dtype: str | None) -> nn.Module:
    """Return a deep copy without gradients, in a dtype, or raise and say why there is none.

    It returns the tensor in its outputs, where there is no doubt which.
    """
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
    require_dtype(dtype)
    with copying(model):
        made = _uncompiled(model)
    _part(made, set())
    for p in made.parameters():
        p.grad = None
    for module in made.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False  # only affects how a gradient is stored
    made.register_forward_hook(_tensor_of)
    return made if dtype is None else made.to(getattr(torch, dtype))


def require_dtype(dtype: Any) -> None:
    """Refuse a precision to measure in that is unknown."""
    if dtype is not None and dtype not in ("float32", "float64"):
        raise UserError(f"dtype must be 'float32' or 'float64', got {dtype!r}")


@contextlib.contextmanager
def copying(model: nn.Module) -> Iterator[None]:
    """Copy a model inside the block; if torch cannot, one line says what to do."""
    try:
        yield
        return
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


def _uncompiled(model: nn.Module) -> nn.Module:
    """Return a deep copy without torch.compile, whose code has no second derivatives.

    The copy has the modules that were compiled where the original has their wrappers. What
    `module.compile()` adds is not copied by torch.
    """
    memo: dict[int, Any] = {}
    for module in reversed(list(model.modules())):  # inner modules first
        inner = vars(module)["_modules"].get(COMPILED)
        if inner is not None:
            memo[id(module)] = copy.deepcopy(inner, memo)
    made = copy.deepcopy(model, memo)
    for module in made.modules():
        own: Any = vars(module).get("forward")
        if hasattr(own, "_torchdynamo_orig_callable"):  # compiled, it would run the original module
            forward = inspect.unwrap(own, stop=lambda each: hasattr(each, "__self__"))
            if getattr(forward, "__func__", None) is type(module).forward:
                del module.forward
    return made


def _part(module: nn.Module, seen: set[int]) -> None:
    """Replace a module that has a second name by another one with the same parameters there.

    `torch.func.functional_call` would leave other parameters in a module of two names.
    """
    for name, child in list(module._modules.items()):
        if child is None:
            continue
        if id(child) in seen:
            child = copy.copy(child)
            for own in ("_parameters", "_buffers", "_modules"):
                vars(child)[own] = dict(vars(child)[own])
            module._modules[name] = child
        seen.add(id(child))
        _part(child, seen)


def plain_name(name: str) -> str:
    """Return a parameter's name in the copy.

    >>> plain_name("_orig_mod.0.weight")
    '0.weight'
    """
    return name.replace(f"{COMPILED}.", "")


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


def _tensor_of(module: nn.Module, given: Any, output: Any) -> Any:
    """Return the logits, or the only entry that is there; otherwise the output as it is.

    A batch of one example may have lost its first axis in a squeeze().
    """
    if isinstance(output, Tensor):
        one = bool(given) and isinstance(given[0], Tensor) and given[0].shape[:1] == (1,)
        return output[None] if one and output.shape[:1] != (1,) else output
    named = isinstance(output, Mapping)
    logits = output.get("logits") if named else getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    several: Any = output.values() if named else output if isinstance(output, SEVERAL) else ()
    present = [entry for entry in several if entry is not None]
    return present[0] if len(present) == 1 else output


def only_tensor(output: Any) -> Tensor:
    """Return a model's output, or raise if it is not one tensor."""
    if isinstance(output, Tensor):
        return output
    which = f" with {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
    entry = next(iter(output), 0) if isinstance(output, Mapping) else 0
    part = f"[{entry!r}]" if isinstance(output, SEVERAL) else ".…"
    raise UserError(
        f"the model returned {in_words(output)}{which}, one tensor or something with logits is "
        f"needed: wrap it in a module whose forward returns self.model(x){part}, see "
        "docs/measures.md"
    )
