"""Lines of progress for jobs, checks and a search."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

from rich.progress import TaskID

from ..outside.progress import PERCENT, ProgressLines, numbers_now, seconds_left, share_done
from ..training.interrupts import noticed


class _Whole(ProgressLines):
    """Lines whose first is about all the work; none if `quiet`."""

    def __init__(self, text: str, total: float | None, quiet: bool, share: str, **options: Any):
        super().__init__(not quiet, share)
        self.all = self.add(text, total, **options)
        self.total, self.finished, self.begun = total or 1, 0, time.monotonic()

    def spent(self) -> float:
        """Return the seconds so far."""
        return time.monotonic() - self.begun

    def left(self) -> float | None:
        """Return the seconds until all are done, at the pace so far."""
        if not self.finished:
            return None
        return self.spent() / self.finished * (self.total - self.finished)


class JobProgress(_Whole):
    """One line per running job: bar, time left, loss, trace, test error; and one line for all jobs.

    After `expect`, the time left for all jobs is estimated from their expected seconds and the pace
    so far; without it, from the number of jobs. Ctrl-C is acknowledged on stderr at once, with or
    without bars: a run stops between two chunks, and saves; during compilation that takes seconds.
    """

    def __init__(self, quiet: bool):
        super().__init__("", None, quiet, PERCENT, visible=False)
        self.expected: Mapping[str, float] = {}
        self.workers = 1
        self.done: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.tasks: dict[str, TaskID] = {}
        self.notice = noticed(self._stopping)

    def __enter__(self) -> Self:
        super().__enter__()
        self.notice.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.notice.__exit__(*error)
        super().__exit__(*error)

    def _stopping(self) -> None:
        self.tell("flatlab: stopping: saving what is done")

    def expect(self, total: int, expected: Mapping[str, float], workers: int) -> None:
        """Take the number of runs, the expected seconds of the runs to do, and the workers."""
        self.total, self.expected, self.workers = total, dict(expected), max(workers, 1)
        self.begun = time.monotonic()
        self.progress.update(self.all, total=total, description=f"{total} runs", visible=total > 1)

    def update(self, name: str, kind: str, info: Mapping[str, Any]) -> None:
        """Take an event of a job, or "reused" for a run that was done before."""
        if kind == "started":
            self.started[name] = time.monotonic()
            self.tasks[name] = self.add(f"  {name}", 1, now="starting (compiles on first use)")
        elif kind == "progress":
            done = share_done(info)
            first, spent = self.first.setdefault(name, done), time.monotonic() - self.started[name]
            left = seconds_left(spent, done, first)
            self.change(self.tasks[name], left, completed=done, now=numbers_now(info))
            if self.expected:
                self.done[name] = done
                self.change(self.all, self.left())
        elif kind == "retrying":
            if name in self.tasks:
                self.progress.remove_task(self.tasks.pop(name))
            self.first.pop(name, None)
            self.tell(
                f"flatlab: {info['error']}; try {info['try']} of {info['of']} goes on from "
                f"{info['start']}"
            )
        elif kind == "reused":
            self.total -= 1
            self.progress.update(self.all, total=self.total, description=f"{self.total} runs")
        else:
            self.finished += 1
            if name in self.tasks:  # a job that could not start has no task
                self.progress.remove_task(self.tasks.pop(name))
            self.done[name] = 1.0
            self.change(self.all, self.left(), completed=self.finished)

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
        self.change(self.all, None, now=now, visible=True)


class CheckProgress(_Whole):
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
        text, now = f"{self.finished}/{self.total} checks", "  ".join(self.now)
        self.change(self.all, self.left(), description=text, completed=self.finished, now=now)


class Waiting(_Whole):
    """One line during a search: its current state and the time left."""

    def __init__(self, what: str, seconds: float, quiet: bool):
        super().__init__(what, seconds, quiet, "", before="at most ")

    def say(self, now: str) -> None:
        """Show what is under way."""
        self.change(self.all, self.total - self.spent(), completed=self.spent(), now=now)
