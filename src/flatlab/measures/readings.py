"""The answer of one measuring call: readings by name, as a table, JSON or pandas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .contract import Reading

if TYPE_CHECKING:
    import pandas as pd


class Readings(Mapping[str, Reading]):
    """Readings by name. Printing it prints the table."""

    def __init__(self, readings: Mapping[str, Reading], skipped: Mapping[str, str] | None = None):
        """Hold readings, and the reasons why other measures have none."""
        self._readings, self.skipped = dict(readings), dict(skipped or {})

    def __getitem__(self, name: str) -> Reading:
        return self._readings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._readings)

    def __len__(self) -> int:
        return len(self._readings)

    def __repr__(self) -> str:
        return str(self)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row of plain values for each reading, for a table."""
        return [
            {
                "measure": name,
                "value": f"{reading.symbol} = {reading.text()}",
                "method": reading.how(),
                "products": reading.card.products,
                "seconds": round(reading.card.seconds, 2),
            }
            for name, reading in self.items()
        ]

    def footnote(self) -> str:
        """Return what all readings share."""
        if not self:
            return "nothing was measured"
        card = next(iter(self.values())).card
        raised = "" if card.dtype == card.model_dtype else f" (the model is {card.model_dtype})"
        return (
            f"mean {card.loss} over {card.examples:,} examples, {card.parameters} "
            f"({card.size:,} numbers), {card.mode} mode, {card.dtype}{raised}"
        )

    def __str__(self) -> str:
        rows = [{name: f"{cell}" for name, cell in row.items()} for row in self.rows()]
        if not rows:
            return self.footnote()
        widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
        right = ("products", "seconds")

        def line(cells: Mapping[str, str]) -> str:
            return "  ".join(
                text.rjust(widths[name]) if name in right else text.ljust(widths[name])
                for name, text in cells.items()
            ).rstrip()

        rule = "  ".join("─" * width for width in widths.values())
        head = line({name: name for name in widths})
        return "\n".join([head, rule, *map(line, rows), self.footnote()])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {name: reading.to_dict() for name, reading in self.items()}

    def to_json(self) -> str:
        """Return a JSON document."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with a row for each number: measure, label, value, stderr, low, high."""
        import pandas as pd

        found = []
        for name, reading in self.items():
            low, high = reading.interval()
            values = np.atleast_1d(reading.value)
            labels = reading.labels or [""] * len(values)
            columns = np.broadcast_arrays(values, reading.stderr, low, high)
            for label, value, stderr, bottom, top in zip(labels, *columns, strict=True):
                found.append(
                    {
                        "measure": name,
                        "label": label,
                        "value": float(value),
                        "stderr": float(stderr),
                        "low": float(bottom),
                        "high": float(top),
                        "exact": reading.exact,
                        "method": reading.method,
                    }
                )
        return pd.DataFrame(found)
