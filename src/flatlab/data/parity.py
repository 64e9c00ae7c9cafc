"""Parities on the cube: the label is the product of the first k coordinates."""

from __future__ import annotations

import numpy as np

from ..errors import UserError, whole_number
from ..randomness import generator
from . import _checks as check
from ._sampling import Examples, assemble, common
from .cube import MAX_DIMENSION, cube, distinct_signs, signs
from .dataset import Array, Dataset, Plain


def parity(
    d: int,
    n: int,
    k: int,
    seed: int = 0,
    n_test: int = 10_000,
    distinct: bool = False,
    exact_test: bool = False,
) -> Dataset:
    """Uniform on the cube {±1}^d, y = x1·x2⋯xk.

    Args:
        d: Dimension, at least k.
        n: Number of training examples.
        k: How many coordinates the label multiplies, at least 1.
        seed: Seed of the draw.
        n_test: Number of test examples, drawn independently.
        distinct: Draw the training inputs uniformly without replacement.
        exact_test: Use the whole cube as the test set, so that an average over it is the exact
            population value; needs d ≤ 20.
    """
    k = whole_number("k", k, 1)
    arguments = common(d, n, seed, n_test, d_min=1)
    if k > d:
        raise UserError(f"k must be <= d, got k={k}, d={d}")
    return parity_on_cube("parity", k, {**arguments, "k": k}, distinct, exact_test)


def parity_on_cube(
    name: str, k: int, arguments: dict[str, Plain], distinct: object, exact_test: object
) -> Dataset:
    """Make the parity data set called `name` from checked d, n, seed and n_test."""
    d, n, seed = (int(arguments[key]) for key in ("d", "n", "seed"))
    distinct, exact_test = check.flag("distinct", distinct), check.flag("exact_test", exact_test)
    arguments = {**arguments, "distinct": distinct, "exact_test": exact_test}
    if distinct:
        check.distinct("n", n, "d", d)
    if exact_test and d > MAX_DIMENSION:
        raise UserError(f"exact_test needs d <= {MAX_DIMENSION} to enumerate 2^d points, got d={d}")
    check.size("n", n, d)

    def label(x: Array) -> Examples:
        return x, np.prod(x[:, :k], axis=1)

    def test(rng: np.random.Generator, n_test: int) -> Examples:
        return label(cube(d) if exact_test else signs(rng, n_test, d))

    draw = distinct_signs if distinct else signs
    train = label(draw(generator(seed, f"data/{name}/train"), n, d))
    return assemble(name, arguments, train, test, relevant=tuple(range(k)))
