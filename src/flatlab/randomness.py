"""Counter-based randomness: every draw is a pure function of (seed, purpose, index).

Nothing in flatlab keeps a generator alive between calls, so nothing has generator state to save:
a run that is resumed asks for the same (seed, purpose, epoch) and gets the same numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from .errors import whole_number


def key(seed: int, purpose: str) -> int:
    """Return the 128-bit Philox key of a stream.

    The purpose is part of the key, so the sample order of seed 0 is independent of its initial
    weights, its data and its label noise.
    """
    name = f"flatlab:{purpose}:{whole_number('seed', seed)}"
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def generator(seed: int, purpose: str, index: int = 0) -> np.random.Generator:
    """Return a fresh generator for one use.

    >>> bool(generator(0, "data").integers(100) == generator(0, "data").integers(100))
    True
    >>> a, b = generator(0, "data"), generator(0, "data", index=1)
    >>> bool(a.integers(2**63) == b.integers(2**63))
    False
    """
    # The index takes the top counter word, so streams of one key cannot overlap.
    return np.random.Generator(np.random.Philox(key=key(seed, purpose), counter=[0, 0, 0, index]))


def torch_seed(seed: int, purpose: str, index: int = 0) -> int:
    """Return a seed for torch's generators, by (seed, purpose, index) as everything here.

    >>> torch_seed(0, "dropout", 3) == torch_seed(0, "dropout", 3)
    True
    """
    name = f"flatlab:{purpose}:{whole_number('seed', seed)}:{index}"
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextlib.contextmanager
def torch_seeded(seed: int, purpose: str) -> Iterator[None]:
    """Seed torch's global generator inside the block, and put its state back afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(seed, purpose))
        yield


@contextlib.contextmanager
def global_states_kept() -> Iterator[None]:
    """Restore numpy's and Python's global random states on exit."""
    bits: Any = np.random.get_bit_generator()  # type: ignore[attr-defined]
    python = random.getstate()
    before = bits.state
    try:
        yield
    finally:
        bits.state = before
        random.setstate(python)
