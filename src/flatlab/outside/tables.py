"""Tables of plain values: as text, in a notebook, and as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any


def text_table(rows: Sequence[Mapping[str, Any]], right: Collection[str] = ()) -> str:
    """Return rows of plain values as lines of text; the columns `right` are right-justified.

    >>> print(text_table([{"name": "a", "n": 2}, {"name": "bcdef", "n": 10}], right=["n"]))
    name    n
    ─────  ──
    a       2
    bcdef  10
    """
    columns = {name: [name, *(number(row[name]) for row in rows)] for name in rows[0]}
    for name, cells in columns.items():
        width = max(map(len, cells))
        justify = str.rjust if name in right else str.ljust
        columns[name] = [justify(cell, width) for cell in cells]
        columns[name].insert(1, "─" * width)
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns.values(), strict=True))


def html_table(
    rows: Sequence[Mapping[str, Any]], title: str = "", notes: Iterable[str] = ()
) -> str:
    """Return rows of plain values for a notebook, with a title above and notes below.

    >>> html_table([{"a": 1.23456}], notes=["1 < 2"])
    '<table><tr><th>a</th></tr><tr><td>1.235</td></tr></table><div>1 &lt; 2</div>'
    """
    above = f"<div><b>{escape(title)}</b></div>" if title else ""
    below = "".join(f"<div>{escape(note)}</div>" for note in notes)
    if not rows:
        return above + below
    lines = [[f"<th>{escape(str(name))}</th>" for name in rows[0]]]
    lines += [[f"<td>{escape(number(value))}</td>" for value in row.values()] for row in rows]
    table = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return f"{above}<table>{table}</table>{below}"


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
