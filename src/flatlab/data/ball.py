"""Uniform points in a ball, with a label that bends along two coordinates."""

from __future__ import annotations

import numpy as np

from ._sampling import Examples, common, directions, independent
from .dataset import Dataset


def ball(d: int = 10, n: int = 100, seed: int = 0, n_test: int = 10_000) -> Dataset:
    """Uniform in the ball of radius √d, y = |x1| − |x2|.

    The covariance is d/(d+2)·I, a little less than the identity.

    Args:
        d: Dimension, at least 2.
        n: Number of training examples.
        seed: Seed of the draw.
        n_test: Number of test examples, drawn independently.
    """
    arguments = common(d, n, seed, n_test, d_min=2)
    d = int(arguments["d"])

    def sample(rng: np.random.Generator, count: int) -> Examples:
        # ‖x‖/√d has distribution function r^d, so it is U^{1/d}.
        radius = np.sqrt(d) * rng.random((count, 1)) ** (1 / d)
        x = radius * directions(rng, count, d)
        return x, np.abs(x[:, 0]) - np.abs(x[:, 1])

    return independent("ball", arguments, sample, relevant=(0, 1))
