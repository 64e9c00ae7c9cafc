"""What a user calls data, as a list of checked batches (x, y)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset
from ..errors import UserError

Batch = tuple[Tensor, Tensor]
ACCEPTED = "a pair of tensors (x, y), a flatlab Dataset or a DataLoader of such pairs"


def batches_of(data: Any, batch_size: int | None) -> list[Batch]:
    """Return the batches, in order; a pair or a Dataset is cut into pieces of `batch_size`.

    A loader keeps its own batches. It is read twice, to see that both passes give the same
    examples in whatever order: with random augmentation there is no one function to measure.
    """
    if isinstance(data, Dataset):
        data = (torch.tensor(data.x_train), torch.tensor(data.y_train))
    if _is_pair(data):
        return _cut(_batch(data), batch_size)
    if isinstance(data, Tensor | str | bytes) or not isinstance(data, Iterable):
        raise UserError(f"data must be {ACCEPTED}, got {type(data).__name__}")
    if batch_size is not None:
        raise UserError("batch_size is for a pair or a Dataset: a loader has its own batches")
    found = _read(data)
    if not found:
        raise UserError("data is empty: there is nothing to measure")
    if iter(data) is not data and not torch.allclose(_moments(found), _moments(_read(data))):
        raise UserError(
            "the loader gives other examples on a second pass (random augmentation, or shuffle "
            "with drop_last): measure on a fixed sample, e.g. list(loader)"
        )
    return found


def _read(loader: Iterable[Any]) -> list[Batch]:
    return [batch for batch in map(_batch, loader) if len(batch[0])]


def _moments(batches: list[Batch]) -> Tensor:
    """Return sums over all examples that do not depend on their order."""
    parts = [(x.double(), y.double()) for x, y in batches]
    terms = [(x.sum(), x.square().sum(), y.sum(), y.square().sum()) for x, y in parts]
    return torch.stack([torch.stack(term) for term in terms]).sum(0)


def _is_pair(data: Any) -> bool:
    return isinstance(data, list | tuple) and len(data) == 2 and not _nested(data[0])


def _nested(item: Any) -> bool:
    return isinstance(item, list | tuple) and any(hasattr(part, "shape") for part in item)


def _batch(item: Any) -> Batch:
    if not isinstance(item, list | tuple) or len(item) != 2:
        raise UserError(f"a batch must be a pair (x, y), got {type(item).__name__}")
    try:
        x, y = (torch.as_tensor(part) for part in item)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"data must be {ACCEPTED}; a part of it is not an array") from None
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise UserError(
            f"x and y need one row for each example, got shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)}"
        )
    for name, part in (("x", x), ("y", y)):
        if part.is_floating_point() and not bool(torch.isfinite(part).all()):
            raise UserError(f"{name} holds NaN or infinity: clean the data first")
    return x, y


def _cut(batch: Batch, batch_size: int | None) -> list[Batch]:
    x, y = batch
    if not len(x):
        raise UserError("data is empty: there is nothing to measure")
    if batch_size is not None and batch_size < 1:
        raise UserError(f"batch_size must be >= 1, got {batch_size}")
    size = batch_size or len(x)
    return list(zip(torch.split(x, size), torch.split(y, size), strict=True))
