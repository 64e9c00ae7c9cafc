"""Uniform points on a sphere, with a target chosen by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import _checks as check
from ._sampling import Examples, common, directions, independent
from .dataset import Array, Dataset

SPHERE_TARGETS: dict[str, tuple[Callable[[Array], Array], tuple[int, ...]]] = {
    "abs_difference": (lambda x: np.abs(x[:, 0]) - np.abs(x[:, 1]), (0, 1)),  # |x1| − |x2|
    "sign_product": (lambda x: np.sign(x[:, 0]) * np.sign(x[:, 1]), (0, 1)),  # sign(x1·x2)
    "linear": (lambda x: x[:, 0], (0,)),  # x1
}
"""Name → (target, the coordinates it uses)."""


def sphere(
    d: int, n: int, seed: int = 0, target: str = "abs_difference", n_test: int = 10_000
) -> Dataset:
    """Uniform on the sphere of radius √d, y a target of the first coordinates.

    The covariance is the identity.

    Args:
        d: Dimension; at least 2, or 1 for "linear".
        n: Number of training examples.
        seed: Seed of the draw.
        target: "abs_difference" |x1| − |x2|, "sign_product" sign(x1·x2) or "linear" x1.
        n_test: Number of test examples, drawn independently.
    """
    function, relevant = SPHERE_TARGETS[check.choice("target", target, SPHERE_TARGETS)]
    arguments = {**common(d, n, seed, n_test, d_min=len(relevant)), "target": target}
    d = int(arguments["d"])

    def sample(rng: np.random.Generator, count: int) -> Examples:
        x = np.sqrt(d) * directions(rng, count, d)
        return x, function(x)

    return independent("sphere", arguments, sample, relevant)
