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
Shift = tuple[float, float]

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


def write(ax: Axes, text: str, at: tuple[float, float], shift: Shift, **style: Any) -> None:
    """Write a text beside a point, shifted by some typographical points."""
    style = {"color": INK, "fontsize": 8.5, "path_effects": HALO, **style}
    ax.annotate(text, at, xytext=shift, textcoords="offset points", **style)


def horizontal(ax: Axes, reference: Reference) -> None:
    """Draw a horizontal reference and its label."""
    above = (0.985, 3, "right", "bottom")
    x, shift, ha, va = above if reference.above else (0.015, -3, "left", "top")
    ax.axhline(reference.value, color=INK, linewidth=1, linestyle=DASHED, zorder=2)
    frame = ("axes fraction", "data")
    write(ax, reference.label, (x, reference.value), (0, shift), xycoords=frame, ha=ha, va=va)


def vertical(ax: Axes, reference: Reference) -> None:
    """Draw a vertical reference and its label."""
    ax.axvline(reference.value, color=INK, linewidth=1, linestyle=DASHED, zorder=2)
    frame = ("data", "axes fraction")
    write(ax, reference.label, (reference.value, 1), (3, -2), xycoords=frame, va="top")


def labelled(ax: Axes, mark: Mark) -> None:
    """Draw a marked point with its label beside it."""
    shift, ha = ((-8, 16), "right") if mark.side == "left" else ((8, 16), "left")
    ax.plot([mark.x], [mark.y], "o", color=ORANGE, markeredgecolor="white", markersize=8, zorder=5)
    write(ax, mark.label, (mark.x, mark.y), shift, ha=ha, fontsize=9, zorder=6)


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


def few_decades(*axes: Axis) -> None:
    """Label the logarithmic ones of these axes with plain numbers if they span few decades."""
    for axis in axes:
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high / low < 300:
            few = MaxNLocator(6, steps=[1, 2, 5, 10])
            axis.set_major_locator(few if high / low < 5 else LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(NullLocator())
