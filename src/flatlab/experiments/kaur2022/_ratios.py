"""Settings of the figures with a fixed ratio of batch size to learning rate."""

from __future__ import annotations

from typing import Any

from ...specs import spec
from ._batches import LAB, QUICK, TwoBatches
from ._protocol import Cell, Counts, Rates


@spec
class FixedRatios(TwoBatches):
    """Ratios α = B/η and batch sizes; each pair has the learning rate B/α.

    The small and the large batch size only decide how many epochs those between them have.
    """

    ratios: Rates = (20_000.0, 40_000.0)
    batches: Counts = (100, 200, 300, 400, 500)


PRESETS = {
    "quick": FixedRatios(ratios=(200.0, 400.0), batches=(10, 20, 30), **QUICK),
    "lab": FixedRatios(ratios=(2000.0, 4000.0), batches=(20, 40, 80), **LAB),
    "paper": FixedRatios(),
}


def line(s: Any, ratio: float) -> list[Cell]:
    """Return the cells of a ratio, by batch size.

    >>> [cell.lr for cell in line(PRESETS["lab"], 2000.0)]
    [0.01, 0.02, 0.04]
    """
    return [Cell(batch, float(f"{batch / ratio:.6g}")) for batch in sorted(s.batches)]
