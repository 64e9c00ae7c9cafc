"""What the terminal shows: progress of running jobs, tables, verdicts. Only `cli` uses it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from .experiments.contract import Verdict
from .report.tables import number

# A file or a pipe has no width of its own.
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120)
MARKS = {True: "[green]holds[/]", False: "[red]fails[/]", None: "[yellow]not assessed[/]"}


class JobProgress:
    """One line a running job: bar, time left, loss, trace, test error; one line for all of them.

    Shows nothing unless stdout is a terminal and `quiet` is off.
    """

    def __init__(self, total: int, quiet: bool):
        self.shown = sys.stdout.isatty() and not quiet
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("[dim]{task.fields[left]}[/]"),
            TextColumn("{task.fields[now]}"),
            console=Console(stderr=True),
            disable=not self.shown,
            transient=True,
        )
        self.started: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.tasks: dict[str, TaskID] = {}
        self.total, self.finished, self.begun = total, 0, time.monotonic()
        self.all = self.progress.add_task(
            f"{total} runs", total=total, left="", now="", visible=total > 1
        )

    def __enter__(self) -> JobProgress:
        self.progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.__exit__(kind, value, trace)

    def update(self, name: str, kind: str, info: Mapping[str, Any]) -> None:
        """Take an event of the executor, or "reused" for a run that was done before."""
        if kind == "started":
            self.started[name] = time.monotonic()
            self.tasks[name] = self.progress.add_task(
                f"  {name}", total=1, left="", now="starting (compiles on first use)"
            )
        elif kind == "progress":
            done = info["epoch"] / info["epochs"]
            # A resumed run starts part of the way: time left is judged by this sitting's share.
            first = self.first.setdefault(name, done)
            spent = time.monotonic() - self.started[name]
            left = spent / (done - first) * (1 - done) if done > first else None
            self.progress.update(self.tasks[name], completed=done, left=_left(left), now=_now(info))
        elif kind == "reused":
            self.total -= 1
            self.progress.update(self.all, total=self.total, description=f"{self.total} runs")
        else:
            self.finished += 1
            if name in self.tasks:  # one that could not be started has none
                self.progress.remove_task(self.tasks.pop(name))
            spent = time.monotonic() - self.begun
            self.progress.update(
                self.all,
                completed=self.finished,
                left=_left(spent / self.finished * (self.total - self.finished)),
            )


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} left"


def _now(info: Mapping[str, Any]) -> str:
    names = {"train_loss": "loss", "trace": "trace", "test_error": "test error"}
    return "  ".join(f"{label} {info[name]:.3g}" for name, label in names.items() if name in info)


def print_line(text: str) -> None:
    """Print text as it is: no markup, no colours, no line breaks of ours within a path."""
    out.print(text, soft_wrap=True, markup=False, highlight=False)


def print_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print rows of plain values; x, x_low and x_high become one column "x [low, high]"."""
    if not rows:
        out.print(f"{title or 'table'}: (empty)")
        return
    rows = [_with_intervals(row) for row in rows]
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    texts = [[number(value) for value in row.values()] for row in rows]
    names = [name.replace("_", " ") for name in rows[0]]
    widths = _widths([[name, *cells] for name, *cells in zip(names, *texts, strict=True)])
    for name, value, width in zip(names, rows[0].values(), widths, strict=True):
        justify: Any = "left" if isinstance(value, str) else "right"
        table.add_column(name, justify=justify, overflow="fold", width=width)
    for cells in texts:
        table.add_row(*map(escape, cells))
    out.print(table)


def _widths(columns: Sequence[Sequence[str]]) -> list[int | None]:
    """Return widths at which the terminal holds every column and no word is broken.

    Each column gets its longest word; what is left goes to those that need most lines. None leaves
    a column to rich, where even the words do not fit.
    """
    words = [
        max((cell_len(word) for cell in column for word in cell.split()), default=1)
        for column in columns
    ]
    whole = [max(cell_len(cell) for cell in column) for column in columns]
    spare = out.width - sum(words) - 2 * len(columns) - 1  # padding, separators, edges
    if spare < 0:
        return [None] * len(columns)
    for _ in range(min(spare, sum(whole) - sum(words))):
        longest = max(range(len(columns)), key=lambda k: whole[k] / words[k])
        words[longest] += 1
    return list(words)


def _with_intervals(row: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name, value in row.items():
        if f"{name}_low" in row:
            ends = number(row[f"{name}_low"]), number(row[f"{name}_high"])
            merged[name] = f"{number(value)} [{', '.join(ends)}]"
        elif not name.endswith(("_low", "_high")):
            merged[name] = value
    return merged


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print each claim with its verdict and the number behind it."""
    for v in verdicts:
        interval = "" if v.low is None else f" [{number(v.low)}, {number(v.high)}]"
        measured = escape(f"measured {number(v.measured)}{interval}, paper {v.paper}")
        out.print(f"{MARKS[v.holds]}  [bold]{v.claim}[/]  {measured}", highlight=False)
        explained = escape(f"{v.statement}: {v.reason}")
        out.print(Padding(explained, (0, 0, 0, 4)), highlight=False)
