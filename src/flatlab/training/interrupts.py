"""Ctrl-C as an event that is looked at, instead of an exception that strikes anywhere."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

STOPPING = (signal.SIGINT, signal.SIGTERM)


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
    kept = {number: signal.signal(number, lambda *_: event.set()) for number in STOPPING}
    try:
        yield event
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def noticed(say: Callable[[], None]) -> Iterator[None]:
    """Call `say` once, as soon as SIGINT or SIGTERM arrives; signal handlers stay as they are.

    A thread calls it. A handler would run too late, after the compiled code under way, and might
    wait for a lock that the interrupted code holds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wait() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # they are the main thread's
        while number := os.read(reader, 1):
            if number[0] in STOPPING:
                with contextlib.suppress(OSError):  # nobody reads what is said
                    say()
                return

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        thread.join()
        os.close(reader)
