"""Common parts of the experiments on xor: networks with and without bias, runs, and lists."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...data import Dataset
from ...models import TwoLayer
from ...theory import bias_floor, no_bias_floor
from ...training.schedule import LogGrid
from ..arms import trained_on

# Fewer points than usual: at n_test = 10,000 measuring would take longer than training.
on_xor = functools.partial(trained_on, "xor", log=LogGrid(per_decade=5, regular=20))


def network(s: Any, bias: bool) -> TwoLayer:
    """Return the two-layer ReLU network of the settings' width."""
    return TwoLayer(width=s.width, bias=bias)


def floor(bias: bool) -> Callable[[Dataset], float]:
    """Return the floor of the trace with or without bias."""
    return bias_floor if bias else no_bias_floor


def listed(words: Sequence[str]) -> str:
    """Write words as a list.

    >>> listed(["a", "b", "c"]), listed(["a"]), listed([])
    ('a, b and c', 'a', 'none')
    """
    if len(words) < 2:
        return words[0] if words else "none"
    return f"{', '.join(words[:-1])} and {words[-1]}"
