"""Arrays with room behind them, so that the bits of a loop do not depend on their addresses.

LLVM replaces a vectorised loop by a scalar one if the array written begins less than a round (up to
four vectors of 64 bytes) behind the array read. The allocator may put short arrays that close
together, in one process and not in the next. A loop that writes and sums then sums in another
order, and the last bits of a run change.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .layout import Array

GAP = 64  # numbers of at least four bytes


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
