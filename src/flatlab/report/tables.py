"""Tables from findings: Markdown for documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of plain values as a Markdown table.

    >>> print(markdown([{"name": "a", "value": 0.12345}]))
    | name | value |
    |---|---|
    | a | 0.1235 |
    """
    if not rows:
        return "(empty)"
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(number(value) for value in row.values()) + " |" for row in rows]
    return "\n".join(lines)


def number(value: Any) -> str:
    """Write a value for a table: four significant figures, a dash for None."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
