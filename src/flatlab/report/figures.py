"""Pictures from findings, good enough for a talk."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    SymmetricalLogLocator,
)

from ..experiments.contract import Interval, TheoryPlot
from ..files.store import ensure_directory, write_atomically
from ..plots import Curve, Curves, Dots, Plot

# Two hues that stay apart in grey and for colour-blind readers (Okabe & Ito).
COLOURS = {"sam": "#0072B2", "gd": "#D55E00"}
FALLBACK = ("#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7a5195", "#8c6d31")
FEW = 12  # so many points of a curve are marked one by one
INK, FAINT = "#222222", "#8a8a8a"
HALO = [withStroke(linewidth=2.5, foreground="white")]  # words can be read on a curve

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


def save(plots: tuple[Plot | TheoryPlot, ...], folder: Path) -> list[Path]:
    """Draw every plot to a PNG in the folder; return the paths."""
    ensure_directory(folder)
    paths = []
    for plot in plots:
        paths.append(folder / f"{plot.name}.png")
        if isinstance(plot, TheoryPlot):
            from .theory import PICTURES, drawn

            write_atomically(paths[-1], drawn(PICTURES[plot.shows]))
        else:
            write_atomically(paths[-1], draw(plot))
    return paths


def draw(plot: Plot) -> bytes:
    """Return the PNG of one plot."""
    rows, columns = len(plot.panels), max(len(row) for row in plot.panels)
    dots = any(isinstance(panel, Dots) for row in plot.panels for panel in row)
    height = sum(max(_height(panel) for panel in row) for row in plot.panels)
    with matplotlib.rc_context(STYLE):
        figure = Figure(
            figsize=((5.2 if dots else 3.7) * columns + 0.4, height + 1.3), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False, sharex=False if dots else "col")
        for i, row in enumerate(plot.panels):
            for j, panel in enumerate(row):
                if isinstance(panel, Dots):
                    _dots(axes[i, j], panel, named=j == 0)
                    continue
                _panel(axes[i, j], panel, plot)
                if i == rows - 1:
                    axes[i, j].set_xlabel(plot.xlabel)
                elif j >= len(plot.panels[i + 1]):  # the last of its column
                    axes[i, j].tick_params(labelbottom=True)
                    axes[i, j].set_xlabel(plot.xlabel)
                first = row[0]
                if j > 0 and isinstance(first, Curves) and panel.ylabel == first.ylabel:
                    axes[i, j].set_ylabel("")
            for ax in axes[i, len(row) :]:
                ax.remove()
        handles, labels = _legend(axes)
        if labels and not _fit_beside(plot.title, labels, figure.get_figwidth(), columns):
            figure.set_figwidth(figure.get_figwidth() + 1.0 + 0.085 * max(map(len, labels)))
            figure.legend(handles, labels, loc="outside right upper")
        elif labels:
            figure.legend(handles, labels, loc="outside upper right", ncols=min(len(labels), 4))
        figure.suptitle(plot.title, x=0.01, ha="left", fontsize=14, fontweight="bold", color=INK)
        if plot.caption:
            figure.supxlabel(plot.caption, fontsize=9, color=FAINT, x=0.01, ha="left")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def _height(panel: Curves | Dots) -> float:
    return 2.9 if isinstance(panel, Curves) else max(2.0, 0.42 * len(panel.dots) + 0.9)


def _dots(ax: Axes, panel: Dots, named: bool) -> None:
    """Draw a row for each thing compared, the first on top."""
    roles = list(dict.fromkeys(dot.role for dot in panel.dots))
    for k, dot in enumerate(panel.dots):
        colour = COLOURS.get(dot.role, FALLBACK[roles.index(dot.role) % len(FALLBACK)])
        values = [value for value in dot.values if np.isfinite(value)]
        if not values:
            continue
        ax.plot(values, [k] * len(values), "o", color=colour, alpha=0.35, markersize=4, zorder=3)
        interval = Interval.of(values, *panel.within)
        mean = float(np.mean(values))
        if interval:
            low = max(interval.low, min(values) / 10) if panel.xscale == "log" else interval.low
            ax.plot([low, interval.high], [k, k], color=colour, linewidth=2, zorder=3)
        ax.plot([mean], [k], "o", color=colour, markersize=8, markeredgecolor="white", zorder=4)
    for line in panel.references:
        ax.axvline(line.value, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=2)
        ax.annotate(
            line.label, (line.value, 1), xycoords=("data", "axes fraction"), xytext=(3, -2),
            textcoords="offset points", va="top", fontsize=8.5, color=INK, path_effects=HALO,
        )  # fmt: skip
    ax.set_yticks(range(len(panel.dots)), [dot.label if named else "" for dot in panel.dots])
    ax.set_ylim(len(panel.dots) - 0.5, -0.8)
    ax.tick_params(axis="y", length=0)
    ax.set_title(panel.title, loc="left", color=INK)
    ax.set_xlabel(panel.xlabel)
    shown = [v for dot in panel.dots for v in dot.values if np.isfinite(v)]
    # Below a factor of three there is no power of ten to label, or only one.
    wide = bool(shown) and min(shown) > 0 and max(shown) > 3 * min(shown)
    if panel.xscale == "log" and wide:
        ax.set_xscale("log")
        _few_decades(ax.xaxis, *ax.get_xlim())
    ax.set_axisbelow(True)
    ax.grid(axis="both", color="#eeeeee", linewidth=0.8, zorder=0)


def _panel(ax: Axes, panel: Curves, plot: Plot) -> None:
    if not panel.curves:
        ax.text(0.5, 0.5, "no finished run", ha="center", color=FAINT, transform=ax.transAxes)
    others = [series.role for series in panel.curves if series.role not in COLOURS]
    for series in panel.curves:
        _curves(ax, series, others.index(series.role) if series.role in others else 0)
    for line in panel.references:
        ax.axhline(line.value, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=2)
        ax.annotate(
            line.label,
            (0.985 if line.above else 0.015, line.value),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3 if line.above else -3),
            textcoords="offset points",
            ha="right" if line.above else "left",
            va="bottom" if line.above else "top",
            fontsize=8.5,
            color=INK,
            path_effects=HALO,
        )
    ax.set_title(panel.title, loc="left", color=INK)
    ax.set_ylabel(panel.ylabel)
    log = panel.yscale == "log" and any((series.y > 0).any() for series in panel.curves)
    ax.set_yscale("log" if log else "linear")
    ax.set_axisbelow(True)
    if panel.ylim:
        ax.set_ylim(*panel.ylim)
    if log:
        _log_axis(ax, panel)
    ax.grid(axis="y", color="#eeeeee", linewidth=0.8, zorder=0)
    if plot.xscale == "symlog":  # logarithmic from epoch 1, with room for epoch 0
        ax.set_xscale("symlog", linthresh=1, linscale=0.4)
        ax.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1))
        ax.xaxis.set_major_formatter(FuncFormatter(_epoch))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlim(left=0)
    elif plot.xscale == "log":
        ax.set_xscale("log")
        _few_decades(ax.xaxis, *ax.get_xlim())
    elif panel.curves and len(panel.curves[0].x) <= FEW:
        ax.set_xticks(panel.curves[0].x)


def _few_decades(axis: Axis, low: float, high: float) -> None:
    """Label a logarithmic axis over few decades with plain numbers."""
    if high / low < 300:
        few = MaxNLocator(6, steps=[1, 2, 5, 10])
        axis.set_major_locator(few if high / low < 5 else LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())


def _log_axis(ax: Axes, panel: Curves) -> None:
    """Label 1, 2 and 5 of each decade where few decades are shown, and leave room for lines."""
    low, high = ax.get_ylim()
    if low < 1e-16 * high:  # what has collapsed would leave no room for the rest
        low = 1e-6 * high
    for line in panel.references:
        low = min(low, line.value * (low / high) ** 0.12)
    ax.set_ylim(low, high)
    few = high / low < 300
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    if few:
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def _curves(ax: Axes, series: Curve, k: int) -> None:
    colour = COLOURS.get(series.role, FALLBACK[k % len(FALLBACK)])
    marker = "o" if len(series.x) <= FEW else ""
    ax.plot(
        series.x, series.y.mean(0), marker=marker, color=colour, linewidth=2,
        label=series.label, zorder=3,
    )  # fmt: skip
    if len(series.y) > 1:
        low, high = series.y.min(0), series.y.max(0)
        ax.fill_between(series.x, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)


def _legend(axes: np.ndarray) -> tuple[list[Artist], list[str]]:
    found: dict[str, Artist] = {}
    for ax in axes.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _fit_beside(title: str, labels: list[str], width: float, columns: int) -> bool:
    """Return whether the legend has room in the title's line; a letter is a tenth of an inch.

    >>> _fit_beside("A title", ["sam", "sgd"], width=4.0, columns=1)
    True
    >>> _fit_beside("A title that is longer", ["sam", "sgd"], width=4.0, columns=1)
    False
    >>> [_fit_beside("A title", ["a label of 23 letters .."], 8.0, columns) for columns in (1, 2)]
    [False, True]
    """
    letters = sum(map(len, labels))
    needed = 0.12 * len(title) + 0.085 * letters + 0.6 * len(labels)
    return letters <= 22 * columns and needed <= width


def _epoch(value: float, _: object) -> str:
    """Write 100000 as 10⁵ and small epochs in full."""
    if value < 1000:
        return f"{value:g}"
    return f"$10^{{{round(np.log10(value))}}}$"
