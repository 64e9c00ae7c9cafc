"""The user's data in any accepted form → a list of checked batches (x, y)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, default_collate

from ..data import Dataset
from ..errors import FAILURES, FlatlabError, UserError, in_words, whole_number
from ..outside.memory import require_memory
from ..randomness import generator, global_states_kept
from .losses import first_line

Batch = tuple[Tensor, Tensor]
ACCEPTED = "a pair of tensors (x, y), a flatlab or torch Dataset, or a DataLoader of such pairs"
EMPTY = "data is empty: there is nothing to measure. Give at least one example"

# Names of labels in a batch that is a dict.
LABELS = ("y", "label", "labels", "target", "targets")
# A loader without a length that gives more batches is taken as endless.
MOST_BATCHES = 100_000
FEWER = "measure on fewer examples, e.g. a torch.utils.data.Subset"
# Number of examples of a torch Dataset that are stacked at a time.
STACKED = 1024
# Difference of two passes over the data, relative to the sum of absolute values: rounding of sums
# is far below, one changed example of a million above.
TOLERANCE = 1e-7


def batches_of(data: Any, batch_size: int | None) -> list[Batch]:
    """Return the batches, in order; a pair or a Dataset is split into pieces of `batch_size`.

    A loader keeps its own batches. Loaders and torch Datasets are read twice, to check that both
    passes give the same examples in some order: with random augmentation there is no fixed function
    to measure.
    """
    size = None if batch_size is None else whole_number("batch_size", batch_size, least=1)
    if isinstance(data, Dataset):
        data = (torch.tensor(data.x_train), torch.tensor(data.y_train))
    if isinstance(data, Mapping):
        data = _pair_of(data)
    if _is_pair(data):
        return cut(_batch(data), size)
    listed = _is_map(data)
    bare = isinstance(data, list | tuple) and bool(data) and isinstance(data[0], Tensor)
    wrong = bare or isinstance(data, Tensor | str | bytes)
    if wrong or not (listed or isinstance(data, Iterable)):
        raise UserError(f"data must be {ACCEPTED}, got {in_words(data)}")
    if size is not None and not listed:
        raise UserError("batch_size is for a pair or a Dataset: a loader has its own batches")
    read = _stacked if listed else _read
    with _undisturbed(data):
        found = read(data)
        if not found:
            raise UserError(EMPTY)
        again = found if not listed and iter(data) is data else read(data)
    if again is not found and not _same_examples(found, again):
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


def drawn(batches: Sequence[Batch], count: int, seed: int, purpose: str) -> list[Batch]:
    """Return `count` random examples, or all if there are fewer, in their order and joined."""
    n = sum(len(x) for x, _ in batches)
    rows = generator(seed, purpose).choice(n, min(count, n), replace=False)
    return joined(chosen(batches, rows))


def joined(batches: Sequence[Batch]) -> list[Batch]:
    """Join neighbouring batches whose examples have the same shapes and dtypes."""

    def form(batch: Batch) -> list[Any]:
        return [(part.shape[1:], part.dtype) for part in batch]

    found = []
    for _, group in itertools.groupby(batches, form):
        xs, ys = zip(*group, strict=True)
        found.append((torch.cat(xs), torch.cat(ys)) if len(xs) > 1 else (xs[0], ys[0]))
    return found


def _read(loader: Iterable[Any]) -> list[Batch]:
    """Return the batches of a loader; one without an end is refused."""
    found, held, looked_at = [], 0, 1
    with _blamed(loader):
        for number, batch in enumerate(map(_batch, loader), 1):
            held += _bytes(batch)
            if number == looked_at:  # at 1, 2, 4, … batches: looking takes longer than reading
                looked_at *= 2
                require_memory(held, f"{number:,} batches of the data, read so far,", FEWER)
            if number > MOST_BATCHES and not _has_length(loader):
                raise UserError(
                    f"the data ({in_words(loader)}) have no length and did not end after "
                    f"{MOST_BATCHES:,} batches: measure on a part of them, e.g. "
                    "list(itertools.islice(loader, 100)), or give them a length"
                )
            if len(batch[0]):
                found.append(batch)
    return found


def _has_length(loader: Any) -> bool:
    try:
        return len(loader) >= 0
    except TypeError:
        return False


def _bytes(batch: Batch) -> int:
    return sum(part.numel() * part.itemsize for part in batch)


def _stacked(dataset: Any) -> list[Batch]:
    """Return the examples of a map-style dataset in stacks."""
    with _blamed(dataset):
        n = len(dataset)
    found = []
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
        if start == 0:
            needed = _bytes(found[0]) * n // len(examples)
            require_memory(needed, f"{type(dataset).__name__} of {n:,} examples", FEWER)
    stacks = joined(found)
    if len(stacks) > 1:
        raise UserError(
            f"the examples of {type(dataset).__name__} have different shapes: pass a DataLoader "
            "whose collate_fn makes batches (x, y)"
        )
    return stacks


def _pair_of(batch: Mapping[Any, Any]) -> tuple[Any, Any]:
    """Return (x, y) of a dict with two entries, one of them named as labels are."""
    labels = [name for name in batch if name in LABELS]
    others = [name for name in batch if name not in LABELS]
    if len(labels) != 1 or len(others) != 1:
        raise UserError(
            f"data must be pairs (x, y), or dicts of one input and one of {', '.join(LABELS)}, "
            f"got {type(batch).__name__} with {', '.join(map(str, batch))}: join several inputs in "
            "one tensor and take them apart in a module, see docs/measures.md"
        )
    return batch[others[0]], batch[labels[0]]


@contextlib.contextmanager
def _undisturbed(loader: Any) -> Iterator[None]:
    """Restore the global random states and the loader's generators after the block.

    Inside the block, the loader and its samplers draw from clones of their generators.
    """
    sampler, batches = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    holders = [loader, sampler, batches, getattr(batches, "sampler", None)]
    owned = [(each, getattr(each, "generator", None)) for each in holders]
    before = [(each, own) for each, own in owned if isinstance(own, torch.Generator)]
    clones = {id(own): own.clone_state() for _, own in before}
    try:
        for each, own in before:
            each.generator = clones[id(own)]
        with torch.random.fork_rng(devices=[]), global_states_kept():
            yield
    finally:
        for each, own in before:
            each.generator = own


def _same_examples(first: Sequence[Batch], second: Sequence[Batch]) -> bool:
    """Return whether two passes give the same pairs (x_i, y_i), in any order.

    Each example becomes one number s_i = Σ_p w_p x_ip with a fixed random weight for each position
    p, so flipping or permuting an example changes it. Its label becomes a number t_i in the same
    way. Sums of s, t, their squares and their product over all examples do not depend on the order.
    """
    ours, theirs = (torch.cat([_moments(*batch) for batch in each], 1) for each in (first, second))
    if ours.shape != theirs.shape:
        return False
    apart = (ours.sum(1) - theirs.sum(1)).abs()
    return bool((apart <= TOLERANCE * ours.abs().sum(1)).all())


def _moments(x: Tensor, y: Tensor) -> Tensor:
    s, t = _projected(x, "x"), _projected(y, "y")
    return torch.stack([s, s * s, t, t * t, s * t])


def _projected(part: Tensor, name: str) -> Tensor:
    """Return s or t, one number for each example, in float64."""
    part = torch.view_as_real(part) if part.is_complex() else part
    flat = part.reshape(len(part), -1).to("cpu", torch.float64)
    weights = generator(0, f"fingerprint of {name}").normal(size=flat.shape[1])
    return flat @ torch.as_tensor(weights)


@contextlib.contextmanager
def _blamed(data: Any) -> Iterator[None]:
    """Turn an error raised by the user's own dataset into one that names the dataset."""
    try:
        yield
    except FlatlabError:
        raise
    except FAILURES as error:
        raise UserError(f"the data ({in_words(data)}) failed: {first_line(error)}") from error


