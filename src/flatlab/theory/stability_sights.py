"""The numbers behind the pictures of stability; `stability_pictures` draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..data.dataset import Array
from ..randomness import generator
from .noise_shapes import Shape, critical_rate
from .stability import edge_of_descent, momentum_radius

SHAPES: tuple[Shape, ...] = ("geometry", "isotropic")


@dataclass(frozen=True)
class Selection:
    """Pairs (a, s) that examples with a_i ≥ 0 can have, and the simulated E x'²/x² of each."""

    lr: float
    batch_size: int
    n: int
    a: Array
    s: Array
    grows: Array


def selection(
    lr: float, batch_size: int, n: int = 8, points: int = 18, runs: int = 4000, seed: int = 0
) -> Selection:
    """Simulate SGD on (1/2n) Σ a_i x² for pairs (a, s).

    One example differs from the others, so that s may be up to a√(n − 1). `grows` is the mean of
    x'²/x² over many drawn batches: a long run would need far more of them, as its mean is made by
    very rare ones.
    """
    rng = generator(seed, "selection", batch_size)
    shape = np.append(np.sqrt(n - 1), np.full(n - 1, -1 / np.sqrt(n - 1)))
    a, s = (
        each.ravel()
        for each in np.meshgrid(
            np.linspace(0.06, 1.12, points) * 2 / lr, np.linspace(0.04, 1.0, points) * 4 / lr
        )
    )
    kept = s <= a * np.sqrt(n - 1)
    a, s = a[kept], s[kept]
    each = a[:, None] + s[:, None] * shape
    grows = np.zeros(len(a))
    for _ in range(runs):
        batch = rng.permutation(n)[:batch_size]
        grows += (1 - lr * each[:, batch].mean(1)) ** 2 / runs
    return Selection(lr, batch_size, n, a, s, grows)


@dataclass(frozen=True)
class Edge:
    """By momentum β the largest stable ηλ: by the formula, and from the matrix of a step."""

    momentum: Array
    formula: Array
    found: Array


def momentum_edge(points: int = 10) -> Edge:
    """Return the edge of gradient descent with heavy-ball momentum."""
    beta = np.linspace(0, 0.9, points)
    formula = np.array([edge_of_descent(1.0, each) for each in beta])
    found = np.array([_bisect(partial(_settles, each), 5.0) for each in beta])
    return Edge(beta, formula, found)


def _settles(momentum: float, x: float) -> bool:
    return momentum_radius(1.0, momentum, x) <= 1 + 1e-9


def _bisect(stable: Callable[[float], bool], high: float) -> float:
    low = 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def edges_of_shapes(spectra: Sequence[Array], batch_size: int) -> tuple[Array, Array]:
    """Return η‖H‖_F at the critical η of each spectrum, for both shapes of noise."""
    found = [
        [critical_rate(values, batch_size, shape) * np.linalg.norm(values) for shape in SHAPES]
        for values in spectra
    ]
    geometry, isotropic = np.array(found).T
    return geometry, isotropic
