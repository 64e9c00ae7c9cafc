"""Which statistics BatchNorm normalises with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import UserError, unknown
from .batches import Batch, joined

MODES = {
    "eval": "dropout off, BatchNorm with its running statistics",
    "train": "BatchNorm with the statistics of each batch as it is split here; no dropout",
    "recomputed": "as eval, but with BatchNorm statistics recomputed on all of this data",
}

Pass = Callable[[Tensor], Tensor]


def require_mode(mode: Any) -> None:
    """Refuse what is not one of `MODES`."""
    if not isinstance(mode, str) or mode not in MODES:
        raise unknown("mode", str(mode), MODES)


def norms_of(model: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorm layers."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


@torch.no_grad()
def set_mode(model: nn.Module, mode: str, batches: Sequence[Batch], run: Pass) -> None:
    """Put our copy of a model into one of `MODES`; `run` calls it and words its errors."""
    model.train(mode == "train")
    norms = norms_of(model)
    if mode == "train":
        for norm in norms:  # batch statistics, and no running ones to write to
            norm.track_running_stats = False
            norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    elif mode == "recomputed" and norms:
        whole = joined(batches)
        if len(whole) == 1:
            for norm in norms:
                norm.train()
                norm.momentum = 1.0
            run(whole[0][0])
        else:
            _layer_by_layer(norms, [x for x, _ in whole], run)
        model.eval()


def _layer_by_layer(norms: Sequence[_BatchNorm], parts: Sequence[Tensor], run: Pass) -> None:
    """Set statistics from inputs that do not fit into one batch, one pass for each layer.

    A layer sees its final inputs only after the statistics of the layers before it are set. As in a
    single pass over all data, layers normalise by the biased variance meanwhile and store the
    unbiased one.
    """
    unbiased: list[tuple[Tensor, float]] = []
    for norm in _in_order(norms, parts[0], run):
        if norm.running_mean is None or norm.running_var is None:
            continue
        count, mean, spread = 0, torch.zeros(1), torch.zeros(1)
        for x in parts:
            for u in _inputs(norm, x, run):
                u = u.transpose(0, 1).flatten(1).double()
                rows, centre = u.shape[1], u.mean(1)
                step = centre - mean.to(centre)
                spread = spread.to(centre) + (u - centre[:, None]).square().sum(1)
                spread = spread + step.square() * (count * rows / (count + rows))
                mean = mean.to(centre) + step * (rows / (count + rows))
                count += rows
        if count < 2:
            raise UserError("BatchNorm statistics need more than one value for each channel")
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(spread / count)
        unbiased.append((norm.running_var, count / (count - 1)))
    for variance, factor in unbiased:
        variance.mul_(factor)


def _in_order(norms: Sequence[_BatchNorm], x: Tensor, run: Pass) -> list[Any]:
    """Return the layers in the order of their first use; unused ones are left out."""
    used: dict[nn.Module, None] = {}
    with hooked(norms, lambda module, given, out: used.setdefault(module)):
        run(x)
    return list(used)


def _inputs(norm: _BatchNorm, x: Tensor, run: Pass) -> list[Tensor]:
    seen: list[Tensor] = []
    with hooked([norm], lambda module, given, out: seen.append(given[0])):
        run(x)
    return seen


@contextlib.contextmanager
def hooked(modules: Iterable[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    """Call `hook(module, inputs, output)` after every forward pass of the modules."""
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
