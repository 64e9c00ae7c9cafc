"""The result of a benchmark: rows, each with its target, and their table."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.markup import escape
from rich.table import Table

_RELATIONS = {">=": operator.ge, "<=": operator.le, "<": operator.lt}

Tell = Callable[[str], None]
"""Shows the current activity while a benchmark runs."""


@dataclass(frozen=True)
class Target:
    """A bound on a row's ratio or value.

    >>> str(Target("ratio", ">=", 400))
    'ratio >= 400'
    """

    of: Literal["ratio", "value"]
    relation: Literal[">=", "<=", "<"]
    bound: float

    def __str__(self) -> str:
        return f"{self.of} {self.relation} {self.bound:g}"


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes:
        name: The benchmark it belongs to, as for `--only`.
        what: What was measured, in words.
        value: The figure, or None if it was not measured; `what` then says why.
        unit: The unit of the value.
        ratio: The competitor's figure divided by this one, unless `what` says otherwise.
        target: The bound to meet, if any.
    """

    name: str
    what: str
    value: float | None = None
    unit: str | None = None
    ratio: float | None = None
    target: Target | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.target is None:
            return None
        measured = getattr(self, self.target.of)
        return measured is not None and _RELATIONS[self.target.relation](
            measured, self.target.bound
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the row as in the JSON document."""
        return {
            "name": self.name,
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "ratio": self.ratio,
            "target": str(self.target) if self.target else None,
            "reached": self.reached,
        }


def table(rows: Sequence[Row]) -> Table:
    """Return the rows as a table with a mark for each target."""
    made = Table()
    for heading in ("benchmark", "what"):
        made.add_column(heading)
    for heading in ("value", "unit", "ratio", "target", ""):
        made.add_column(heading, justify="right", no_wrap=True)
    marks = {True: "[green]✓[/]", False: "[red]✗ missed[/]", None: ""}
    previous = None
    for row in rows:
        if previous is not None and row.name != previous:
            made.add_section()
        cells = [row.name if row.name != previous else "", row.what]
        cells += [number(row.value), row.unit or "", number(row.ratio)]
        cells += [str(row.target) if row.target else ""]
        made.add_row(*map(escape, cells), marks[row.reached])
        previous = row.name
    return made


def number(value: float | None) -> str:
    """Write a figure with three digits; from a hundred on, as a whole number.

    >>> number(1339.6), number(0.12345), number(None)
    ('1,340', '0.123', '')
    """
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
