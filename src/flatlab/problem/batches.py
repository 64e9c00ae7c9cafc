"""The user's data in any accepted form → a list of checked batches (x, y)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, default_collate

from ..data import Dataset
from ..errors import FlatlabError, UserError, in_words, whole_number
from ..randomness import generator
from .fingerprint import same_examples
from .loaders import undisturbed
from .losses import first_line

Batch = tuple[Tensor, Tensor]
ACCEPTED = (
    "a pair of tensors (x, y), a flatlab or torch Dataset, or a DataLoader of such pairs"
)  # fmt: skip

EMPTY = "data is empty: there is nothing to measure. Give at least one example"

# Number of examples of a torch Dataset that are stacked at a time.
STACKED = 1024


def batches_of(data: Any, batch_size: int | None) -> list[Batch]:
    """Return the batches, in order; a pair or a Dataset is split into pieces of `batch_size`.

    A loader keeps its own batches. Loaders and torch Datasets are read twice, to check that both
    passes give the same examples in some order: with random augmentation there is no fixed function
    to measure.
    """
    size = None if batch_size is None else whole_number("batch_size", batch_size, least=1)
    if isinstance(data, Dataset):
        data = (torch.tensor(data.x_train), torch.tensor(data.y_train))
    if _is_pair(data):
        return cut(_batch(data), size)
    listed = _is_map(data)
    bare = isinstance(data, list | tuple) and bool(data) and isinstance(data[0], Tensor)
    wrong = bare or isinstance(data, Tensor | str | bytes | Mapping)
    if wrong or not (listed or isinstance(data, Iterable)):
        raise UserError(f"data must be {ACCEPTED}, got {in_words(data)}")
    if size is not None and not listed:
        raise UserError("batch_size is for a pair or a Dataset: a loader has its own batches")
    read = _stacked if listed else _read
    with undisturbed(data):
        found = read(data)
        if not found:
            raise UserError(EMPTY)
        again = found if not listed and iter(data) is data else read(data)
    if again is not found and not same_examples(found, again):
        raise UserError(
            f"the {'Dataset' if listed else 'loader'} gives other examples on a second pass "
            "(random augmentation, or shuffle with drop_last): measure on a fixed sample, e.g. "
            "list(loader)"
        )
    return cut(found[0], size) if listed else found


def cut(batch: Batch, size: int | None) -> list[Batch]:
    """Return a batch in pieces of `size`, or whole for None."""
    x, y = batch
    if not len(x):
        raise UserError(EMPTY)
    size = size or len(x)
    return list(zip(torch.split(x, size), torch.split(y, size), strict=True))


def chosen(batches: Sequence[Batch], rows: NDArray[np.int64]) -> list[Batch]:
    """Return the examples with these indices, counted over all batches, without empty batches."""
    ordered, found, start = np.sort(rows), [], 0
    for x, y in batches:
        low, high = np.searchsorted(ordered, [start, start + len(x)])
        if high > low:
            inside = torch.as_tensor(ordered[low:high] - start, device=x.device)
            found.append((x[inside], y[inside.to(y.device)]))
        start += len(x)
    return found


def drawn(batches: Sequence[Batch], count: int, seed: int, purpose: str, index: int = 0) -> (
    list[Batch]
):  # fmt: skip
    """Return `count` random examples of all the data in their order, or all if there are fewer."""
    n = sum(len(x) for x, _ in batches)
    rows = generator(seed, purpose, index).choice(n, min(count, n), replace=False)
    return chosen(batches, rows)


def joined(batches: Sequence[Batch], most: int | None) -> list[Batch]:
    """Join neighbouring batches of one example shape into batches of at most `most` rows."""
    groups: list[list[Batch]] = []
    for batch in batches:
        last = groups[-1] if groups else None
        fits = last is not None and all(
            old.shape[1:] == new.shape[1:] and old.dtype == new.dtype
            for old, new in zip(last[0], batch, strict=True)
        )
        if last is not None and fits:
            rows = sum(len(x) for x, _ in last) + len(batch[0])
            fits = most is None or rows <= most
        if last is not None and fits:
            last.append(batch)
        else:
            groups.append([batch])
    return [
        group[0] if len(group) == 1 else (torch.cat([x for x, _ in group]),
                                          torch.cat([y for _, y in group]))
        for group in groups
    ]  # fmt: skip


def _read(loader: Iterable[Any]) -> list[Batch]:
    with _blamed(loader):
        return [batch for batch in map(_batch, loader) if len(batch[0])]


def _stacked(dataset: Any) -> list[Batch]:
    """Return the examples of a map-style dataset in stacks."""
    n, found = len(dataset), []
    for start in range(0, n, STACKED):
        with _blamed(dataset):
            examples = [dataset[i] for i in range(start, min(start + STACKED, n))]
        try:
            found.append(_batch(default_collate(examples)))
        except (RuntimeError, TypeError, ValueError):
            raise UserError(
                f"the examples of {type(dataset).__name__} do not stack into (x, y): pass a "
                "DataLoader whose collate_fn makes such batches"
            ) from None
    stacks = joined(found, None)
    if len(stacks) > 1:
        raise UserError(
            f"the examples of {type(dataset).__name__} have different shapes: pass a DataLoader "
            "whose collate_fn makes batches (x, y)"
        )
    return stacks


@contextlib.contextmanager
def _blamed(data: Any) -> Iterator[None]:
    """Turn an error raised by the user's own dataset into one that names the dataset."""
    try:
        yield
    except FlatlabError:
        raise
    except Exception as error:
        raise UserError(f"the data ({in_words(data)}) failed: {first_line(error)}") from error


def _is_map(data: Any) -> bool:
    """Return whether it is a dataset of single examples: indexed, and of known length."""
    if isinstance(data, TorchDataset):
        return not isinstance(data, IterableDataset) and hasattr(data, "__len__")
    plain = isinstance(data, Tensor | str | bytes | list | tuple | dict)
    numbered = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    return numbered and not plain and not isinstance(data, Iterable)


def _is_pair(data: Any) -> bool:
    return isinstance(data, list | tuple) and len(data) == 2 and not _nested(data[0])


def _nested(item: Any) -> bool:
    return isinstance(item, list | tuple) and any(hasattr(part, "shape") for part in item)


def _batch(item: Any) -> Batch:
    if not isinstance(item, list | tuple) or len(item) != 2:
        raise UserError(
            f"a batch must be a pair (x, y), got {in_words(item)}: a model with several inputs is "
            "measured through a module that takes them as one tensor"
        )
    try:
        x, y = (torch.as_tensor(part) for part in item)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"data must be {ACCEPTED}; a part of it is not an array") from None
    for name, part in (("x", x), ("y", y)):
        if part.layout != torch.strided:
            raise UserError(f"{name} is {part.layout}: pass {name}.to_dense()")
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise UserError(
            f"x and y need one row for each example, got shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)}"
        )
    for name, part in (("x", x), ("y", y)):
        if part.is_floating_point() and not bool(torch.isfinite(part).all()):
            raise UserError(f"{name} holds NaN or infinity: clean the data first")
    return x, y
