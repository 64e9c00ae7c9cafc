"""Drawing panels with an x and a y axis: `Curves`, `Dots`, `Bars` and `Points`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..experiments.contract import Interval
from ..plots import Array, Bars, Cloud, Curve, Curves, Dots, Outlines, Points
from .style import (
    DASHED,
    FAINT,
    INK,
    PALE,
    Palette,
    epochs,
    few_decades,
    horizontal,
    labelled,
    vertical,
    write,
)

FEW = 12  # curves of at most this many points have a marker on each point


def curves(ax: Axes, panel: Curves, colours: Palette) -> None:
    """Draw curves, their references and their marked points."""
    if not panel.curves:
        ax.text(0.5, 0.5, "no finished run", ha="center", color=FAINT, transform=ax.transAxes)
    for each in panel.curves:
        curve(ax, each, colours[each.role])
    for reference in panel.references:
        horizontal(ax, reference)
    for mark in panel.marks:
        labelled(ax, mark)
    ax.set_title(panel.title, loc="left", color=INK)
    ax.set_xlabel(panel.xlabel)
    ax.set_ylabel(panel.ylabel)
    log = panel.yscale == "log" and any((each.y > 0).any() for each in panel.curves)
    ax.set_yscale("log" if log else "linear")
    ax.set_axisbelow(True)
    if panel.ylim:
        ax.set_ylim(*panel.ylim)
    if log:
        _logarithmic(ax, panel)
    ax.grid(axis="y", color=PALE, linewidth=0.8, zorder=0)
    if panel.xscale == "symlog":
        epochs(ax)
    elif panel.xscale == "log":
        ax.set_xscale("log")
        few_decades(ax.xaxis)
    elif panel.curves and len(panel.curves[0].x) <= FEW:
        at = _apart(panel.curves[0].x)
        ax.set_xticks(at, [f"{value:g}" for value in at])


def _apart(values: Array) -> list[float]:
    """Return values whose labels do not touch: at least 6 % of the axis from one another.

    >>> _apart(np.array([0.0, 1.0, 1.02, 2.0]))
    [0.0, 1.0, 2.0]
    """
    kept: list[float] = []
    for value in sorted(values.tolist()):
        if not kept or value - kept[-1] >= 0.06 * (values.max() - values.min()):
            kept.append(value)
    return kept


def curve(ax: Axes, drawn: Curve, colour: str) -> None:
    """Draw the mean over seeds, a band from smallest to largest, and error bars if given."""
    x, y = drawn.x, np.ma.masked_invalid(drawn.y)
    if drawn.role == "reference":
        style: dict[str, Any] = {"linewidth": 1, "linestyle": DASHED, "zorder": 4}
        marker = "o" if len(x) == 1 else ""
        ax.plot(x, y.mean(0), marker=marker, color=colour, label=drawn.label, **style)
        return
    marker, style = "o" if len(x) <= FEW else "", {"linewidth": 2, "zorder": 3}
    ax.plot(x, y.mean(0), marker=marker, color=colour, label=drawn.label, **style)
    if drawn.open is not None and drawn.open.any():
        style = {"markerfacecolor": "white", "markersize": 7, "zorder": 4}
        ax.plot(x[drawn.open], y.mean(0)[drawn.open], "o", color=colour, **style)
    if drawn.error is not None:
        style = {"fmt": "none", "elinewidth": 1.5, "capsize": 3, "zorder": 3}
        ax.errorbar(x, y.mean(0), drawn.error, ecolor=colour, **style)
    if len(y) > 1:
        ax.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.18, linewidth=0, zorder=2)


def _logarithmic(ax: Axes, panel: Curves) -> None:
    """Label 1, 2 and 5 of each decade if few decades are shown; leave room for references."""
    low, high = ax.get_ylim()
    if low < 1e-16 * high:  # a value that collapsed would leave no room for the rest
        low = 1e-6 * high
    for reference in panel.references:
        low = min(low, reference.value * (low / high) ** 0.12)
    ax.set_ylim(low, high)
    few = high / low < 300
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    if few:
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def dots(ax: Axes, panel: Dots, colours: Palette) -> None:
    """Draw a row for each `Dot`, the first on top."""
    for k, dot in enumerate(panel.dots):
        colour, values = colours[dot.role], [v for v in dot.values if np.isfinite(v)]
        if not values:
            continue
        ax.plot(values, [k] * len(values), "o", color=colour, alpha=0.35, markersize=4, zorder=3)
        interval = Interval.of(values, *panel.within)
        mean = float(np.mean(values))
        if interval:
            low = max(interval.low, min(values) / 10) if panel.xscale == "log" else interval.low
            ax.plot([low, interval.high], [k, k], color=colour, linewidth=2, zorder=3)
        ax.plot([mean], [k], "o", color=colour, markersize=8, markeredgecolor="white", zorder=4)
    for reference in panel.references:
        vertical(ax, reference)
    _name_rows(ax, panel.rows)
    ax.set_ylim(len(panel.dots) - 0.5, -0.8)
    ax.set_title(panel.title, loc="left", color=INK)
    ax.set_xlabel(panel.xlabel)
    shown = [v for dot in panel.dots for v in dot.values if np.isfinite(v)]
    # An axis that spans less than a factor of three has at most one power of ten to label.
    wide = bool(shown) and min(shown) > 0 and max(shown) > 3 * min(shown)
    if panel.xscale == "log" and wide:
        ax.set_xscale("log")
        few_decades(ax.xaxis)
    ax.set_axisbelow(True)
    ax.grid(axis="both", color=PALE, linewidth=0.8, zorder=0)


def bars(ax: Axes, panel: Bars, colours: Palette) -> None:
    """Draw a row for each bar, the first on top."""
    for k, bar in enumerate(panel.bars):
        ax.barh(k, bar.value, 0.8, color=colours[bar.role])
        style: dict[str, Any] = {"color": colours[bar.role], "path_effects": None}
        write(ax, bar.end, (bar.value, k), (3, 0), va="center", fontsize=8, **style)
    ax.margins(x=0.15)
    ax.set_xlim(left=0)
    _name_rows(ax, panel.rows)
    ax.set_ylim(max(len(panel.bars), 1) - 0.5, -0.5)
    ax.set_title(panel.title, loc="left", color=INK)
    ax.set_xlabel(panel.xlabel)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)


def points(ax: Axes, panel: Points, colours: Palette) -> None:
    """Draw clouds of points, with outlines and curves below them."""
    for outline in panel.outlines:
        _outlines(ax, outline, colours[outline.role])
    for each in panel.curves:
        curve(ax, each, colours[each.role])
    for cloud in panel.clouds:
        _cloud(ax, cloud, colours[cloud.role], panel.drawing)
    ax.set_title(panel.title, loc="left", color=INK)
    if panel.drawing:
        ax.set_aspect("equal")
        ax.set_axis_off()
        return
    for reference in panel.references:
        horizontal(ax, reference)
    ax.set_xlabel(panel.xlabel)
    ax.set_ylabel(panel.ylabel)
    ax.set_xscale(panel.xscale)
    ax.set_yscale(panel.yscale)
    few_decades(ax.xaxis, ax.yaxis)
    ax.set_axisbelow(True)
    ax.grid(axis="both", color=PALE, linewidth=0.8, zorder=0)


def _cloud(ax: Axes, cloud: Cloud, colour: str, drawing: bool) -> None:
    size, edge = (5, 0) if drawing else (6.5, 0.8)
    style: dict[str, Any] = {"fmt": "o", "color": colour, "markersize": size, "zorder": 4}
    style |= {"markeredgecolor": "white", "markeredgewidth": edge}
    style |= {"elinewidth": 1.2, "ecolor": to_rgba(colour, 0.55)}
    ax.errorbar(cloud.x, cloud.y, cloud.yerror, cloud.xerror, label=cloud.label, **style)
    for name, x, y in zip(cloud.names, cloud.x, cloud.y, strict=bool(cloud.names)):
        write(ax, name, (float(x), float(y)), (5, 4), fontsize=8, zorder=5)


def _outlines(ax: Axes, outlines: Outlines, colour: str) -> None:
    corners = np.stack([outlines.x, outlines.y], 2)
    width = 3 if outlines.filled else 1
    # Transparent, so both colours show where arcs of two categories overlap.
    alpha = 0.6 if outlines.filled else 1
    ax.add_collection(
        LineCollection(list(corners), colors=colour, linewidths=width, alpha=alpha, zorder=3)
    )
    if outlines.filled:
        ax.add_collection(
            PolyCollection(list(corners), facecolors=colour, alpha=0.35, linewidths=0, zorder=2)
        )
    ax.autoscale_view()
