"""Numbers that Wen, Li & Ma print: Table 2, with one row for each phase, and Figure 2b."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One row: the panel of a figure, or a later phase of the same panel."""

    figure: str
    lr: float
    rho: float
    batch_size: int
    weight_decay: float
    epochs: int


TABLE2 = (
    Row("1a", 0.01, 0, 100, 0.05, 100_000),
    Row("1b", 0.01, 0.05, 1, 0, 100_000),
    Row("2a", 0.005, 0.1, 1, 0, 100_000),
    Row("2a", 0.003, 1, 1, 0, 100_000),
    Row("4a", 0.01, 0, 100, 0.05, 100_000),
    Row("4b", 0.01, 0.05, 1, 0, 200_000),
    Row("4b", 0.01, 0.1, 1, 0, 400_000),
    Row("5a", 0.001, 0, 1, 0.05, 100_000),
    Row("5b", 0.0005, 0.05, 1, 0, 100_000),
    Row("5b", 0.001, 0.1, 1, 0, 100_000),
    Row("5b", 0.005, 1, 1, 0, 5_000),
    Row("6a", 0.1, 0.1, 1, 0, 100_000),
    Row("6b", 0.01, 0.1, 1, 0, 500),
    Row("6b", 0.01, 0.5, 1, 0, 500),
    Row("6b", 0.01, 1, 1, 0, 500),
    Row("7a", 0.01, 0.2, 1, 0, 100_000),
    Row("7b", 0.01, 0.2, 1, 0, 100_000),
    Row("8a", 0.1, 0, 10, 0.01, 100_000),
    Row("8b", 0.1, 0.2, 1, 0, 100_000),
    Row("9a", 0.01, 0, 1, 0.05, 100_000),
    Row("9b", 0.1, 0.2, 1, 0, 100_000),
    Row("10a", 0.1, 0.2, 1, 0, 40_000),
    Row("10b", 1, 0.5, 1, 0, 1_000),
    Row("10b", 1, 1, 1, 0, 100_000),
    Row("11a", 0.01, 0, 1, 0.05, 100_000),
    Row("11b", 0.01, 0.05, 1, 0, 100_000),
)

# Figure 2b: W_{1,i}[1], W_{1,i}[2] and ‖W_{1,i}[3:d]‖ of the four largest neurons.
NEURONS = (
    (18.581, -18.582, 0.02),
    (-14.363, -14.363, 0.03),
    (13.768, 13.771, 0.03),
    (-12.601, 12.601, 0.01),
)
# Norms of the first two columns of W1, and the largest norm of the others.
COLUMN_NORMS = (42.47, 42.48, 5.65)
