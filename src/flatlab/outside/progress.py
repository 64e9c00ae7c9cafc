"""Lines of progress: text, share done, time left, what happens now.

On a terminal they are drawn with bars. A notebook shows them in one output that changes. A log,
which is neither, gets a plain line on stderr every few seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from ..errors import UserError
from .functions import Report, require_report

LOG_SECONDS = "FLATLAB_PROGRESS_SECONDS"  # the variable with the seconds between lines of a log
NOTEBOOK_SECONDS = 0.5
PERCENT = "{task.percentage:>3.0f}%"
# A run that is over sooner has no line on a terminal.
SHORT_SECONDS = 1.0


class _Left(ProgressColumn):
    """Counts down to the end of a task, also between two of its reports."""

    def render(self, task: Task) -> Text:
        left = time_left(task.fields["end"], time.monotonic())
        return Text(f"{task.fields['before']}{left}" if left else "", style="dim")


class ProgressLines:
    """Lines while something runs, wherever the caller sees them; none unless `shown`.

    `under_way` counts the lines that are shown now: what runs inside draws none of its own.
    """

    under_way: ClassVar[int] = 0

    def __init__(self, shown: bool, share: str = "") -> None:
        """Start without a line; `share` is the format of the share done, "" to omit it."""
        notebook, console = in_notebook(), Console(stderr=True, force_jupyter=False)
        terminal = console.is_terminal and not notebook
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            *([TextColumn(share)] if share else []),
            _Left(),
            TextColumn("{task.fields[now]}"),
            console=console,
            disable=not shown or not terminal,
            transient=True,
        )
        self.plain: _Log | _Notebook | None = None
        if shown and not terminal:
            self.plain = _Notebook() if notebook else _Log()

    def __enter__(self) -> Self:
        ProgressLines.under_way += 1
        self.begin()
        return self

    def begin(self) -> None:
        """Draw from now on."""
        self.progress.start()

    def __exit__(self, *error: Any) -> None:
        ProgressLines.under_way -= 1
        self.progress.stop()
        if isinstance(self.plain, _Notebook):
            self.plain.close()

    def add(self, text: str, total: float | None, now: str = "", **options: Any) -> TaskID:
        """Add a line; `now` says what happens in it."""
        fields = {"end": None, "before": "", **options}
        return self.progress.add_task(text, total=total, now=now, **fields)

    def change(self, line: TaskID, left: float | None, **options: Any) -> None:
        """Change a line; `left` is the seconds until its end, None if nobody knows."""
        end = None if left is None else time.monotonic() + left
        self.progress.update(line, end=end, **options)
        if self.plain is not None and self.plain.due():
            self.plain.show([in_words(task) for task in self.progress.tasks if task.visible])

    def tell(self, text: str) -> None:
        """Print a text on stderr, above the lines."""
        self.progress.console.print(text, soft_wrap=True, markup=False, highlight=False)


class _Plain:
    """Text that is shown again after some seconds; never, for 0."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.last = seconds, time.monotonic()

    def due(self) -> bool:
        """Return whether it is time to show the text."""
        if not self.seconds or time.monotonic() < self.last + self.seconds:
            return False
        self.last = time.monotonic()
        return True


class _Log(_Plain):
    """The first line, which is about all the work, on stderr."""

    def __init__(self) -> None:
        super().__init__(_seconds())

    def show(self, lines: list[str]) -> None:
        with contextlib.suppress(OSError):  # nobody reads it
            print(*lines[:1], file=sys.stderr, flush=True)


class _Notebook(_Plain):
    """All lines in one output below the cell, which is empty at the end."""

    def __init__(self) -> None:
        super().__init__(NOTEBOOK_SECONDS)
        self.output: Any = None

    def show(self, lines: list[str]) -> None:
        text = {"text/plain": "\n".join(lines)}
        if self.output is None:
            display = importlib.import_module("IPython.display").display
            self.output = display(text, raw=True, display_id=True)
        else:
            self.output.update(text, raw=True)

    def close(self) -> None:
        if self.output is not None:
            self.output.update({"text/plain": ""}, raw=True)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return getattr(ask(), "kernel", None) is not None


def _seconds() -> float:
    text = os.environ.get(LOG_SECONDS, "5")
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < float("inf"):
            return float(text)
    raise UserError(f"{LOG_SECONDS} must be seconds >= 0 (0 for no lines), got {text!r}")


def in_words(task: Task) -> str:
    """Return a line without its bar."""
    share = "" if task.total is None else f"{task.percentage:.0f} %"
    left = time_left(task.fields["end"], time.monotonic())
    parts = [share, f"{task.fields['before']}{left}" if left else "", task.fields["now"]]
    return f"{task.description.strip()}: {', '.join(part for part in parts if part)}"


