"""Draw pictures: `figure` turns a `Plot` into a matplotlib figure, `draw` into a PNG, PDF or SVG.

Drawing needs no screen, and neither reads nor changes the state of pyplot.
"""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..errors import UserError, shown, unknown
from ..files.store import ensure_directory, write_atomically
from ..plots import Bars, Curves, Dots, Heat, Panel, Plot, Points, Surface
from . import axes, maps
from .style import FAINT, INK, STYLE, Palette, palette

FLAT: dict[type, Any] = {Curves: axes.curves, Dots: axes.dots, Bars: axes.bars, Points: axes.points}


# Formats, and the metadata that would differ from one drawing to the next.
FORMATS: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}


def formats_of(text: str) -> tuple[str, ...]:
    """Read the formats of pictures from a list with commas.

    >>> formats_of("pdf, SVG")
    ('pdf', 'svg')
    """
    if not isinstance(text, str):
        raise UserError(f"formats must be a text such as 'png' or 'png,pdf', got {shown(text)}")
    names = dict.fromkeys(part.strip().lower() for part in text.split(","))
    for name in names:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    return tuple(names)


def save(plots: Iterable[Plot], folder: Path, formats: Iterable[str] = ("png",)) -> list[Path]:
    """Draw every plot to the folder, once in each format; return the paths."""
    ensure_directory(folder)
    paths, formats = [], tuple(formats)
    for plot in plots:
        for name in formats:
            paths.append(folder / f"{plot.name}.{name}")
            write_atomically(paths[-1], draw(plot, name))
    return paths


class Picture(Figure):
    """A figure that a notebook shows, with or without pyplot."""

    def _repr_png_(self) -> bytes:
        return written(self, dpi=90)


def figure(plot: Plot) -> Picture:
    """Return the figure of one plot, to change, show or save."""
    with matplotlib.rc_context(STYLE):
        return _figure(plot)


def draw(plot: Plot, format: str = "png") -> bytes:
    """Return the picture of one plot as the content of a file."""
    return written(figure(plot), dpi=150, format=format)


def written(drawn: Figure, dpi: int, format: str = "png") -> bytes:
    """Return a figure as the content of a file, in the style of all pictures."""
    buffer = io.BytesIO()
    # A fixed salt names the parts of an SVG alike in every drawing.
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "flatlab"}):
        drawn.savefig(buffer, format=format, dpi=dpi, metadata=FORMATS[format])
    return buffer.getvalue()


def _figure(plot: Plot) -> Picture:
    colours = palette(role for row in plot.panels for panel in row for role in _roles(panel))
    columns = list(itertools.zip_longest(*plot.panels))
    widths = [max(_width(panel) for panel in column if panel) for column in columns]
    room = [1.2 * any(getattr(panel, "colour", "") for panel in column) for column in columns]
    heights = [max(_height(panel) for panel in row) for row in plot.panels]
    if len(widths) == len(heights) == 1 and isinstance(plot.panels[0][0], Curves | Points):
        widths, heights = [1.5 * widths[0]], [1.25 * heights[0]]  # a single panel may be larger
    size = (sum(widths) + sum(room) + 0.4, sum(heights) + 1.3)
    figure = Picture(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
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
        if isinstance(panel, Surface):
            maps.surface(ax, panel)
        elif not isinstance(panel, Heat):
            FLAT[type(panel)](ax, panel, colours)
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
    """Return the width of the axes in inches, without the text beside them."""
    if isinstance(panel, Heat):
        columns = panel.values.shape[1]
        named = isinstance(panel.x, tuple) and bool(panel.x)
        return min(max(0.2 * columns, 2.2 if columns > 1 else 0.3), 9.0) if named else 3.8
    return {Curves: 3.7, Points: 3.7, Dots: 5.2, Bars: 1.5, Surface: 5.0}[type(panel)]


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
        lines = _wrapped(plot.caption, figure.get_figwidth())
        figure.supxlabel(lines, fontsize=9, color=FAINT, x=0.01, ha="left")


def _wrapped(caption: str, width: float) -> str:
    r"""Break the lines of a caption that a figure of this width in inches cannot hold.

    >>> _wrapped("one two three", width=0.7)
    'one two\nthree'
    """
    letters = int(width / 0.072)  # the average letter of 9 points
    wrapped = (textwrap.wrap(line, letters) or [""] for line in caption.split("\n"))
    return "\n".join(line for lines in wrapped for line in lines)


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
