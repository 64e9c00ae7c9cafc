"""Arrays with room behind them: loops over them take the same path wherever they lie in memory.

LLVM leaves a vectorised loop for one that goes number by number where what it writes begins less
than a round (up to four vectors of 64 bytes) behind what it reads. Short arrays that the allocator
puts side by side are that near, in one process and not in the next. A loop that writes and sums
then sums in another order, and the last bits of a run change.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .layout import Array

GAP = 64  # numbers, of four bytes at least


@njit(cache=True, inline="always")
def room(rows, columns, like):
    """Return zeros of this shape, in the dtype of `like`, with room behind them."""
    size = rows * columns
    return np.zeros(size + GAP, like.dtype)[:size].reshape((rows, columns))


def with_room(array: Array) -> Array:
    """Return a copy of an array with room behind it."""
    made = np.zeros(array.size + GAP, array.dtype)[: array.size].reshape(array.shape)
    made[...] = array
    return made