class MeasureProgress(ProgressLines):
    """One line for the measure that is being read: its products with a matrix and its time left."""

    def __init__(self) -> None:
        super().__init__(True, "{task.completed:.0f} products")
        self.lines: dict[str, TaskID] = {}

    def update(self, info: Mapping[str, Any]) -> None:
        """Take a report of `measure`."""
        text = f"{info['number']}/{info['of']} {info['measure']}"
        if text not in self.lines:
            for line in self.lines.values():
                self.progress.update(line, visible=False)
            self.lines[text] = self.add(text, None)
        spent, expected = info["products"], info["expected"]
        total = expected and max(expected, spent + 1)
        self.change(self.lines[text], info["left"], completed=spent, total=total)


class TrainProgress(ProgressLines):
    """One line for a run: its share done, its time left, its loss, trace and test error."""

    def __init__(self) -> None:
        super().__init__(True, PERCENT)
        self.line = self.add("train", 1, now="starting (compiles on first use)")
        self.first: tuple[float, float] | None = None  # the first report's share and time
        self.later = threading.Timer(SHORT_SECONDS, self.progress.start)
        self.later.daemon = True

    def begin(self) -> None:
        """Draw when the run has taken a while: a loop over short runs would flicker."""
        if not self.progress.disable:
            self.later.start()

    def __exit__(self, *error: Any) -> None:
        self.later.cancel()
        if self.later.ident is not None:
            self.later.join()
        super().__exit__(*error)

    def update(self, info: Mapping[str, Any]) -> None:
        """Take a report of `train`."""
        done, now = share_done(info), time.monotonic()
        self.first = self.first or (done, now)  # compiling before it says nothing of the pace
        left = seconds_left(now - self.first[1], done, self.first[0])
        self.change(self.line, left, completed=done, now=numbers_now(info))


@contextlib.contextmanager
def drawn(
    kind: Callable[[], TrainProgress | MeasureProgress],
    progress: bool | None,
    report: Report | None,
) -> Iterator[Report | None]:
    """Yield the function to report to: the caller's own, one that draws lines, both, or None.

    `progress` None draws unless there is a report, this is a worker process, or lines are drawn
    already.
    """
    require_report(report)
    if progress is not None and not isinstance(progress, bool):
        raise UserError(f"progress must be True, False or None, got {progress!r}")
    worker = multiprocessing.parent_process() is not None
    if progress is False or (progress is None and (report or worker or ProgressLines.under_way)):
        yield report
        return
    with kind() as lines:

        def both(info: dict[str, Any]) -> None:
            lines.update(info)
            if report is not None:
                report(info)

        yield both


def share_done(info: Mapping[str, Any]) -> float:
    """Return the share done by a report of training, or of a computation."""
    return float(info["epoch"] / info["epochs"] if "epoch" in info else info.get("done", 0.0))


def seconds_left(spent: float, done: float, first: float) -> float | None:
    """Return the seconds left at the pace since the share `first`, where a resumed run starts.

    >>> seconds_left(10.0, 0.75, 0.5), seconds_left(10.0, 0.5, 0.5)
    (10.0, None)
    """
    return spent / (done - first) * (1 - done) if done > first else None


def numbers_now(info: Mapping[str, Any]) -> str:
    """Return the last loss, trace and test error of a report in words."""
    names = {"train_loss": "loss", "trace": "trace", "test_error": "test error"}
    return "  ".join(f"{label} {info[name]:.3g}" for name, label in names.items() if name in info)


class DownloadProgress(ProgressLines):
    """One line for a download: bytes, pace and time left."""

    def __init__(self, shown: bool) -> None:
        super().__init__(shown, "{task.percentage:3.0f} %")
        self.line: TaskID | None = None
        self.began, self.first = 0.0, 0

    def update(self, name: str, done: int, size: int) -> None:
        """Take a report: the bytes that are there, of so many."""
        now = time.monotonic()
        if self.line is None:
            self.line = self.add(name, size)
            self.began, self.first = now, done
        # What was there before the download went on says nothing about its pace.
        pace = (done - self.first) / (now - self.began) if now > self.began else 0.0
        left = (size - done) / pace if pace else None
        text = f"{done / 1e6:.1f} of {size / 1e6:.1f} MB"
        text += f", {pace / 1e6:.1f} MB/s" if pace else ""
        self.change(self.line, left, completed=done, description=name, now=text)


def time_left(end: float | None, now: float) -> str:
    """Return the time left in words.

    >>> time_left(100.0, 27.5), time_left(3700.0, 0.0), time_left(9.0, 9.0), time_left(None, 0.0)
    ('01:12 left', '1:01:40 left', 'soon', '')
    """
    if end is None:
        return ""
    left = f"{timedelta(seconds=int(end - now))} left" if end - now >= 1 else "soon"
    return left.removeprefix("0:")
