"""Gaussian clusters, two apart or four in the pattern of xor."""

from __future__ import annotations

import numpy as np

from ..errors import UserError, whole_number
from . import _checks as check
from ._sampling import Examples, common, independent
from .dataset import Dataset


def gaussian_mixture(
    d: int,
    n: int,
    seed: int = 0,
    separation: float = 3.0,
    clusters: int = 4,
    n_test: int = 10_000,
) -> Dataset:
    """Gaussian clusters N(c, I) around corners c, y the sign of the corner's parity.

    With a, b independent uniform signs and z ~ N(0, I_d):

        clusters=4:  x = separation·(a e1 + b e2) + z,  y = a·b
        clusters=2:  x = separation·a e1 + z,           y = a

    The label belongs to the cluster, so it is not a function of x. The best classifiers are
    sign(x1·x2) and sign(x1); with p = Φ(−separation) they err with probability 2p(1−p) and p.

    Args:
        d: Dimension; at least 2, or 1 for two clusters.
        n: Number of training examples.
        seed: Seed of the draw.
        separation: Distance of a centre from the coordinate hyperplanes, > 0.
        clusters: 2 or 4.
        n_test: Number of test examples, drawn independently.
    """
    if whole_number("clusters", clusters, 1) not in (2, 4):
        raise UserError(f"clusters must be 2 or 4, got {clusters}")
    axes = 2 if clusters == 4 else 1
    separation = check.real("separation", separation, above=0)
    arguments = common(d, n, seed, n_test, d_min=axes)
    d = int(arguments["d"])
    arguments |= {"separation": separation, "clusters": int(clusters)}

    def sample(rng: np.random.Generator, count: int) -> Examples:
        corner = 1.0 - 2.0 * rng.integers(0, 2, size=(count, axes))
        x = rng.normal(size=(count, d))
        x[:, :axes] += separation * corner
        return x, np.prod(corner, axis=1)

    return independent("gaussian_mixture", arguments, sample, relevant=tuple(range(axes)))
