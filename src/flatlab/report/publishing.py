"""The files next to `results.json`: pictures, the page, settings, and tables as CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..experiments.results import Judged, Results
from ..experiments.setting import file_name
from ..files.store import ensure_directory, write_atomically, write_json
from .figures import save
from .latex import latex

COLUMNS = (
    *("claim", "statement", "paper", "measured", "low", "high"),
    *("verdict", "reason", "because", "experiment", "preset"),
)
SHORT = ("claim", "paper", "measured", "low", "high", "verdict")  # columns that fit on paper
TABLES = "tables"


def publish(results: Results, formats: Sequence[str] = ()) -> None:
    """Draw the pictures of results, and write the page, the settings and the tables beside them.

    Pictures are drawn as PNG, which the page shows, and in further `formats`.
    """
    from .results_page import page  # here, as it is a program of its own too

    folder = Path(results.folder)
    for part in results.experiments:
        if part.figures:
            drawn = dict.fromkeys(("png", *formats))
            save(results.plots[part.id], folder / Path(part.figures[0]).parent, drawn)
    write_json(folder / "settings.json", settings(results))
    write_atomically(folder / "verdicts.csv", as_csv(results.verdicts).encode())
    write_atomically(folder / "verdicts.tex", _verdicts(results).encode())
    ensure_directory(folder / TABLES)
    for name, (rows, setting) in tables(results).items():
        write_atomically(folder / TABLES / f"{name}.csv", rows_as_csv(rows).encode())
        write_atomically(folder / TABLES / f"{name}.tex", latex(rows, setting).encode())
    write_atomically(folder / "results.md", page(results).encode())


def settings(results: Results) -> dict[str, Any]:
    """Return what was asked for, and the settings of each experiment."""
    return {
        "ids": list(results.ids),
        "preset": results.preset,
        "changes": results.changes,
        "experiments": {part.id: part.settings for part in results.experiments},
    }


def tables(results: Results) -> dict[str, tuple[list[dict[str, Any]], str]]:
    """Return file name → the rows of a table and the setting they were measured in.

    A name starts with that of its experiment; with several sources, the source comes first.
    """
    sources = {part.id.partition("/")[0] for part in results.experiments}
    return {
        re.sub(r"[^\w.-]+", "-", file_name(part.id, name, len(sources) > 1)): (
            rows,
            f"{part.id}. {part.setting}".strip(),
        )
        for part in results.experiments
        for name, rows in part.tables.items()
    }


def as_csv(verdicts: Sequence[Judged]) -> str:
    """Return the table of verdicts as CSV; numbers keep all digits, None is empty."""
    return rows_as_csv([v.model_dump() for v in verdicts], COLUMNS)


def rows_as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Return rows as CSV, by default with all their columns; numbers keep all digits."""
    columns = columns or list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _verdicts(results: Results) -> str:
    """Return the table of verdicts as LaTeX, with the interval in one column."""
    rows = []
    for v in results.verdicts:
        row = {name: getattr(v, name) for name in SHORT}
        row |= {"measured_low": row.pop("low"), "measured_high": row.pop("high")}
        rows.append({**row, "paper": str(v.paper)})
    said = [f"{part.id}: {part.setting}" for part in results.experiments if part.setting]
    return latex(rows, "\n".join([f"{results.name}, preset {results.preset}", *said]))
