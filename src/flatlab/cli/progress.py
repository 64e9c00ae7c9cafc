"""Progress bars on the terminal, for jobs, checks and a search."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

PERCENT = "{task.percentage:>3.0f}%"


class _Lines:
    """Lines on stderr while something runs: text, bar, share done, time left, current work.

    Nothing is shown unless stdout is a terminal and `quiet` is off.
    """

    def __init__(
        self, text: str, total: float | None, quiet: bool, share: str, visible: bool = True
    ):
        """Start with one line; `share` is the format of the share done, "" to omit it."""
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            *([TextColumn(share)] if share else []),
            TextColumn("[dim]{task.fields[left]}[/]"),
            TextColumn("{task.fields[now]}"),
            console=Console(stderr=True),
            disable=quiet or not sys.stdout.isatty(),
            transient=True,
        )
        self.all = self.progress.add_task(text, total=total, left="", now="", visible=visible)
        self.total, self.finished, self.begun = total or 1, 0, time.monotonic()

    def __enter__(self) -> Self:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def spent(self) -> float:
        """Return the seconds so far."""
        return time.monotonic() - self.begun

    def left(self) -> float | None:
        """Return the seconds until all are done, at the pace so far."""
        if not self.finished:
            return None
        return self.spent() / self.finished * (self.total - self.finished)


class JobProgress(_Lines):
    """One line per running job: bar, time left, loss, trace, test error; and one line for all jobs.

    After `expect`, the time left for all jobs is estimated from their expected seconds and the pace
    so far; without it, from the number of jobs.
    """

    def __init__(self, quiet: bool):
        super().__init__("", None, quiet, PERCENT, visible=False)
        self.expected: Mapping[str, float] = {}
        self.workers = 1
        self.done: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.tasks: dict[str, TaskID] = {}

    def expect(self, total: int, expected: Mapping[str, float], workers: int) -> None:
        """Take the number of runs, the expected seconds of the runs to do, and the workers."""
        self.total, self.expected, self.workers = total, dict(expected), max(workers, 1)
        self.begun = time.monotonic()
        self.progress.update(self.all, total=total, description=f"{total} runs", visible=total > 1)

    def update(self, name: str, kind: str, info: Mapping[str, Any]) -> None:
        """Take an event of a job, or "reused" for a run that was done before."""
        if kind == "started":
            self.started[name] = time.monotonic()
            self.tasks[name] = self.progress.add_task(
                f"  {name}", total=1, left="", now="starting (compiles on first use)"
            )
        elif kind == "progress":
            done = info["epoch"] / info["epochs"] if "epoch" in info else info.get("done", 0.0)
            # A resumed run starts part of the way: estimate time left from this sitting alone.
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
            if name in self.tasks:  # a job that could not start has no task
                self.progress.remove_task(self.tasks.pop(name))
            self.done[name] = 1.0
            self.progress.update(self.all, completed=self.finished, left=_left(self.left()))

    def left(self) -> float | None:
        """Return the seconds until all jobs are done."""
        if not self.expected:
            return super().left()
        parts = {name: (1 - self.done.get(name, 0.0)) * s for name, s in self.expected.items()}
        made = sum(self.expected.values()) - sum(parts.values())
        # The first seconds go to starting processes; until then the estimate is not scaled.
        pace = self.spent() * self.workers / made if self.spent() > 10 and made > 0 else 1.0
        return pace * max(sum(parts.values()) / self.workers, max(parts.values()))

    def say(self, now: str) -> None:
        """Show what happens after the jobs."""
        self.progress.update(self.all, left="", now=now, visible=True)


class CheckProgress(_Lines):
    """One line for all checks: bar, time left, and the checks under way."""

    def __init__(self, total: int, quiet: bool):
        super().__init__(f"0/{total} checks", total, quiet, PERCENT)
        self.now: dict[str, None] = {}

    def update(self, id: str, kind: str) -> None:
        """Take an event of `verify`."""
        if kind == "started":
            self.now[id] = None
        else:
            self.now.pop(id, None)
            self.finished += 1
        self.progress.update(
            self.all,
            description=f"{self.finished}/{self.total} checks",
            completed=self.finished,
            left=_left(self.left()),
            now="  ".join(self.now),
        )


class Waiting(_Lines):
    """One line during a search: its current state and the time left."""

    def __init__(self, what: str, seconds: float, quiet: bool):
        super().__init__(what, seconds, quiet, "")

    def say(self, now: str) -> None:
        """Show what is under way."""
        left = _left(max(0.0, self.total - self.spent()))
        self.progress.update(self.all, completed=self.spent(), left=f"at most {left}", now=now)


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} left"


def _now(info: Mapping[str, Any]) -> str:
    names = {"train_loss": "loss", "trace": "trace", "test_error": "test error"}
    return "  ".join(f"{label} {info[name]:.3g}" for name, label in names.items() if name in info)
