"""Ctrl-C as an event that is looked at, instead of an exception that strikes anywhere."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event, so that a run stops between two chunks.

    An exception would not do: amid numba's compiling (seconds, the first time a kernel is used) it
    can be swallowed by a callback.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    kept = {
        number: signal.signal(number, lambda *_: event.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield event
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
