"""Settings of the figures that compare a small and a large batch size."""

from __future__ import annotations

from typing import Any

from ...specs import spec
from ..sizes import Count
from ._protocol import Cell, Protocol, Rates, rates_of


@spec
class TwoBatches(Protocol):
    """Two batch sizes; defaults are the paper's, epochs are chosen.

    A batch size between the two has epochs between theirs, on logarithmic axes.
    """

    small: Count = 100
    large: Count = 5000
    epochs: Count = 500  # at most, with the small batch size
    large_epochs: Count = 5000


@spec
class TwoGrids(TwoBatches):
    """Two batch sizes with learning rates; the paper does not state its rates in numbers."""

    small_rates: Rates = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
    large_rates: Rates = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)


# Sizes of the presets, the same in all figures with convolutional networks: so runs are shared.
QUICK: dict[str, Any] = {
    **{"seeds": 2, "n": 100, "n_test": 200, "size": 8, "arch": "cnn:channels=[8, 16]"},
    **{"measured": 30, "tolerance": 0.05, "small": 10, "large": 50},
    **{"epochs": 40, "large_epochs": 100},
}
LAB: dict[str, Any] = {
    **{"seeds": 8, "n": 2000, "n_test": 2000, "size": 16, "arch": "cnn"},
    **{"measured": 500, "small": 20, "large": 2000},
    **{"epochs": 150, "large_epochs": 4000},
}
QUICK_RATES: dict[str, Any] = {
    "small_rates": (0.02, 0.05, 0.1),
    "large_rates": (0.1, 0.2, 0.4),
}
LAB_RATES: dict[str, Any] = {
    "small_rates": (0.003, 0.005, 0.01, 0.017, 0.03),
    "large_rates": (0.05, 0.1, 0.2, 0.3, 0.4),
}


def line(s: Any, batch: int, **fields: Any) -> list[Cell]:
    """Return the cells of a batch size, one for each of its learning rates."""
    return [Cell(batch, rate, **fields) for rate in rates_of(s, batch)]
