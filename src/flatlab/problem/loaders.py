"""Reading a loader without changing any random state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from ..randomness import global_states_kept


@contextlib.contextmanager
def undisturbed(loader: Any) -> Iterator[None]:
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
