"""The cube {±1}^d: enumerated, sampled with and without replacement, and the data sets on it.

The data sets take the seed of the draw and the number n_test of test examples, which are drawn
independently.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import FlatlabError, UserError, whole_number
from ..randomness import generator
from ..specs import Plain
from . import _checks as check
from ._sampling import Labelled, assemble, common
from .dataset import Array, Dataset

MAX_DIMENSION = 20
"""Largest d whose cube is enumerated: 2^20 points are 168 MB of float64."""

TRIES = 100
"""Draws of S before giving up. With the fewest points, s = d − 1, one draw spans with frequency at
least 0.59 (2,000 draws for each d from 3 to 31; the smallest is at d = 8)."""


def cube(d: int) -> Array:
    """Enumerate {±1}^d, shape (2^d, d): coordinate j of point i is 1 − 2·(bit j of i).

    >>> cube(2)
    array([[ 1.,  1.],
           [-1.,  1.],
           [ 1., -1.],
           [-1., -1.]])
    """
    d = whole_number("d", d, 1)
    if d > MAX_DIMENSION:
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


def xor(
    d: int = 30,
    n: int = 100,
    seed: int = 0,
    n_test: int = 10_000,
    distinct: bool = False,
    exact_test: bool = False,
) -> Dataset:
    """Uniform on the cube {±1}^d, y = x1·x2.

    `distinct` and `exact_test` are as for `parity`.

    >>> data = xor(d=3, n=8, distinct=True, exact_test=True)
    >>> bool((data.y_train == data.x_train[:, 0] * data.x_train[:, 1]).all()), len(data.x_test)
    (True, 8)
    """
    return _parity("xor", 2, common(d, n, seed, n_test, d_min=2), distinct, exact_test)


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
    return _parity("parity", k, {**arguments, "k": k}, distinct, exact_test)


def _parity(
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

    def test(rng: np.random.Generator, n_test: int) -> Labelled:
        return _labelled(cube(d) if exact_test else signs(rng, n_test, d), k)

    draw = distinct_signs if distinct else signs
    train = _labelled(draw(generator(seed, f"data/{name}/train"), n, d), k)
    return assemble(name, arguments, train, test, relevant=tuple(range(k)))


def complete(d: int, s: int, seed: int = 0, n_test: int = 10_000) -> Dataset:
    """Every (x1, x2) in {±1}² with every point of a set S in {±1}^{d−2}, y = x1·x2.

    The training inputs are {±1}² × S with |S| = s, so n = 4s; S is drawn uniformly among the sets
    of s distinct points whose differences have rank d − 2. So d is at least 3, and s is from d − 1
    to 2^{d−2}. Test inputs are uniform on {±1}^d.
    """
    d, s = whole_number("d", d, 3), whole_number("s", s, 1)
    seed, n_test = whole_number("seed", seed, 0), whole_number("n_test", n_test, 0)
    arguments: dict[str, Plain] = {"d": d, "s": s, "seed": seed, "n_test": n_test}
    if s < d - 1:
        raise UserError(
            f"s must be >= d-1 = {d - 1} (the differences of s points have rank at most s-1, "
            f"and rank d-2 is needed), got s={s}"
        )
    check.distinct("s", s, "(d-2)", d - 2)
    check.size("4 * s", 4 * s, d)
    points = _spanning_points(seed, s, d - 2)
    x = np.hstack([np.tile(cube(2), (s, 1)), np.repeat(points, 4, axis=0)])

    def test(rng: np.random.Generator, count: int) -> Labelled:
        return _labelled(signs(rng, count, d), 2)

    return assemble("complete", arguments, _labelled(x, 2), test, relevant=(0, 1))


def _labelled(x: Array, k: int) -> Labelled:
    return x, np.prod(x[:, :k], axis=1)


def _spanning_points(seed: int, s: int, d: int) -> Array:
    for attempt in range(TRIES):
        points = distinct_signs(generator(seed, "data/complete/train", attempt), s, d)
        if _differences_span(points):
            return points
    raise FlatlabError(
        f"no set of s={s} points of {{±1}}^{d} with spanning differences in {TRIES} draws: "
        "raise s or change the seed"
    )


def _differences_span(points: Array) -> bool:
    # The differences to one point span all differences.
    return bool(np.linalg.matrix_rank(points[1:] - points[0]) == points.shape[1])
