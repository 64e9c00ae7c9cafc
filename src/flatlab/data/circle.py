"""A circle in the first two coordinates, with a Lipschitz function of the angle as target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import UserError
from . import _checks as check
from ._sampling import Examples, common, directions, independent
from .dataset import Array, Dataset

CIRCLE_TARGETS: dict[str, Callable[[Array], Array]] = {
    "cosine": lambda x: x[:, 0],  # cos θ, Lipschitz constant 1
    "triangle": lambda x: 1 - 2 / np.pi * np.abs(np.arctan2(x[:, 1], x[:, 0])),  # constant 2/π
}
"""Name → target, a function of θ = atan2(x2, x1) with values in [−1, 1]."""


def circle(
    n: int,
    seed: int = 0,
    target: str = "cosine",
    d: int = 2,
    R: float | None = None,
    n_test: int = 10_000,
) -> Dataset:
    """Uniform on the unit circle in (x1, x2), total norm R, y a Lipschitz function of the angle.

    x = (cos θ, sin θ, √(R² − 1)·u) with u uniform on the unit sphere of R^{d−2}.

    Args:
        n: Number of training examples.
        seed: Seed of the draw.
        target: "cosine" cos θ, or "triangle" 1 − 2|θ|/π for θ in (−π, π], the triangle wave.
        d: Dimension, at least 2.
        R: Norm of every input: 1 when d = 2, more than 1 otherwise. The default √(d/2) gives every
            coordinate the variance 1/2, like the first two.
        n_test: Number of test examples, drawn independently.
    """
    function = CIRCLE_TARGETS[check.choice("target", target, CIRCLE_TARGETS)]
    arguments = {**common(d, n, seed, n_test, d_min=2), "target": target}
    d = int(arguments["d"])
    radius = float(np.sqrt(d / 2)) if R is None else check.real("R", R, above=0)
    if d == 2 and radius != 1:
        raise UserError(f"R must be 1 when d=2 (there is only the unit circle), got R={radius:g}")
    if d > 2 and radius <= 1:
        raise UserError(
            f"R must be > 1 when d > 2 (the other coordinates have norm √(R²−1)), got R={radius:g}"
        )
    rest = np.sqrt(radius - 1) * np.sqrt(radius + 1)  # √(R² − 1), without overflow

    def sample(rng: np.random.Generator, count: int) -> Examples:
        theta = rng.uniform(-np.pi, np.pi, size=count)
        x = np.empty((count, d))
        x[:, 0], x[:, 1] = np.cos(theta), np.sin(theta)
        if d > 2:
            x[:, 2:] = rest * directions(rng, count, d - 2)
        return x, function(x)

    return independent("circle", {**arguments, "R": radius}, sample, relevant=(0, 1))
