"""Pictures as data: what is drawn, where and with which words. `report` draws them.

A `Plot` arranges panels in rows. A panel is one set of axes: `Curves` over a common x, `Dots` and
`Bars` with one row for each thing compared, `Points` in a plane, a `Heat` map or a `Surface`.

A *role* says what a mark stands for and picks its colour: "sam" and "gd", "positive" and
"negative", "neutral" and "reference" have fixed colours; other roles get one each in turn.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .outside.functions import function_named

DRAWN_BY = "flatlab.report:figure"
Array = NDArray[np.floating[Any]]
Scale = Literal["linear", "log", "symlog"]
Limits = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Reference:
    """A value to compare with: a dashed line across the axes, and its label.

    On a vertical axis the label is below the line on the left, or `above` it on the right.
    """

    label: str
    value: float
    above: bool = False


@dataclasses.dataclass(frozen=True)
class Mark:
    """One point of the axes with a label beside it, to its `side`."""

    label: str
    x: float
    y: float
    side: Literal["left", "right"] = "right"


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """y against x, one row of y for each seed: their mean is drawn, and a band over all of them.

    A missing value is NaN. `error`, if given, is the half-width of an error bar at each x. Points
    that are `open` have an open marker.
    """

    label: str
    role: str
    x: Array
    y: Array
    error: Array | None = None
    open: NDArray[np.bool_] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """Axes with curves, horizontal references and single marked points.

    The x axis of "symlog" is for epochs: logarithmic from 1, with room for 0.
    """

    title: str
    ylabel: str
    curves: tuple[Curve, ...]
    references: tuple[Reference, ...] = ()
    yscale: Scale = "linear"
    ylim: Limits | None = None
    xlabel: str = "epoch"
    xscale: Scale = "symlog"
    marks: tuple[Mark, ...] = ()


@dataclasses.dataclass(frozen=True)
class Dot:
    """One row of `Dots`: a label and one value for each seed."""

    label: str
    role: str
    values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Dots:
    """One row for each thing compared: its seeds, their mean and the mean's 95 % interval.

    The references are vertical; the interval is clipped to `within`, the range of the quantity.
    """

    title: str
    xlabel: str
    dots: tuple[Dot, ...]
    references: tuple[Reference, ...] = ()
    xscale: Scale = "linear"
    within: Limits = (-np.inf, np.inf)

    @property
    def rows(self) -> tuple[str, ...]:
        """The labels of the rows, from the top."""
        return tuple(dot.label for dot in self.dots)


@dataclasses.dataclass(frozen=True)
class Bar:
    """One row of `Bars`: a label, a value, and what is written at the bar's end."""

    label: str
    role: str
    value: float
    end: str = ""


@dataclasses.dataclass(frozen=True)
class Bars:
    """One horizontal bar for each thing compared, from zero."""

    title: str
    xlabel: str
    bars: tuple[Bar, ...]

    @property
    def rows(self) -> tuple[str, ...]:
        """The labels of the rows, from the top."""
        return tuple(bar.label for bar in self.bars)


@dataclasses.dataclass(frozen=True, eq=False)
class Cloud:
    """Points of one category, with the half-widths of their error bars and a name for each."""

    label: str
    role: str
    x: Array
    y: Array
    xerror: Array | None = None
    yerror: Array | None = None
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Outlines:
    """Lines in the plane, a row of x and y for each; `filled` shades them down to their chords."""

    role: str
    x: Array
    y: Array
    filled: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Points:
    """A scatter plot: clouds of points in one plane, each a category.

    The references are horizontal. `curves` are drawn through the clouds, as a fit. In a `drawing`
    x and y are lengths in one plane: their scales are equal and no axes are shown.
    """

    title: str
    xlabel: str
    ylabel: str
    clouds: tuple[Cloud, ...]
    references: tuple[Reference, ...] = ()
    curves: tuple[Curve, ...] = ()
    outlines: tuple[Outlines, ...] = ()
    xscale: Scale = "linear"
    yscale: Scale = "linear"
    drawing: bool = False


@dataclasses.dataclass(frozen=True)
class Span:
    """Neighbouring rows or columns that belong together: from `start` to before `stop`."""

    name: str
    start: int
    stop: int


@dataclasses.dataclass(frozen=True, eq=False)
class Heat:
    """A colour for each cell of a matrix; NaN leaves a cell grey.

    Columns (x) and rows (y) have positions, or a name each; an empty name is not written. Rows with
    positions are drawn upwards, rows with names from the top. A colour bar is drawn if `colour`
    says what the colours mean. Where they are `signed`, zero is white and the two signs have
    different colours; the range of colours holds `saturates` per cent of the values. There may be
    contour lines (`levels`), curves such as a boundary that theory predicts, and groups of columns
    and rows (`xspans`, named above the axes, and `yspans`), separated by lines.
    """

    title: str
    xlabel: str
    ylabel: str
    values: Array
    x: Array | tuple[str, ...] = ()
    y: Array | tuple[str, ...] = ()
    colour: str = ""
    signed: bool = False
    saturates: float = 100.0
    cscale: Scale = "linear"
    levels: tuple[Reference, ...] = ()
    curves: tuple[Curve, ...] = ()
    xspans: tuple[Span, ...] = ()
    yspans: tuple[Span, ...] = ()
    xscale: Scale = "linear"
    yscale: Scale = "linear"

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of the rows, from the top; none if rows have positions."""
        return self.y if isinstance(self.y, tuple) else ()


@dataclasses.dataclass(frozen=True, eq=False)
class Surface:
    """z over the plane of x and y, as a loss over two directions: z[i, k] is at (x[k], y[i])."""

    title: str
    xlabel: str
    ylabel: str
    zlabel: str
    x: Array
    y: Array
    z: Array
    zscale: Scale = "linear"
    marks: tuple[Mark, ...] = ()


Panel = Curves | Dots | Bars | Points | Heat | Surface


@dataclasses.dataclass(frozen=True)
class Plot:
    """A picture: rows of panels below a title, and a caption below them."""

    name: str
    title: str
    panels: tuple[tuple[Panel, ...], ...]
    caption: str = ""

    def figure(self) -> Any:
        """Return it as a matplotlib figure.

        The room that draws is asked for by name, so that rooms which make pictures need not see it.
        """
        return function_named(DRAWN_BY)(self)
