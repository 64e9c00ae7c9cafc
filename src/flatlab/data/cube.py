"""The cube {±1}^d: enumerated, sampled, and sampled without replacement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, whole_number
from .dataset import Array

MAX_DIMENSION = 20
"""Largest d whose cube is enumerated: 2^20 points are 168 MB of float64."""


def cube(d: int) -> Array:
    """Enumerate {±1}^d, shape (2^d, d): coordinate j of point i is 1 − 2·(bit j of i).

    >>> cube(2)
    array([[ 1.,  1.],
           [-1.,  1.],
           [ 1., -1.],
           [-1., -1.]])
    """
    if whole_number("d", d, 1) > MAX_DIMENSION:
        raise UserError(f"d must be <= {MAX_DIMENSION} to enumerate the 2^d points, got {d}")
    return _points(np.arange(2**d), d)


def signs(rng: np.random.Generator, n: int, d: int) -> Array:
    """Draw n points of {±1}^d independently and uniformly."""
    bits = rng.integers(0, 2, size=(n, d), dtype=np.int8)
    return 1 - 2 * bits.astype(np.float64)


def distinct_signs(rng: np.random.Generator, n: int, d: int) -> Array:
    """Draw n ≤ 2^d distinct points of {±1}^d, uniformly without replacement."""
    if d <= 62:  # the point's number fits an int64
        return _points(rng.choice(2**d, size=n, replace=False), d)
    # Independent points, conditioned on being distinct, are uniform without replacement. For d > 62
    # and any n that fits in memory a repetition has probability below n²/2^64.
    while True:
        points = signs(rng, n, d)
        if len(np.unique(np.packbits(points > 0, axis=1), axis=0)) == n:
            return points


def _points(numbers: NDArray[np.int64], d: int) -> Array:
    points = np.empty((len(numbers), d))
    for j in range(d):
        points[:, j] = 1 - 2 * ((numbers >> j) & 1)
    return points
