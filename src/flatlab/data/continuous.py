"""Data sets drawn from continuous laws: in a ball, on a sphere, on a circle, around corners.

Each takes its dimension d, the number n of training examples, the seed of the draw and the number
n_test of test examples, which are drawn independently.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import UserError, whole_number
from ..randomness import generator
from ..specs import Plain
from . import _checks as check
from ._sampling import Labelled, Sampler, assemble, common
from .dataset import Array, Dataset

SPHERE_TARGETS: dict[str, tuple[Callable[[Array], Array], tuple[int, ...]]] = {
    "abs_difference": (lambda x: np.abs(x[:, 0]) - np.abs(x[:, 1]), (0, 1)),  # |x1| − |x2|
    "sign_product": (lambda x: np.sign(x[:, 0]) * np.sign(x[:, 1]), (0, 1)),  # sign(x1·x2)
    "linear": (lambda x: x[:, 0], (0,)),  # x1
}
"""Name → (target, the coordinates it uses)."""

CIRCLE_TARGETS: dict[str, Callable[[Array], Array]] = {
    "cosine": lambda x: x[:, 0],  # cos θ, Lipschitz constant 1
    "triangle": lambda x: 1 - 2 / np.pi * np.abs(np.arctan2(x[:, 1], x[:, 0])),  # constant 2/π
}
"""Name → target, a function of θ = atan2(x2, x1) with values in [−1, 1]."""


def ball(d: int = 10, n: int = 100, seed: int = 0, n_test: int = 10_000) -> Dataset:
    """Uniform in the ball of radius √d, y = |x1| − |x2|.

    The covariance is d/(d+2)·I, a little less than the identity. d is at least 2.
    """
    arguments = common(d, n, seed, n_test, d_min=2)
    d = int(arguments["d"])

    def sample(rng: np.random.Generator, count: int) -> Labelled:
        # ‖x‖/√d has distribution function r^d, so it is U^{1/d}.
        radius = np.sqrt(d) * rng.random((count, 1)) ** (1 / d)
        x = radius * _directions(rng, count, d)
        return x, np.abs(x[:, 0]) - np.abs(x[:, 1])

    return _independent("ball", arguments, sample, relevant=(0, 1))


def sphere(
    d: int, n: int, seed: int = 0, target: str = "abs_difference", n_test: int = 10_000
) -> Dataset:
    """Uniform on the sphere of radius √d, y a target of the first coordinates.

    The covariance is the identity. The target is "abs_difference" |x1| − |x2|, "sign_product"
    sign(x1·x2) or "linear" x1. d is at least 2, or 1 for "linear".
    """
    function, relevant = SPHERE_TARGETS[check.choice("target", target, SPHERE_TARGETS)]
    arguments = {**common(d, n, seed, n_test, d_min=len(relevant)), "target": target}
    d = int(arguments["d"])

    def sample(rng: np.random.Generator, count: int) -> Labelled:
        x = np.sqrt(d) * _directions(rng, count, d)
        return x, function(x)

    return _independent("sphere", arguments, sample, relevant)


def circle(
    n: int,
    seed: int = 0,
    target: str = "cosine",
    d: int = 2,
    R: float | None = None,
    n_test: int = 10_000,
) -> Dataset:
    """Uniform on the unit circle in (x1, x2), total norm R, y a Lipschitz function of the angle.

    x = (cos θ, sin θ, √(R² − 1)·u) with u uniform on the unit sphere of R^{d−2}. The target is
    "cosine" cos θ, or "triangle" 1 − 2|θ|/π for θ in (−π, π], the triangle wave. d is at least 2.
    The norm R is 1 when d = 2 and more than 1 otherwise; the default √(d/2) gives every coordinate
    the variance 1/2, like the first two.
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

    def sample(rng: np.random.Generator, count: int) -> Labelled:
        theta = rng.uniform(-np.pi, np.pi, size=count)
        x = np.empty((count, d))
        x[:, 0], x[:, 1] = np.cos(theta), np.sin(theta)
        if d > 2:
            x[:, 2:] = rest * _directions(rng, count, d - 2)
        return x, function(x)

    return _independent("circle", {**arguments, "R": radius}, sample, relevant=(0, 1))


def gaussian_mixture(
    d: int,
    n: int,
    seed: int = 0,
    separation: float = 3.0,
    clusters: int = 4,
    n_test: int = 10_000,
) -> Dataset:
    """Gaussian clusters N(c, I) around corners c, y the sign of the corner's parity.

    With a, b independent uniform signs, z ~ N(0, I_d) and separation > 0:

        clusters=4:  x = separation·(a e1 + b e2) + z,  y = a·b    (d ≥ 2)
        clusters=2:  x = separation·a e1 + z,           y = a      (d ≥ 1)

    The label belongs to the cluster, so it is not a function of x. The best classifiers are
    sign(x1·x2) and sign(x1); with p = Φ(−separation) they err with probability 2p(1−p) and p.
    """
    clusters = whole_number("clusters", clusters, 1)
    if clusters not in (2, 4):
        raise UserError(f"clusters must be 2 or 4, got {clusters}")
    axes = 2 if clusters == 4 else 1
    separation = check.real("separation", separation, above=0)
    arguments = common(d, n, seed, n_test, d_min=axes)
    d = int(arguments["d"])
    arguments |= {"separation": separation, "clusters": clusters}

    def sample(rng: np.random.Generator, count: int) -> Labelled:
        corner = 1.0 - 2.0 * rng.integers(0, 2, size=(count, axes))
        x = rng.normal(size=(count, d))
        x[:, :axes] += separation * corner
        return x, np.prod(corner, axis=1)

    return _independent("gaussian_mixture", arguments, sample, relevant=tuple(range(axes)))


def _independent(
    name: str, arguments: dict[str, Plain], sample: Sampler, relevant: tuple[int, ...]
) -> Dataset:
    """Draw n training and n_test test examples from one law."""
    n, d, seed = (int(arguments[key]) for key in ("n", "d", "seed"))
    check.size("n", n, d)
    train = sample(generator(seed, f"data/{name}/train"), n)
    return assemble(name, arguments, train, sample, relevant)


def _directions(rng: np.random.Generator, n: int, d: int) -> Array:
    """Draw n points uniformly on the unit sphere of R^d: g/‖g‖ with g ~ N(0, I)."""
    normal = rng.normal(size=(n, d))
    unit: Array = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    return unit
