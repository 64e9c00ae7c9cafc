"""Boolean xor of the first two of d coordinates."""

from __future__ import annotations

from ._sampling import common
from .dataset import Dataset
from .parity import parity_on_cube


def xor(
    d: int = 30,
    n: int = 100,
    seed: int = 0,
    n_test: int = 10_000,
    distinct: bool = False,
    exact_test: bool = False,
) -> Dataset:
    """Uniform on the cube {±1}^d, y = x1·x2.

    Args:
        d: Dimension, at least 2.
        n: Number of training examples.
        seed: Seed of the draw.
        n_test: Number of test examples, drawn independently.
        distinct: Draw the training inputs uniformly without replacement.
        exact_test: Use the whole cube as the test set, so that an average over it is the exact
            population value; needs d ≤ 20.

    >>> data = xor(d=3, n=8, distinct=True, exact_test=True)
    >>> bool((data.y_train == data.x_train[:, 0] * data.x_train[:, 1]).all()), len(data.x_test)
    (True, 8)
    """
    return parity_on_cube("xor", 2, common(d, n, seed, n_test, d_min=2), distinct, exact_test)
