"""Drawing panels with values over a plane: `Heat` and `Surface`."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..plots import Array, Heat, Surface
from .axes import curve
from .style import HALO, INK, ORANGE, Palette, colormap, few_decades, write


def heat(ax: Axes, panel: Heat, colours: Palette) -> Any:
    """Draw a heat map; return the image, for its colour bar."""
    norm = _norm(panel)
    values = panel.values if panel.values.size else np.zeros((1, 1))
    if isinstance(norm, LogNorm):
        values = np.maximum(values, float(norm.vmin or 0.0))  # draw zero too, not as a gap
    colour: dict[str, Any] = {"cmap": colormap(panel.signed), "norm": norm}
    if isinstance(panel.x, tuple) and isinstance(panel.y, tuple):
        image: Any = ax.imshow(np.ma.masked_invalid(values), aspect="auto", **colour)
    else:
        x, y = _positions(panel.x, values.shape[1]), _positions(panel.y, values.shape[0])
        image = ax.pcolormesh(
            x, y, np.ma.masked_invalid(values), shading="nearest", rasterized=True, **colour
        )
        if isinstance(panel.y, tuple):
            ax.invert_yaxis()
        ax.set_xscale(panel.xscale)
        ax.set_yscale(panel.yscale)
        few_decades(ax.xaxis, ax.yaxis)
        for level in panel.levels:
            lines = ax.contour(x, y, values, [level.value], colors=INK, linewidths=1.2)
            ax.clabel(lines, fmt={level.value: level.label}, fontsize=8.5)
        limits = ax.get_xlim(), ax.get_ylim()
        for each in panel.curves:
            curve(ax, each, colours[each.role])
        ax.set(xlim=limits[0], ylim=limits[1])  # a boundary may extend beyond the map
    _name_cells(ax, panel)
    for spine in ax.spines.values():
        spine.set_visible(True)
    ax.set_title(panel.title, loc="left", color=INK, pad=22 if _named_spans(panel) else None)
    ax.set_xlabel(panel.xlabel)
    ax.set_ylabel(panel.ylabel)
    return image


def _positions(given: Array | tuple[str, ...], count: int) -> Array:
    return np.arange(count, dtype=float) if isinstance(given, tuple) else given


def _norm(panel: Heat) -> Normalize:
    """Return the range of the colours."""
    values = panel.values[np.isfinite(panel.values)]
    if panel.signed:
        size = np.abs(values[values != 0])
        most = float(np.percentile(size, panel.saturates)) if len(size) else 1.0
        return Normalize(-most, most)
    if panel.cscale == "log":
        values = values[values > 0]
    if not len(values):
        return Normalize(0, 1)
    low, high = float(values.min()), float(np.percentile(values, panel.saturates))
    return LogNorm(low, high) if panel.cscale == "log" and low < high else Normalize(low, high)


def _named_spans(panel: Heat) -> bool:
    return any(span.name for span in panel.xspans)


def _name_cells(ax: Axes, panel: Heat) -> None:
    """Write the names of columns and rows, and the spans of columns."""
    if isinstance(panel.x, tuple):
        shown = [k for k, name in enumerate(panel.x) if name]
        ax.set_xticks(shown, [panel.x[k] for k in shown], fontsize=7.5, rotation=90)
    if isinstance(panel.y, tuple):
        ax.set_yticks(range(len(panel.y)), panel.y)
        ax.tick_params(axis="y", labelsize=8, length=0)
    for span in panel.xspans:
        if span.start:
            ax.axvline(span.start - 0.5, color=INK, linewidth=0.7)
        middle, size = (span.start + span.stop - 1) / 2, 8.5 if len(panel.xspans) <= 4 else 6
        style: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "path_effects": None}
        write(ax, span.name, (middle, 1), (0, 4), ha="center", fontsize=size, **style)


def surface(ax: Any, panel: Surface) -> None:
    """Draw a surface above its contour lines, on axes with three dimensions."""
    log = panel.zscale == "log"
    z = np.log10(np.where(panel.z > 0, panel.z, np.nan)) if log else panel.z
    x, y = np.meshgrid(panel.x, panel.y)
    low, high = float(np.nanmin(z)), float(np.nanmax(z))
    floor = low - 0.35 * (high - low if high > low else 1.0)
    shades = colormap(signed=False)
    ax.plot_surface(
        x, y, z, cmap=shades, rcount=80, ccount=80, linewidth=0.15, edgecolor=(1, 1, 1, 0.35)
    )
    if high > low:
        ax.contour(x, y, z, 10, cmap=shades, offset=floor, linewidths=1)
    for mark in panel.marks:
        at = _height(panel, z, mark.x, mark.y)
        ax.plot([mark.x] * 2, [mark.y] * 2, [floor, at], color=ORANGE, linewidth=1, zorder=9)
        ax.plot([mark.x], [mark.y], [at], "o", color=ORANGE, markeredgecolor="white", zorder=10)
        style = {"fontsize": 9, "color": INK, "zorder": 11, "path_effects": HALO}
        ha = "right" if mark.side == "left" else "left"
        ax.text(mark.x, mark.y, at, f"  {mark.label}", ha=ha, **style)
    ax.set_zlim(floor, high)
    ax.set_title(panel.title, loc="left", color=INK)
    ax.set(xlabel=panel.xlabel, ylabel=panel.ylabel, zlabel=panel.zlabel)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.set_pane_color((1, 1, 1, 0))
        axis.labelpad = 8
    ticks = MaxNLocator(5, integer=log).tick_values(low, high)
    ax.set_zticks([tick for tick in ticks if low <= tick <= high])  # no ticks below the surface
    ax.set_box_aspect(None, zoom=0.85)  # leaves room for the names of the axes
    if log:
        ax.zaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$10^{{{value:g}}}$"))
    ax.view_init(elev=28, azim=-58)


def _height(panel: Surface, z: Array, x: float, y: float) -> float:
    """Return z at the grid point nearest to (x, y)."""
    return float(z[np.abs(panel.y - y).argmin(), np.abs(panel.x - x).argmin()])
