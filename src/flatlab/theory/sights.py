"""The numbers behind the pictures of the theory; `report` draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np

from ..data import Dataset, complete, cube, from_arrays, xor
from ..errors import UserError
from ..models import TwoLayer
from ..randomness import generator
from .bounds import bias_floor
from .columns import Family
from .constructions import four_neurons, memorising, xor_batch_norm
from .flattest import flattest
from .geometry import on_circle
from .rademacher import NetworkComplexity, path_norm_ball
from .solution import Array, Solution


@dataclass(frozen=True)
class Circle:
    """Angles and labels of points of the unit circle; for each ε half the angle of a neuron."""

    angles: Array
    labels: Array
    half: dict[float, float]


@dataclass(frozen=True)
class Between:
    """Quantities along a path from the memorising to the generalising flattest minimum.

    `t` goes from 0 (memorising) to 1 (generalising); the test set is the whole cube.
    """

    t: Array
    loss: Array
    trace: Array
    test_loss: Array
    test_error: Array


@dataclass(frozen=True)
class Accuracy:
    """Test accuracy of the flattest minimiser found, (ratios, seeds), by n/d."""

    family: Family
    ratios: Array
    accuracy: Array
    trace_over_reference: Array


def trace_by_scale(d: int = 30, n: int = 100) -> tuple[Array, Array, float]:
    """Return r, the trace of eq. (5) with that r, and the floor 4√(d+1).

    The right r = (d+1)^¼ and the printed (d²+1)^¼ are among the values.
    """
    data = xor(d=d, n=n, seed=0, n_test=0)
    marked = [(d + 1) ** 0.25, (d**2 + 1) ** 0.25]
    r = np.sort(np.concatenate([np.geomspace(1.2, 8, 60), marked]))
    return r, np.array([four_neurons(data, r=float(each)).trace for each in r]), bias_floor(data)


def circle_regions(n: int = 12, epsilons: tuple[float, ...] = (0.1, 0.03, 0.003)) -> Circle:
    """Return the regions of the memorising network on n evenly spaced points, for shrinking ε."""
    points, half = circle_points(n), {}
    for epsilon in epsilons:
        made = memorising(points, epsilon=epsilon)
        fine = np.linspace(0, 2 * np.pi / n, 20_001)
        half[epsilon] = float(fine[made.hidden(on_circle(fine))[0][:, 0] > 0].max())
    return Circle(2 * np.pi * np.arange(n) / n, points.y_train, half)


def circle_points(n: int = 12) -> Dataset:
    """Return n evenly spaced points of the unit circle, labelled 1 and −1 in turn."""
    angles = 2 * np.pi * np.arange(n) / n
    return from_arrays(on_circle(angles), np.resize([1.0, -1.0], n))


def part_of_cube(rng: np.random.Generator, d: int, n: int) -> Dataset:
    """Return n distinct points of the cube with xor labels; the test set is the whole cube."""
    whole = cube(d)
    x = whole[rng.permutation(2**d)[:n]]
    return from_arrays(x, x[:, 0] * x[:, 1], whole, whole[:, 0] * whole[:, 1])


def batch_norm_path() -> tuple[Array, Array]:
    """Return K and the trace of the xor network with simplified BatchNorm, first layer times K."""
    data = complete(d=6, s=5, seed=0, n_test=0)
    K = np.geomspace(0.5, 300, 40)
    return K, np.array([xor_batch_norm(data, scale=float(k)).trace for k in K])


def between_minima(d: int = 8, n: int = 40) -> tuple[Between, Between]:
    """Return the straight line and a flat path from the memorising to the generalising minimum.

    Both have width n + 4, the memorising neurons first. On the straight line the memorising neurons
    are scaled by 1 − t and the generalising ones by t, so f = ((1 − t)² + t²)y on the training set.
    Scaled by √(1 − t) and √t instead, f = (1 − t)y + ty = y, and the trace is the floor all the
    way: the flattest minima that memorise and those that generalise are one connected set.
    """
    data = part_of_cube(generator(0, "between"), d, n)
    one, other = memorising(data, width=n + 4), _shifted(four_neurons(data), n)
    t = np.linspace(0, 1, 41)
    straight = [_mixed(one, other, 1 - s, s) for s in t]
    flat = [_mixed(one, other, np.sqrt(1 - s), np.sqrt(s)) for s in t]
    return _measured(t, straight), _measured(t, flat)


def _shifted(four: Solution, n: int) -> Solution:
    params = {
        "W1": np.vstack([np.zeros((n, four.data.d)), four.params["W1"]]),
        "b1": np.concatenate([np.full(n, -1.0), four.params["b1"]]),
        "W2": np.concatenate([np.zeros(n), four.params["W2"]]),
    }
    return Solution(TwoLayer(width=n + 4), params, four.data)


def _mixed(one: Solution, other: Solution, a: float, b: float) -> Solution:
    """Return the neurons of one times a and those of the other times b; dead ones count as zero."""
    params = {}
    for name in ("W1", "b1", "W2"):
        left, right = (
            np.where((s.params["W2"] != 0)[(..., *[None] * (s.params[name].ndim - 1))],
                     s.params[name], 0.0)
            for s in (one, other)
        )  # fmt: skip
        params[name] = a * left + b * right
    return one.with_params(**params)


def _measured(t: Array, networks: list[Solution]) -> Between:
    values = [(each.loss(), each.trace, each.test_loss(), each.error()) for each in networks]
    return Between(t, *np.array(values).T)


def rademacher_by_samples(
    d: int = 10, sizes: tuple[int, ...] = (10, 20, 40, 80, 160), seed: int = 0
) -> Iterator[tuple[int, NetworkComplexity]]:
    """Yield n and the empirical Rademacher complexity of Θ_1 on n points of the cube."""
    for n in sizes:
        x = xor(d=d, n=n, seed=seed, n_test=0).x_train
        yield n, path_norm_ball(x, 1.0, draws=40, rng=generator(seed, "rademacher", n))


def flattest_accuracy(
    d: int = 10,
    ratios: tuple[float, ...] = (0.5, 1, 2, 3, 4, 6, 8),
    seeds: int = 3,
    budget_seconds: float = 6.0,
    tell: Callable[[str], None] | None = None,
) -> list[Accuracy]:
    """Return the test accuracy of the flattest minimiser found, against n/d, for three families."""
    found = []
    for family in get_args(Family):
        accuracy = np.full((len(ratios), seeds), np.nan)
        relative = np.full((len(ratios), seeds), np.nan)
        for i, ratio in enumerate(ratios):
            for seed in range(seeds):
                data = _distinct_xor(d, max(2, round(ratio * d)), seed)
                if tell is not None:
                    tell(f"flattest minimiser, {family}, n/d = {ratio:g}, seed {seed}")
                try:
                    best = flattest(data, family, seed=seed, budget_seconds=budget_seconds)
                except UserError:  # e.g. no point in some quadrant for its reference
                    continue
                accuracy[i, seed] = 1 - best.solution.error()
                relative[i, seed] = best.limit / best.reference if best.reference else np.nan
        found.append(Accuracy(family, np.array(ratios), accuracy, relative))
    return found


def _distinct_xor(d: int, n: int, seed: int) -> Dataset:
    whole = cube(d)
    order = generator(seed, "flattest-accuracy", n).permutation(2**d)
    x, rest = whole[order[:n]], whole[order[n:]]
    return from_arrays(x, x[:, 0] * x[:, 1], rest, rest[:, 0] * rest[:, 1])