def _is_map(data: Any) -> bool:
    """Return whether it is a dataset of single examples: indexed, and of known length."""
    if isinstance(data, TorchDataset):
        return not isinstance(data, IterableDataset) and hasattr(data, "__len__")
    plain = isinstance(data, Tensor | str | bytes | list | tuple | dict)
    numbered = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    return numbered and not plain and not isinstance(data, Iterable)


def _is_pair(data: Any) -> bool:
    """Return whether it is (x, y), not two batches."""
    if not isinstance(data, list | tuple) or len(data) != 2 or isinstance(data[0], Mapping):
        return False
    listed = isinstance(data[0], list | tuple)
    return not (listed and any(hasattr(part, "shape") for part in data[0]))


def _tensor(part: Any) -> Tensor:
    if hasattr(part, "__array__") and not isinstance(part, Tensor):  # of numpy, or a table
        part = np.require(part, requirements="W")  # torch warns of what is read-only
    return torch.as_tensor(part)


def _batch(item: Any) -> Batch:
    if isinstance(item, Mapping):
        item = _pair_of(item)
    if not isinstance(item, list | tuple) or len(item) != 2:
        raise UserError(
            f"a batch must be a pair (x, y), got {in_words(item)}: a model with several inputs is "
            "measured through a module that takes them as one tensor, see docs/measures.md"
        )
    try:
        x, y = map(_tensor, item)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"data must be {ACCEPTED}; a part of it is not an array") from None
    for name, part in (("x", x), ("y", y)):
        if part.is_nested:
            raise UserError(f"{name} is a nested tensor: pad it to one shape, or pass a DataLoader")
        if part.is_meta:
            raise UserError(f"{name} is on the meta device and has no values: load them first")
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
