"""Standard output and standard error of a command.

A reader that closes the pipe (`flatlab list | head -1`) and a full disk end no command in a
traceback. With `--json` stdout holds one document: anything else that is printed, as by the user's
own code, goes to stderr.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

STDOUT, STDERR = 1, 2  # file descriptors


class Stream:
    """A text stream that keeps the first error of writing instead of raising it.

    After an error everything else that is written is lost.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.error = stream, cast("OSError | None", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write a text."""
        self._try(lambda: self.stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        self._try(self.stream.flush)

    def close(self) -> None:
        """Leave the stream open: the user's own code may close it, and the command prints yet."""
        self.flush()

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except ValueError:
            if not self.stream.closed:
                raise
            self.error = self.error or OSError(errno.EBADF, "it was closed")
        except OSError as error:
            self.error = self.error or error
            nowhere = os.open(os.devnull, os.O_WRONLY)  # else the rest of the buffer fails at exit
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)


class Output(Stream):
    """Standard output. In JSON mode only documents go to it; everything printed goes to stderr."""

    def __init__(self, stream: TextIO, printed: Stream | None = None) -> None:
        super().__init__(stream)
        self.printed, self.documents = printed, 0

    def write(self, text: str) -> int:
        """Write a text that is no document."""
        return super().write(text) if self.printed is None else self.printed.write(text)

    def document(self, text: str) -> None:
        """Write a document."""
        self.documents += 1
        super().write(f"{text}\n")


@contextlib.contextmanager
def standard_streams(as_json: bool) -> Iterator[Output]:
    """Put streams that never raise in the place of stdout and stderr; yield stdout."""
    _open_closed()
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):  # an encoding without ✓ prints ?
            stream.reconfigure(errors="replace")
    errors = Stream(sys.stderr)
    with contextlib.ExitStack() as stack:
        stdout = stack.enter_context(_diverted()) if as_json else sys.stdout
        output = Output(stdout, errors if as_json else None)
        sys.stdout, sys.stderr = cast("TextIO", output), cast("TextIO", errors)
        try:
            yield output
        finally:
            output.flush()
            errors.flush()
            sys.stdout, sys.stderr = before


def _open_closed() -> None:
    """Open a standard stream that the caller closed, as `>&-` does: it leads nowhere."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


@contextlib.contextmanager
def _diverted() -> Iterator[TextIO]:
    """Let descriptor 1 lead to stderr, for C code and other processes too; yield stdout."""
    try:
        real = sys.stdout.fileno() == STDOUT
    except (OSError, ValueError):  # a stream in memory
        real = False
    if not real:
        yield sys.stdout
        return
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    stream = os.fdopen(kept, "w", encoding="utf-8", closefd=False)
    try:
        yield stream
    finally:
        os.dup2(kept, STDOUT)
        os.close(kept)
