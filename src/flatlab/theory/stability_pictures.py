"""Pictures of stability: which minima gradient descent and SGD can stay at, as plots."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..data.dataset import Array
from ..plots import Cloud, Curve, Curves, Plot, Points, Reference
from ..randomness import generator
from .illustration import LOGARITHMIC, Tell
from .stability import edge_of_descent, largest_nonuniformity
from .stability_sights import edges_of_shapes, momentum_edge, selection
from .two_functions import LEARNING_RATE, TwoFunctions


def selection_plot(tell: Tell) -> Plot:
    """Return simulated stability in the plane of sharpness and non-uniformity, and eq. (6)."""
    rows = tuple(tuple(_selection_panel(lr, B) for B in (1, 4)) for lr in (1.0, 0.5))
    caption = (
        "Simulated: E x'² over x² of SGD on (1/2n) Σ a_i x², n = 8, from 4,000 drawn batches. "
        "Line: eq. (6) at equality.\nPairs with s > a√(n − 1) need a negative a_i and are left out."
    )
    return Plot("selection", "The selection diagram: where SGD is stable", rows, caption)


def _selection_panel(lr: float, batch_size: int) -> Points:
    found = selection(lr, batch_size)
    stable = found.grows <= 1
    clouds = (
        Cloud("simulated: stable", "positive", found.a[stable], found.s[stable]),
        Cloud("simulated: unstable", "negative", found.a[~stable], found.s[~stable]),
    )
    a = np.linspace(0, edge_of_descent(lr), 401)
    edge = _boundary(a, lr, batch_size, found.n)
    curve = Curve("eq. (6)", "reference", a, np.minimum(edge, 1.05 * found.s.max())[None])
    title = f"η = {lr:g}, B = {batch_size}"
    return Points(title, "sharpness a", "non-uniformity s", clouds, curves=(curve,))


def _boundary(a: Array, lr: float, batch_size: int, n: int) -> Array:
    """Return the largest stable s, from 0 to 0."""
    inside = largest_nonuniformity(a[1:-1], lr, batch_size, n)
    return np.concatenate([[0.0], inside, [0.0]])


def regions_plot(tell: Tell) -> Plot:
    """Return the edges of stability of gradient descent, momentum and SGD."""
    found, n = momentum_edge(), 1000
    curves = (
        Curve("2(1 + β)", "reference", found.momentum, found.formula[None]),
        Curve("from the matrix of a step", "momentum", found.momentum, found.found[None]),
    )
    left = Curves(
        "heavy ball: stable below", "ηλ_max", curves, (Reference("gradient descent: 2", 2.0),),
        xscale="linear", xlabel="momentum β", ylim=(0, 4),
    )  # fmt: skip
    x = np.linspace(0, 2, 401)
    edges = tuple(
        Curve(f"B = {B}", f"batch {B}", x, _boundary(x, 1.0, B, n)[None]) for B in (1, 4, 16)
    )
    right = Curves(
        "SGD in one dimension: stable below", "η × non-uniformity s", edges, xscale="linear",
        xlabel="η × sharpness a", ylim=(0, 4.5),
    )  # fmt: skip
    caption = (
        f"Right: eq. (6) at equality, n = {n:,}. Gradient descent is stable for ηa ≤ 2 whatever "
        "s is;\nwith small batches the sharpest minima that SGD can stay at are uniform."
    )
    title = "Stability of gradient descent, momentum and SGD"
    return Plot("stability-regions", title, ((left, right),), caption)


def two_functions_plot(tell: Tell) -> Plot:
    """Return 200 runs of SGD from beside each minimum, for both printed versions."""
    rows = []
    for weight, name in (
        (1.0, "f_i = min(x², c_i(x − 1)²)"),
        (0.5, "with ½, as on the slide before"),
    ):
        panels = []
        for minimum, start in ((1, 1 - 1e-5), (0, 1e-5)):
            rng = generator(0, "two-functions", 2 * minimum + int(weight))
            walk = TwoFunctions(weight).walk(start, 150, 200, rng)
            away = np.log10(np.maximum(np.abs(walk - minimum), 1e-16))
            steps = np.arange(len(away), dtype=float)
            curves = (Curve("200 runs: mean and range", "sgd", steps, away.T),)
            title, ylabel = f"{name}: from x = {minimum}", f"log₁₀ |x − {minimum}|"
            panels.append(
                Curves(title, ylabel, curves, xscale="linear", xlabel="step", ylim=(-17, 1.5))
            )
        rows.append(tuple(panels))
    caption = (
        f"η = {LEARNING_RATE}, c = (0.1, 1.9), starts 1e-5 from a minimum; smaller distances than "
        "1e-16 are drawn there.\nBoth minima have the same curvature. Only without the ½ does SGD "
        "leave x = 1."
    )
    title = "Two functions: SGD leaves one of two equally sharp minima"
    return Plot("two-functions", title, tuple(rows), caption)


def shapes_plot(tell: Tell) -> Plot:
    """Return how sharp a stable minimum may be against the dimension, by the shape of the noise."""
    B, k = 4, 4
    sizes = np.array([4, 8, 16, 32, 64, 128, 256, 512, 1024])
    panels = []
    for title, spectra in (
        (
            f"{k} equal eigenvalues, the others 0",
            [np.r_[np.ones(k), np.zeros(m - k)] for m in sizes],
        ),
        ("eigenvalues 1, 1/2, 1/3, …, 1/m", [1 / np.arange(1.0, m + 1) for m in sizes]),
    ):
        geometry, isotropic = edges_of_shapes(spectra, B)
        ratio = np.array([np.linalg.norm(each) / each.sum() for each in spectra])
        panel = partial(LOGARITHMIC, xlabel="parameters m", ylim=(1, 40))
        curves = (
            Curve("noise 2LG/B", "sam", sizes.astype(float), geometry[None]),
            Curve("isotropic, equal variance", "gd", sizes.astype(float), isotropic[None]),
            Curve("its bound, Tr H = √(mB)/η", "neutral", sizes.astype(float),
                  (np.sqrt(sizes * B) * ratio)[None]),
        )  # fmt: skip
        panels.append(panel(title, "η‖H‖_F at the edge", curves, (Reference("√B", B**0.5),)))
    caption = (
        f"B = {B}. Exact edges of the moment recursions. Noise shaped like the curvature keeps "
        "η‖H‖_F below √B in every dimension.\nLeft: isotropic noise spreads over flat directions, "
        "and its edge moves to that of gradient descent, ηλ = 2.\nRight: all directions are "
        "curved; then Tr H ≤ 2B/η bounds both."
    )
    title = "The shape of the noise decides how sharp a stable minimum can be"
    return Plot("noise-shapes", title, (tuple(panels),), caption)
