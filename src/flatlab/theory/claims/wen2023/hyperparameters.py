"""Table 2: learning rates, radii, batch sizes, weight decay and epochs of the experiments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....schedule import Phase
from ..contract import Line, Trial, claim, equal, printed


class Row(NamedTuple):
    """One row: the panel of a figure, or a later phase of the same."""

    figure: str
    lr: float
    rho: float
    batch_size: int
    weight_decay: float
    epochs: int

    def phase(self) -> Phase:
        """Return it as a phase of a schedule."""
        return Phase(
            "sam" if self.rho else "sgd",
            lr=self.lr,
            epochs=self.epochs,
            rho=self.rho,
            batch_size=self.batch_size,
            weight_decay=self.weight_decay,
        )


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
DESCENT = {"1": "1a", "4": "4a", "5": "5a", "8": "8a", "9": "9a", "11": "11a"}
"""Figures whose caption says gradient descent with weight decay, and the panel that shows it."""


@claim(
    "wen2023.table2",
    "Table 2",
    "text",
    "26 rows of hyper-parameters; the rows without an ascent are full-batch gradient descent "
    "(n = 100) in Figures 1a and 4a, and SGD with batch size 1, 10, 1 and 1 in 5a, 8a, 9a and 11a",
    as_printed="the captions of Figures 5, 8, 9 and 11 say gradient descent",
    errata=("E28",),
    note="Whether the epochs of several rows of one panel are to be added is unsaid.",
)
def hyperparameters(trial: Trial) -> Iterator[Line]:
    """Compare the rows with the text, which trains by 1-SAM and by descent with weight decay."""
    phases = [row.phase() for row in TABLE2]
    yield equal("rows, each a phase that flatlab can run", len(phases), 26)
    ascents = [phase for phase in phases if phase.algorithm == "sam"]
    yield equal(
        "rows with an ascent, 20, that are 1-SAM: batch size 1, no weight decay",
        sum(phase.batch_size == 1 and phase.weight_decay == 0 for phase in ascents),
        len(ascents),
    )
    yield equal(
        "rows without an ascent, 6, that have weight decay",
        sum(phase.weight_decay > 0 for phase in phases if phase not in ascents),
        len(DESCENT),
    )
    descents = {figure: _batch_size(panel) for figure, panel in DESCENT.items()}
    full = [figure for figure, size in descents.items() if size == 100]
    yield equal("Figures whose descent has the full batch: 1 and 4", len(full), 2)
    for figure, size in descents.items():
        if figure not in full:
            yield printed(
                equal(f"batch size of the gradient descent of Figure {figure}", size, 100)
            )


def _batch_size(panel: str) -> int:
    (row,) = (row for row in TABLE2 if row.figure == panel and row.rho == 0)
    return row.batch_size
