"""The files next to `results.json`: pictures, the page results.md and the table verdicts.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from ..experiments.results import Judged, Results
from ..files.store import write_atomically
from .figures import save
from .results_page import page

COLUMNS = (
    *("claim", "statement", "paper", "measured", "low", "high"),
    *("verdict", "reason", "because", "experiment", "preset"),
)


def publish(results: Results) -> None:
    """Draw the pictures of results, and write the page and the table, in the results' folder."""
    folder = Path(results.folder)
    for part in results.experiments:
        if part.figures:
            save(results.plots[part.id], folder / Path(part.figures[0]).parent)
    write_atomically(folder / "verdicts.csv", as_csv(results.verdicts).encode())
    write_atomically(folder / "results.md", page(results).encode())


def as_csv(verdicts: Sequence[Judged]) -> str:
    """Return the table of verdicts as CSV; numbers keep all digits, None is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(v.model_dump() for v in verdicts)
    return text.getvalue()
