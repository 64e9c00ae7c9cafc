"""A complete xor training set: every quadrant holds the same points of the other coordinates."""

from __future__ import annotations

import numpy as np

from ..errors import FlatlabError, UserError, whole_number
from ..randomness import generator
from . import _checks as check
from ._sampling import Examples, assemble
from .cube import cube, distinct_signs, signs
from .dataset import Array, Dataset, Plain

TRIES = 100
"""Draws of S before giving up. With the fewest points, s = d − 1, one draw spans with frequency at
least 0.59 (2,000 draws for each d from 3 to 31; the smallest is at d = 8)."""


def complete(d: int, s: int, seed: int = 0, n_test: int = 10_000) -> Dataset:
    """Every (x1, x2) in {±1}² with every point of a set S in {±1}^{d−2}, y = x1·x2.

    The training inputs are {±1}² × S with |S| = s, so n = 4s; S is drawn uniformly among the sets
    of s distinct points whose differences have rank d − 2. Test inputs are uniform on {±1}^d.

    Args:
        d: Dimension, at least 3.
        s: Number of points of S, from d − 1 to 2^{d−2}.
        seed: Seed of the draw.
        n_test: Number of test examples, drawn independently.
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

    def test(rng: np.random.Generator, count: int) -> Examples:
        return _labelled(signs(rng, count, d))

    return assemble("complete", arguments, _labelled(x), test, relevant=(0, 1))


def _labelled(x: Array) -> Examples:
    return x, x[:, 0] * x[:, 1]


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
