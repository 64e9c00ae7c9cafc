"""Networks without bias for the checks of Appendix A.2: random, true and flattest ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ...data import Dataset, from_arrays
from ...data.dataset import Array
from ...models.chains import TwoLayer
from ...theory.constructions.balancing import balanced
from ...theory.solution import Solution


def seed_of(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def uneven_network(
    rng: np.random.Generator, data: Dataset, width: int, spread: float = 1.0
) -> Solution:
    """Return a random network without bias whose neurons have very different sizes."""
    sizes = np.exp(spread * rng.normal(size=(2, width)))
    W1 = rng.normal(size=(width, data.d)) * sizes[0][:, None]
    params = {"W1": W1, "W2": rng.normal(size=width) * sizes[1]}
    return Solution(TwoLayer(width=width, bias=False), params, data)


def gaussian(rng: np.random.Generator, n: int, d: int, n_test: int = 0) -> Dataset:
    """Return Gaussian inputs with y = |x1| − |x2|, a network of four neurons and path norm 4."""
    x = rng.normal(size=(n + n_test, d))
    y = np.abs(x[:, 0]) - np.abs(x[:, 1])
    return from_arrays(x[:n], y[:n], x[n:], y[n:])


def teacher_of(data: Dataset) -> Solution:
    """Return the network |x1| − |x2|."""
    axes = np.eye(data.d)[:2]
    params = {"W1": np.vstack([axes, -axes]), "W2": np.array([1.0, -1.0, 1.0, -1.0])}
    return Solution(TwoLayer(width=4, bias=False), params, data)


def _prices(x: Array, u: Array) -> Array:
    """Return the price of u: what relu(u·x) adds to the trace of a balanced network."""
    h = np.maximum(u @ x.T, 0)
    return np.asarray(4 * np.sqrt((h > 0) @ np.sum(x**2, 1) * np.sum(h**2, 1)) / len(x))


def _worth(x: Array, u: Array, dual: Array) -> tuple[Array, Array]:
    """Maximise |Σ dual_i relu(u·x_i)|/price(u) by ascent; return directions and ratios."""
    best, ratios = u, np.full(len(u), -np.inf)
    for step in range(30):
        h = np.maximum(u @ x.T, 0)
        gain, price = h @ dual, _prices(x, u)
        ratio = np.where(price > 0, np.abs(gain) / np.where(price > 0, price, 1.0), 0.0)
        best = np.where((ratio > ratios)[:, None], u, best)
        ratios = np.maximum(ratios, ratio)
        gradient = ((h > 0) * dual) @ x / np.where(gain == 0, 1.0, gain)[:, None]
        power = np.sum(h**2, 1, keepdims=True)
        gradient -= h @ x / np.where(power > 0, power, 1.0)
        gradient -= np.sum(gradient * u, 1, keepdims=True) * u
        length = np.linalg.norm(gradient, axis=1, keepdims=True)
        u = u + 0.5 * 0.85**step * gradient / np.where(length > 0, length, 1.0)
        u = u / np.linalg.norm(u, axis=1, keepdims=True)
    return best, ratios


def flattest(
    data: Dataset, rng: np.random.Generator, rounds: int, known: NDArray[np.floating] | None = None
) -> Solution:
    """Search for the flattest network without bias that interpolates.

    Over balanced networks the trace is Σ_j price(u_j)|c_j|, linear in |c|. So for given directions
    a linear programme finds the least trace; its dual then leads to new directions.
    """
    x, n, d = data.x_train, data.n, data.d
    u: Array = rng.normal(size=(3 * n + 100, d))
    u = np.vstack([u, np.empty((0, d)) if known is None else known])
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    for left in reversed(range(rounds)):
        price = _prices(x, u)
        u, price = u[price > 0], price[price > 0]
        h = np.maximum(x @ u.T, 0)
        columns = np.hstack([h, -h])
        solved = linprog(np.tile(price, 2), A_eq=columns, b_eq=data.y_train, method="highs")
        if solved.x is None:
            raise RuntimeError(f"no network of these neurons interpolates: {solved.message}")
        c = solved.x[: len(u)] - solved.x[len(u) :]
        dual = np.asarray(solved.eqlin.marginals)
        used = np.abs(c) > 1e-9
        if not left:
            break
        starts = np.vstack([u[used], rng.normal(size=(100, d))])
        new, ratios = _worth(x, starts / np.linalg.norm(starts, axis=1, keepdims=True), dual)
        u = np.vstack([u[np.abs(dual @ h) > 0.7 * price], new[ratios > 1 + 1e-6]])
    params = {"W1": u[used], "W2": c[used]}
    return balanced(Solution(TwoLayer(width=int(used.sum()), bias=False), params, data))


def extreme_powers(
    x: Array, rng: np.random.Generator, starts: int = 50, steps: int = 100
) -> tuple[Array, Array]:
    """Return unit w with small and with large (1/n) Σ relu(w·x_i)², by projected gradients."""
    found = []
    for direction in (-1.0, 1.0):
        w = rng.normal(size=(starts, x.shape[1]))
        for _ in range(steps):
            w /= np.linalg.norm(w, axis=1, keepdims=True)
            w = w + direction * 0.3 * np.maximum(w @ x.T, 0) @ x / len(x)
        found.append(w / np.linalg.norm(w, axis=1, keepdims=True))
    return found[0], found[1]
