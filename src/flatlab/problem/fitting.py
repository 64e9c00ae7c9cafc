"""Refusals of what clearly does not fit into memory, before it is made.

Each needs at least what is counted here, and usually more. Tensors on other devices do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ..outside.memory import require_memory, saved_per_example
from .batches import Batch

# A whole matrix is summed, made symmetric and decomposed: three times its float64 entries.
DENSE_BYTES = 3 * 8
FEWER = "measure fewer parameters with params="


def require_copy(model: Any, dtype: str | None) -> None:
    """Refuse a model whose copy and one vector of its parameters do not fit."""
    if not isinstance(model, nn.Module):
        return
    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else None
    parts = [part for part in (*model.parameters(), *model.buffers()) if not is_lazy(part)]
    sizes = [
        part.numel() * (kind.itemsize if kind and part.is_floating_point() else part.itemsize)
        for part in parts
        if part.device.type == "cpu"
    ]
    count, raised = sum(part.numel() for part in parts), f" in {dtype}" if kind else ""
    remedy = "leave dtype out, or measure" if kind == torch.float64 else "measure"
    require_memory(
        2 * sum(sizes),
        f"a copy of the model{raised}, {count:.3g} numbers, and one vector of its parameters",
        f"{remedy} a smaller model, or on a machine with more memory",
    )


def require_data(batches: Sequence[Batch], dtype: torch.dtype) -> None:
    """Refuse data whose copy in the dtype of the model does not fit."""
    parts = [part for batch in batches for part in batch]
    changed = [part for part in parts if part.is_floating_point() and part.dtype != dtype]
    require_memory(
        sum(part.numel() for part in changed) * dtype.itemsize,
        f"a copy of the data in {str(dtype).removeprefix('torch.')}",
        "give fewer examples",
    )


class Activations:
    """What a pass with gradients saves for each example of the largest batch, in bytes."""

    def __init__(self, batches: Sequence[Batch], run: Callable[[Batch], Any]):
        x, y = max(batches, key=lambda batch: len(batch[0]))
        self.examples, self.each = len(x), 0.0
        if self.examples > 4 and x.device.type == "cpu":
            # A pass that fails is refused by the checks of the problem, which say why.
            self.each = saved_per_example(lambda count: run((x[:count], y[:count]))) or 0.0

    def require(self, what: str, times: float = 1.0) -> None:
        """Refuse a batch of which `times` as much as a pass saves does not fit."""
        require_memory(
            int(times * self.each * self.examples),
            f"{what} of {self.examples} examples ({self.each / 2**20:.3g} MiB of activations each)",
            "give fewer examples or a smaller batch_size",
        )


def require_dense(size: int) -> None:
    """Refuse a whole matrix that does not fit."""
    what = f"a whole matrix of {size:,} by {size:,} numbers"
    require_memory(DENSE_BYTES * size**2, what, f"choose another method, or {FEWER}")
