"""The picture of the PAC-Bayes terms as the network grows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..plots import Curve, Plot, Reference
from ..randomness import generator
from .illustration import LOGARITHMIC, Tell
from .pac_bayes import flatness_terms
from .solution import Array

WIDTHS = (10, 30, 100, 300, 1000, 3000)
DELTA, SIGMAS = 0.05, np.geomspace(1e-3, 1, 13)
RIDGE = 1e-4
"""Weight of ‖c‖² in the fit, against the peak of the error where there are n neurons."""


@dataclass(frozen=True)
class Terms:
    """The flatness bound of trained networks, each term by the number of parameters k.

    Attributes:
        gap: L − L̂, with L on fresh points.
        sharpness: Mean rise of L̂ under the noise N(0, σ²I), at most the rise in the theorem.
        dimension: √(KL/(2n)), the part of the complexity that grows with k.
        confidence: 1/√n + √(log(2√n/δ_j)/(2n)), the part that does not.
        sigma: The σ of the grid with the least sum.
    """

    k: Array
    gap: Array
    sharpness: Array
    dimension: Array
    confidence: Array
    bound: Array
    sigma: Array


def terms_by_width(
    d: int = 10, n: int = 1000, widths: tuple[int, ...] = WIDTHS, tell: Tell = lambda text: None
) -> Terms:
    """Return the terms for random-feature networks of growing width, fitted by ridge regression.

    The loss is min(1, (f − f*)²) for a target of one neuron on the sphere, so it lies in [0, 1].
    The neurons are balanced, ‖w_j‖ = √d |a_j|, which makes them as flat as they can be.
    """
    rng = generator(0, "pac-bayes-terms")
    x, far = _sphere(rng, n, d), _sphere(rng, 5000, d)
    unit = _sphere(rng, 1, d)[0] / math.sqrt(d)
    y, truth = (np.maximum(each @ unit, 0) for each in (x, far))
    rows = []
    for width in widths:
        tell(f"{width} neurons")
        units = _sphere(rng, width, d) / math.sqrt(d)
        features = np.maximum(x @ units.T, 0)
        gram = features @ features.T + RIDGE * width * n * np.eye(n)
        c = features.T @ np.linalg.solve(gram, y)
        size = np.sqrt(np.abs(c) * math.sqrt(d))
        W1, W2 = size[:, None] * units, np.sign(c) * size / math.sqrt(d)
        k, squared = width * (d + 1), float(np.sum(W1**2) + np.sum(W2**2))
        here = _loss(W1, W2, x, y)
        gap = _loss(W1, W2, far, truth) - here
        best = None
        for sigma in SIGMAS / math.sqrt(width):
            # each σ at its share of δ, so that the best may be chosen
            found = flatness_terms(k, n, squared, float(sigma), DELTA / len(SIGMAS))
            rise = _noisy(rng, W1, W2, x, y, float(sigma)) - here
            if best is None or rise + found.total < best[1] + best[0].total:
                best = (found, max(rise, 0.0), float(sigma))
        assert best is not None
        found, rise, chosen = best
        dimension = math.sqrt(found.kl / (2 * n))
        confidence = found.outside + math.sqrt(found.confidence / (2 * n))
        rows.append((k, max(gap, 1e-9), rise, dimension, confidence, rise + found.total, chosen))
    return Terms(*np.array(rows, float).T)


def _noisy(
    rng: np.random.Generator, W1: Array, W2: Array, x: Array, y: Array, sigma: float
) -> float:
    """Return the mean training loss of the network with noise in all parameters."""
    losses = [
        _loss(W1 + sigma * rng.normal(size=W1.shape), W2 + sigma * rng.normal(size=W2.shape), x, y)
        for _ in range(4)
    ]
    return float(np.mean(losses))


def _loss(W1: Array, W2: Array, x: Array, y: Array) -> float:
    return float(np.mean(np.minimum(1, (np.maximum(x @ W1.T, 0) @ W2 - y) ** 2)))


def _sphere(rng: np.random.Generator, n: int, d: int) -> Array:
    x = rng.normal(size=(n, d))
    return np.asarray(x * (math.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)))


def pac_bayes_plot(tell: Tell) -> Plot:
    """Return the terms of the flatness bound against the number of parameters."""
    d, n = 10, 1000
    found = terms_by_width(d, n, tell=tell)
    named = (
        ("bound on L − L̂", "reference", found.bound),
        ("dimension: √(KL/2n)", "sam", found.dimension),
        ("mean rise under the noise", "gd", found.sharpness),
        ("confidence and union bound", "neutral", found.confidence),
        ("L − L̂, measured", "gap", found.gap),
    )
    curves = tuple(Curve(name, role, found.k, values[None]) for name, role, values in named)
    vacuous = (Reference("1: says nothing", 1.0),)
    panel = LOGARITHMIC("", "", curves, vacuous, xlabel=f"parameters k; n = {n:,} examples")
    caption = (
        f"Random features fitted to one neuron on the sphere, d = {d}, loss min(1, (f − y)²), "
        f"δ = {DELTA}, the best of {len(SIGMAS)} values of σ.\n"
        "The rise is the mean under the noise; the theorem has the largest in a ball, which is "
        "larger still."
    )
    title = "The PAC-Bayes bound grows with the network"
    return Plot("pac-bayes-terms", title, ((panel,),), caption)
