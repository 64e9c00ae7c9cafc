"""Table 2: learning rates, radii, batch sizes, weight decay and epochs of the experiments."""

from __future__ import annotations

from collections.abc import Iterator

from ...theory.table2 import TABLE2
from ..contract import Line, Trial, claim, equal, printed

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
    yield equal("rows", len(TABLE2), 26)
    ascents = [row for row in TABLE2 if row.rho]
    yield equal(
        "rows with an ascent, 20, that are 1-SAM: batch size 1, no weight decay",
        sum(row.batch_size == 1 and row.weight_decay == 0 for row in ascents),
        len(ascents),
    )
    yield equal(
        "rows without an ascent, 6, that have weight decay",
        sum(row.weight_decay > 0 for row in TABLE2 if row not in ascents),
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
