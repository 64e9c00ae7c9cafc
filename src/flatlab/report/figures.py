"""Draw pictures: `draw` turns a `Plot` into a PNG."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..files.store import ensure_directory, write_atomically
from ..plots import Bars, Curves, Dots, Heat, Panel, Plot, Points, Surface
from . import axes, maps
from .style import FAINT, INK, STYLE, Palette, palette


def save(plots: Iterable[Plot], folder: Path) -> list[Path]:
    """Draw every plot to a PNG in the folder; return the paths."""
    ensure_directory(folder)
    paths = []
    for plot in plots:
        paths.append(folder / f"{plot.name}.png")
        write_atomically(paths[-1], draw(plot))
    return paths


def draw(plot: Plot) -> bytes:
    """Return the PNG of one plot."""
    with matplotlib.rc_context(STYLE):
        figure = _figure(plot)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def _figure(plot: Plot) -> Figure:
    colours = palette(role for row in plot.panels for panel in row for role in _roles(panel))
    columns = list(itertools.zip_longest(*plot.panels))
    widths = [max(_width(panel) for panel in column if panel) for column in columns]
    room = [max(_room(panel) for panel in column if panel) for column in columns]
    heights = [max(_height(panel) for panel in row) for row in plot.panels]
    if len(widths) == len(heights) == 1 and isinstance(plot.panels[0][0], Curves | Points):
        widths, heights = [1.5 * widths[0]], [1.25 * heights[0]]  # a single panel may be larger
    size = (sum(widths) + sum(room) + 0.4, sum(heights) + 1.3)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.add_gridspec(
        len(heights), len(widths), width_ratios=widths, height_ratios=heights
    )
    drawn: dict[tuple[int, int], Axes] = {}
    for i, row in enumerate(plot.panels):
        for j, panel in enumerate(row):
            solid = {"projection": "3d"} if isinstance(panel, Surface) else {}
            drawn[i, j] = figure.add_subplot(grid[i, j], **solid)
        for start, stop in _same_rows(row):
            _row(figure, row[start:stop], [drawn[i, j] for j in range(start, stop)], colours)
        for j, panel in enumerate(row):
            flat = isinstance(panel, Curves | Points | Heat)
            if j and flat and drawn[i, j].get_ylabel() == drawn[i, 0].get_ylabel():
                drawn[i, j].set_ylabel("")
            above = plot.panels[i - 1][j] if i and j < len(plot.panels[i - 1]) else None
            if isinstance(panel, Curves) and isinstance(above, Curves):
                _share_x(drawn[i - 1, j], above, drawn[i, j], panel)
    _title(figure, plot, list(drawn.values()), len(widths))
    return figure


def _row(figure: Figure, row: tuple[Panel, ...], where: list[Axes], colours: Palette) -> None:
    """Draw a row of panels. Neighbours with the same rows show the rows' names once."""
    for k, (panel, ax) in enumerate(zip(row, where, strict=True)):
        if isinstance(panel, Curves):
            axes.curves(ax, panel, colours)
            ax.set_xlabel(panel.xlabel)
        elif isinstance(panel, Dots):
            axes.dots(ax, panel, colours)
        elif isinstance(panel, Bars):
            axes.bars(ax, panel, colours)
        elif isinstance(panel, Points):
            axes.points(ax, panel, colours)
        elif isinstance(panel, Surface):
            maps.surface(ax, panel)
        else:
            image = maps.heat(ax, panel, colours)
            if panel.colour:
                extend = "neither" if panel.saturates == 100 else "both" if panel.signed else "max"
                figure.colorbar(image, ax=where, label=panel.colour, shrink=0.6, extend=extend)
            for span in panel.yspans[1:]:
                for beside in where:
                    beside.axhline(span.start - 0.5, color=INK, linewidth=0.7)
        if k:
            ax.tick_params(axis="y", labelleft=False)


def _same_rows(row: tuple[Panel, ...]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each group of neighbouring panels with the same rows."""
    start = 0
    for stop in range(1, len(row) + 1):
        names = getattr(row[start], "rows", ())
        if stop == len(row) or not names or getattr(row[stop], "rows", ()) != names:
            yield start, stop
            start = stop


def _share_x(upper: Axes, above: Curves, lower: Axes, below: Curves) -> None:
    """Give curves above one another a common x axis, named below the last panel."""
    if (above.xlabel, above.xscale) == (below.xlabel, below.xscale):
        limits = [*upper.get_xlim(), *lower.get_xlim()]
        lower.sharex(upper)
        lower.set_xlim(min(limits), max(limits))
        upper.tick_params(labelbottom=False)
        upper.set_xlabel("")


def _roles(panel: Panel) -> Iterator[str]:
    for field in ("curves", "dots", "bars", "outlines", "clouds"):
        for part in getattr(panel, field, ()):
            yield part.role


def _width(panel: Panel) -> float:
    """Return the width of the axes in inches; `_room` is the width of the text beside them."""
    if isinstance(panel, Heat):
        columns = panel.values.shape[1]
        named = isinstance(panel.x, tuple) and bool(panel.x)
        return min(max(0.2 * columns, 2.2 if columns > 1 else 0.3), 9.0) if named else 3.8
    return {Curves: 3.7, Points: 3.7, Dots: 5.2, Bars: 1.5, Surface: 5.0}[type(panel)]


def _room(panel: Panel) -> float:
    return (1.2 if panel.colour else 0.0) if isinstance(panel, Heat) else 0.0


def _height(panel: Panel) -> float:
    if isinstance(panel, Dots):
        return max(2.0, 0.42 * len(panel.dots) + 0.9)
    if isinstance(panel, Bars) or (isinstance(panel, Heat) and panel.rows):
        return 0.17 * max(len(panel.rows), 12) + 0.8
    if isinstance(panel, Heat):
        return 5.1 if isinstance(panel.x, tuple) else 3.2
    return 4.4 if isinstance(panel, Surface) else 2.9


def _title(figure: Figure, plot: Plot, drawn: list[Axes], columns: int) -> None:
    """Write the title, the caption and one legend for all panels."""
    handles, labels = _legend(drawn)
    if labels and not _fit_beside(plot.title, labels, figure.get_figwidth(), columns):
        figure.set_figwidth(figure.get_figwidth() + 1.0 + 0.085 * max(map(len, labels)))
        figure.legend(handles, labels, loc="outside right upper")
    elif labels:
        figure.legend(handles, labels, loc="outside upper right", ncols=min(len(labels), 4))
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=14, fontweight="bold", color=INK)
    if plot.caption:
        figure.supxlabel(plot.caption, fontsize=9, color=FAINT, x=0.01, ha="left")


def _legend(drawn: list[Axes]) -> tuple[list[Artist], list[str]]:
    found: dict[str, Any] = {}
    for ax in drawn:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _fit_beside(title: str, labels: list[str], width: float, columns: int) -> bool:
    """Return whether the legend fits beside the title; a letter is a tenth of an inch wide.

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
