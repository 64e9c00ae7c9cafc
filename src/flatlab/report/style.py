"""Colours, type and axes of all pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.patheffects import withStroke
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    SymmetricalLogLocator,
)

from ..plots import Mark, Reference

Palette = Mapping[str, str]  # role → colour

INK, FAINT, PALE = "#222222", "#8a8a8a", "#eeeeee"
# Two hues that differ in grey and for colour-blind readers (Okabe & Ito).
BLUE, ORANGE = "#0072B2", "#D55E00"
FIXED = {
    "sam": BLUE,
    "gd": ORANGE,
    "positive": BLUE,
    "negative": ORANGE,
    "neutral": FAINT,
    "reference": INK,
}
OTHERS = ("#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7a5195", "#8c6d31")
DASHED: Any = (0, (4, 3))
HALO = [withStroke(linewidth=2.5, foreground="white")]  # keeps words legible on a curve

STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.labelsize": 10.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
}


def palette(roles: Iterable[str]) -> Palette:
    """Give each role its fixed colour, or the next free colour.

    >>> palette(["sam", "depth 2", "sam", "depth 3"])
    {'sam': '#0072B2', 'depth 2': '#009E73', 'depth 3': '#CC79A7'}
    """
    unique = list(dict.fromkeys(roles))
    others = [role for role in unique if role not in FIXED]
    colours = {role: OTHERS[k % len(OTHERS)] for k, role in enumerate(others)}
    return {role: FIXED.get(role) or colours[role] for role in unique}


def colormap(signed: bool) -> Colormap:
    """Return the colours of a heat map; a cell without a value is grey."""
    signs = LinearSegmentedColormap.from_list("signed", [ORANGE, "#ffffff", BLUE])
    return (signs if signed else colormaps["viridis"]).with_extremes(bad="#dddddd")


def horizontal(ax: Axes, reference: Reference) -> None:
    """Draw a horizontal reference and its label."""
    above = reference.above
    ax.axhline(reference.value, color=INK, linewidth=1, linestyle=DASHED, zorder=2)
    ax.annotate(
        reference.label, (0.985 if above else 0.015, reference.value),
        xycoords=("axes fraction", "data"), xytext=(0, 3 if above else -3),
        textcoords="offset points", ha="right" if above else "left",
        va="bottom" if above else "top", fontsize=8.5, color=INK, path_effects=HALO,
    )  # fmt: skip


def vertical(ax: Axes, reference: Reference) -> None:
    """Draw a vertical reference and its label."""
    ax.axvline(reference.value, color=INK, linewidth=1, linestyle=DASHED, zorder=2)
    ax.annotate(
        reference.label, (reference.value, 1), xycoords=("data", "axes fraction"),
        xytext=(3, -2), textcoords="offset points", va="top", fontsize=8.5, color=INK,
        path_effects=HALO,
    )  # fmt: skip


def labelled(ax: Axes, mark: Mark) -> None:
    """Draw a marked point with its label beside it."""
    left = mark.side == "left"
    ax.plot([mark.x], [mark.y], "o", color=ORANGE, markeredgecolor="white", markersize=8, zorder=5)
    ax.annotate(
        mark.label, (mark.x, mark.y), xytext=(-8 if left else 8, 16), textcoords="offset points",
        ha="right" if left else "left", fontsize=9, color=INK, path_effects=HALO, zorder=6,
    )  # fmt: skip


def epochs(ax: Axes) -> None:
    """Make the x axis logarithmic from epoch 1, with room for epoch 0."""
    ax.set_xscale("symlog", linthresh=1, linscale=0.4)
    ax.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: epoch(value)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(left=0)


def epoch(value: float) -> str:
    """Write a small epoch in full and a large one as a power of ten.

    >>> epoch(10), epoch(100_000)
    ('10', '$10^{5}$')
    """
    return f"{value:g}" if value < 1000 else f"$10^{{{round(np.log10(value))}}}$"


def few_decades(axis: Axis, low: float, high: float) -> None:
    """Label a logarithmic axis over few decades with plain numbers."""
    if high / low < 300:
        few = MaxNLocator(6, steps=[1, 2, 5, 10])
        axis.set_major_locator(few if high / low < 5 else LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
