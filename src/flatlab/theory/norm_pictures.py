"""The picture of sharpness against parameter norms as the training set grows."""

from __future__ import annotations

import math

import numpy as np

from ..plots import Curve, Curves, Plot, Reference
from ..randomness import generator
from .illustration import Tell
from .solution import Array
from .weighted_norms import limits, ratios

WIDTHS = (1, 4, 20)
PER_EXAMPLE = (1, 2, 5, 10, 20, 50, 100)
"""Numbers of inputs, in units of d."""


def norm_ratios(d: int = 10, networks: int = 8, tell: Tell = lambda text: None) -> dict[str, Array]:
    """Return Tr G/N_d, ‖G‖_F/N_{√d} and ‖G‖_2/N_1 on n inputs, (networks, numbers of inputs).

    The networks have 1, 4 or 20 neurons whose layers are scaled by factors from 1/30 to 30; each
    keeps its parameters as n grows.
    """
    found: dict[str, list[list[float]]] = {name: [] for name in ("trace", "frobenius", "operator")}
    for m in WIDTHS:
        for index in range(networks):
            tell(f"{m} neurons, network {index + 1} of {networks}")
            rng = generator(0, f"norm-ratios/{m}", index)
            W1 = rng.normal(size=(m, d)) * 10 ** rng.uniform(-1.5, 1.5, (m, 1))
            W2 = rng.normal(size=m) * 10 ** rng.uniform(-1.5, 1.5, m)
            x = rng.normal(size=(PER_EXAMPLE[-1] * d, d))
            x *= math.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)
            each = [ratios(W1, W2, x[: k * d]) for k in PER_EXAMPLE]
            for name, rows in found.items():
                rows.append([getattr(one, name) for one in each])
    return {name: np.array(rows) for name, rows in found.items()}


def norms_plot(tell: Tell) -> Plot:
    """Return the three norms of G over the norms of θ that they are comparable to."""
    d, networks = 10, 8
    found, bounds = norm_ratios(d, networks, tell), limits(d)
    n = np.array(PER_EXAMPLE, float)
    titles = {"trace": "Tr G / N_d", "frobenius": "‖G‖_F / N_√d", "operator": "‖G‖₂ / N₁"}
    panels = []
    for name, title in titles.items():
        low, high = bounds[name]
        lines = [Reference("½", high, above=True)]
        if low < high:
            lines.append(Reference(f"{low:.2f}", low))
        curves = tuple(
            Curve(
                f"{m} neuron{'s' if m > 1 else ''}", role, n,
                found[name][k * networks : (k + 1) * networks],
            )
            for k, (m, role) in enumerate(zip(WIDTHS, ("gd", "sam", "neutral"), strict=True))
        )  # fmt: skip
        panels.append(
            Curves(title, "", curves, tuple(lines), xscale="log", ylim=(0, 1.7), xlabel="n/d")
        )
    caption = (
        f"G = (1/n) Σ ∇f∇fᵀ, N_q = Σ (‖w‖² + q a²), inputs on the sphere, d = {d}. Lines: mean of "
        f"{networks} networks;\nbands: all of them. Dashed: between these the ratio lies at n = ∞, "
        "for every network."
    )
    return Plot("norms", "Sharpness is a norm of the parameters, once n ≫ d", (tuple(panels),),
                caption)  # fmt: skip
