"""What the terminal shows: progress of running jobs, tables, verdicts. Only `cli` uses it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from .experiments.contract import Verdict
from .report.tables import number

out = Console()
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
        self.all = self.progress.add_task(f"{total} runs", total=total, left="", now="")

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
        """Take an event of the executor."""
        if kind == "started":
            self.started[name] = time.monotonic()
            self.tasks[name] = self.progress.add_task(f"  {name}", total=1, left="", now="starting")
        elif kind == "progress":
            done = info["epoch"] / info["epochs"]
            # A resumed run starts part of the way: time left is judged by this sitting's share.
            first = self.first.setdefault(name, done)
            spent = time.monotonic() - self.started[name]
            left = spent / (done - first) * (1 - done) if done > first else None
            self.progress.update(
                self.tasks[name], completed=done, left=_left(left), now=_now(info)
            )
        else:
            self.finished += 1
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


def print_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print rows of plain values."""
    if not rows:
        out.print(f"{title or 'table'}: (empty)")
        return
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*(number(value) for value in row.values()))
    out.print(table)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print verdicts, one a line, with the number behind each."""
    table = Table(title="Verdicts", title_justify="left", title_style="bold", header_style="bold")
    for name in ("claim", "statement", "paper", "measured", "95 % interval", "verdict", "because"):
        table.add_column(name, overflow="fold")
    for v in verdicts:
        interval = "–" if v.low is None else f"[{number(v.low)}, {number(v.high)}]"
        row = (v.claim, v.statement, str(v.paper), number(v.measured), interval)
        table.add_row(*(text.replace("[", "\\[") for text in row), MARKS[v.holds], v.reason)
    out.print(table)

