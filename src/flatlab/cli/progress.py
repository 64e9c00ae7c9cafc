"""Progress of what runs, on the terminal: jobs, checks, a search."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn


class JobProgress:
    """One line a running job: bar, time left, loss, trace, test error; one line for all of them.

    Shows nothing unless stdout is a terminal and `quiet` is off. Once it knows what to `expect`,
    the time left of all jobs is judged by their expected seconds at the pace so far, and without
    that by their number.
    """

    def __init__(self, quiet: bool):
        self.expected: Mapping[str, float] = {}
        self.workers = 1
        self.done: dict[str, float] = {}
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
        self.total, self.finished, self.begun = 1, 0, time.monotonic()
        self.all = self.progress.add_task("", total=None, left="", now="", visible=False)

    def expect(self, total: int, expected: Mapping[str, float], workers: int) -> None:
        """Take the number of runs, the seconds expected of those to do, and the workers."""
        self.total, self.expected, self.workers = total, dict(expected), max(workers, 1)
        self.begun = time.monotonic()
        self.progress.update(self.all, total=total, description=f"{total} runs", visible=total > 1)

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
            done = info["epoch"] / info["epochs"] if "epoch" in info else info.get("done", 0.0)
            # A resumed run starts part of the way: time left is judged by this sitting's share.
            first = self.first.setdefault(name, done)
            spent = time.monotonic() - self.started[name]
            left = spent / (done - first) * (1 - done) if done > first else None
            self.progress.update(self.tasks[name], completed=done, left=_left(left), now=_now(info))
            if self.expected:
                self.done[name] = done
                self.progress.update(self.all, left=_left(self.left()))
        elif kind == "reused":
            self.total -= 1
            self.progress.update(self.all, total=self.total, description=f"{self.total} runs")
        else:
            self.finished += 1
            if name in self.tasks:  # one that could not be started has none
                self.progress.remove_task(self.tasks.pop(name))
            self.done[name] = 1.0
            self.progress.update(self.all, completed=self.finished, left=_left(self.left()))

    def left(self) -> float | None:
        """Return the seconds until all jobs are done."""
        spent = time.monotonic() - self.begun
        if not self.expected:
            return spent / self.finished * (self.total - self.finished)
        parts = {name: (1 - self.done.get(name, 0.0)) * s for name, s in self.expected.items()}
        made = sum(self.expected.values()) - sum(parts.values())
        # The first seconds of all go to starting processes: until then, the estimate as it is.
        pace = spent * self.workers / made if spent > 10 and made > 0 else 1.0
        return pace * max(sum(parts.values()) / self.workers, max(parts.values()))

    def say(self, now: str) -> None:
        """Show what is under way after the jobs."""
        self.progress.update(self.all, left="", now=now, visible=True)


class CheckProgress:
    """One line for all checks: bar, time left, which are under way.

    Shows nothing unless stdout is a terminal and `quiet` is off.
    """

    def __init__(self, total: int, quiet: bool):
        self.progress = Progress(
            TextColumn("{task.completed}/{task.total} checks"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("[dim]{task.fields[left]}[/]"),
            TextColumn("{task.fields[now]}"),
            console=Console(stderr=True),
            disable=quiet or not sys.stdout.isatty(),
            transient=True,
        )
        self.task = self.progress.add_task("", total=total, left="", now="")
        self.total, self.finished, self.begun = total, 0, time.monotonic()
        self.now: dict[str, None] = {}

    def __enter__(self) -> CheckProgress:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def update(self, id: str, kind: str) -> None:
        """Take an event of `verify`."""
        left = None
        if kind == "started":
            self.now[id] = None
        else:
            self.now.pop(id, None)
            self.finished += 1
        if self.finished:
            spent = time.monotonic() - self.begun
            left = spent / self.finished * (self.total - self.finished)
        self.progress.update(
            self.task, completed=self.finished, left=_left(left), now="  ".join(self.now)
        )


class Waiting:
    """One line while a search goes on: what it is at, and the time that is left to it."""

    def __init__(self, what: str, seconds: float, quiet: bool):
        self.progress = Progress(
            TextColumn(what),
            BarColumn(bar_width=24),
            TextColumn("[dim]{task.fields[left]}[/]"),
            TextColumn("{task.fields[now]}"),
            console=Console(stderr=True),
            disable=quiet or not sys.stdout.isatty(),
            transient=True,
        )
        self.task = self.progress.add_task("", total=seconds, left="", now="")
        self.seconds, self.begun = seconds, time.monotonic()

    def __enter__(self) -> Waiting:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def say(self, now: str) -> None:
        """Show what is under way."""
        spent = time.monotonic() - self.begun
        left = _left(max(0.0, self.seconds - spent))
        self.progress.update(self.task, completed=spent, left=f"at most {left}", now=now)


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} left"


def _now(info: Mapping[str, Any]) -> str:
    names = {"train_loss": "loss", "trace": "trace", "test_error": "test error"}
    return "  ".join(f"{label} {info[name]:.3g}" for name, label in names.items() if name in info)
