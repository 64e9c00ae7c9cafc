"""Pictures of readings, as data: densities, values by layer, single numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import UserError
from ..plots import Curve, Curves, Dot, Dots, Panel, Plot
from .contract import Reading

PANELS = 2  # of a row
SHOWN = 40  # rows of a panel
DECADES = 1e-6  # a density is shown down to this share of its largest value


def picture(readings: Mapping[str, Reading]) -> Plot:
    """Return a plot: a panel for each array, and one for all single numbers."""
    arrays = {name: r for name, r in readings.items() if isinstance(r.value, np.ndarray)}
    single = {name: r for name, r in readings.items() if name not in arrays}
    drawn: list[Panel] = [array(name, reading) for name, reading in arrays.items()]
    rows = [tuple(drawn[k : k + PANELS]) for k in range(0, len(drawn), PANELS)]
    if single:
        rows.append((numbers(single),))
    if not rows:
        raise UserError("nothing was measured: there is nothing to draw")
    card = next(iter(readings.values())).card
    caption = f"mean {card.loss} over {card.examples:,} examples, {card.mode} mode"
    title = next(iter(readings)) if len(readings) == 1 else f"{len(readings)} measures"
    return Plot("readings", title, tuple(rows), caption)


def array(name: str, reading: Reading) -> Panel:
    """Return the panel of a density, of values by label, or of many values from the largest on."""
    if "grid" in reading.details:
        return density(name, reading)
    values = np.asarray(reading.value)
    if reading.labels:
        named = dict(zip(reading.labels[:SHOWN], values.tolist(), strict=False))
        left = f", the first {SHOWN} of {len(values)}" if len(values) > SHOWN else ""
        rows = {f"{label}: {value:.3g}": value for label, value in named.items()}
        return _rows(f"{name}{left}", reading.symbol, rows)
    ranks = np.arange(1.0, values.size + 1)
    curve = Curve("", "sam", ranks, np.sort(values)[None, ::-1])
    return Curves(name, reading.symbol, (curve,), xlabel="rank", xscale="log")


def density(name: str, reading: Reading) -> Curves:
    """Return the density of eigenvalues with its 95 % interval, on a logarithmic axis."""
    grid, values = np.asarray(reading.details["grid"]), np.asarray(reading.value)
    least = DECADES * float(values.max())
    heights = np.array([values] if reading.exact else [*reading.interval(), values])
    band = "" if reading.exact else ", with its 95 % interval"
    return Curves(
        f"{name}{band}", f"density {reading.symbol}", (Curve("", "sam", grid, heights),),
        yscale="log", ylim=(least, 2 * float(heights.max())), xlabel="eigenvalue λ",
        xscale="linear",
    )  # fmt: skip


def numbers(readings: Mapping[str, Reading]) -> Dots:
    """Return single numbers as rows; the labels have their errors."""
    rows = {f"{name}: {r.said()}": float(r.value) for name, r in readings.items()}
    return _rows("", "value", rows)


def _rows(title: str, xlabel: str, values: Mapping[str, float]) -> Dots:
    dots = tuple(Dot(label, "sam", (value,)) for label, value in values.items())
    positive = all(value > 0 for value in values.values())
    return Dots(title, xlabel, dots, xscale="log" if positive else "linear")
