"""Tables of plain values as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    r"""Return rows of plain values as a Markdown table; a text stays in one line and one cell.

    x, x_low and x_high become one column "x [low, high]".

    >>> print(markdown([{"name": "a | b", "value": 0.12345}]))
    | name | value |
    |---|---|
    | a \| b | 0.1235 |
    """
    if not rows:
        return "(empty)"
    rows = [with_intervals(row) for row in rows]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(_cell(value) for value in row.values()) + " |" for row in rows]
    return "\n".join(lines)


def number(value: Any) -> str:
    """Write a value for a table: four significant figures, a dash for None."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def interval(measured: float | None, low: float | None, high: float | None) -> str:
    """Write a number with its interval, if it has one.

    >>> interval(0.5, 0.25, 0.75), interval(None, None, None)
    ('0.5 [0.25, 0.75]', '–')
    """
    return (
        number(measured) if low is None else f"{number(measured)} [{number(low)}, {number(high)}]"
    )


def with_intervals(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with x, x_low and x_high combined into one text "x [low, high]"."""
    merged: dict[str, Any] = {}
    for name, value in row.items():
        if f"{name}_low" in row:
            merged[name] = interval(value, row[f"{name}_low"], row[f"{name}_high"])
        elif not name.endswith(("_low", "_high")):
            merged[name] = value
    return merged


def _cell(value: Any) -> str:
    return " ".join(number(value).split()).replace("|", "\\|")
