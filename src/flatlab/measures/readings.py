"""The answer of one measuring call: readings by name, as a table, JSON or pandas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..outside.tables import html_table, text_table
from .contract import Reading

if TYPE_CHECKING:
    import pandas as pd


LINES = 12  # layers that are printed
INLINE = 4  # up to this many layers are printed in the measure's own row


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
        few = [f"{name}: {reading.said()}" for name, reading in list(self.items())[:5]]
        more = [f"and {len(self) - 5} more"] if len(self) > 5 else []
        return f"Readings({'; '.join([*few, *more])})"

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        left_out = (f"left out {name}: {reason}" for name, reason in self.skipped.items())
        tables = [html_table(self.rows())]
        for name, lines in self.layers().items():
            rows = [{"layer": layer, "value": said} for layer, said in lines]
            tables.append(html_table(rows, name))
        return "".join([*tables, html_table([], notes=[self.footnote(), *left_out])])

    def rows(self) -> list[dict[str, Any]]:
        """Return one row of plain values for each reading, for a table."""
        return [
            {
                "measure": name,
                "value": reading.said(),
                "method": reading.how(),
                "products": reading.card.products,
                "seconds": round(reading.card.seconds, 2),
            }
            for name, reading in self.items()
        ]

    def layers(self) -> dict[str, list[tuple[str, str]]]:
        """Return the values of layers that are printed below the table, by reading: name and value.

        A list of more than a dozen is cut, and its last line counts the rest.
        """
        found = {name: _layers(reading) for name, reading in self.items()}
        return {
            name: lines if len(lines) <= LINES else [*lines[:LINES], ("…", _more(lines))]
            for name, lines in found.items()
            if lines
        }

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
        rows = self.rows()
        if not rows:
            return self.footnote()
        return "\n".join([text_table(rows, right=("products", "seconds")), *self.lines()])

    def lines(self) -> list[str]:
        """Return what is printed below the table: the layers, and what all readings share."""
        found = []
        for name, layers in self.layers().items():
            width = max(len(layer) for layer, _ in layers)
            found += [f"{name}:", *(f"  {layer.ljust(width)}  {said}" for layer, said in layers)]
        return [*found, self.footnote()]

    def plot(self) -> Any:
        """Return a matplotlib figure: a panel for each array, and one for all single numbers."""
        from .pictures import picture

        return picture(self).figure()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {name: reading.to_dict() for name, reading in self.items()}

    def to_json(self) -> str:
        """Return a JSON document."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with a row for each number: measure, label, value, stderr, low, high."""
        import pandas as pd

        names = ("measure", "label", "value", "stderr", "low", "high", "exact", "method")
        found = []
        for name, reading in self.items():
            low, high = reading.interval()
            values = np.atleast_1d(reading.value)
            labels = reading.labels or [""] * len(values)
            columns = np.broadcast_arrays(values, reading.stderr, low, high)
            for label, *numbers in zip(labels, *columns, strict=True):
                cells = (name, label, *map(float, numbers), reading.exact, reading.method)
                found.append(dict(zip(names, cells, strict=True)))
        return pd.DataFrame(found)


def _layers(reading: Reading) -> list[tuple[str, str]]:
    """Return name and value of each layer, unless they are in the reading's own text."""
    ranges = reading.details.get("layers")
    if ranges is not None:
        return [(name, f"from {low:.4g} to {high:.4g}") for name, (low, high) in ranges.items()]
    return reading.parts() if len(reading.labels) > INLINE else []


def _more(lines: list[tuple[str, str]]) -> str:
    return f"and {len(lines) - LINES} more"
