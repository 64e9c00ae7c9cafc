"""The worker's side of a job: call its function and say how it ended.

`attempt` serves every backend; the rest is for local processes. A child ends when its parent is
gone, whatever the reason. It may get an interrupt twice, from the terminal and from its parent, so
a handler that a job installs must tolerate a second signal.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import connection
from typing import Any

from ..errors import FlatlabError
from ..outside.functions import Report, function_named
from .contract import INTERRUPTED, Ending


def attempt(
    target: str, payload: str, report: Report, ready: Callable[[], object] | None = None
) -> Ending:
    """Call the function; whatever happens becomes an ending.

    `ready` is called when the imports are done: a KeyboardInterrupt during an import can get lost.
    """
    try:
        function = function_named(target)
        if ready:
            ready()
        result = json.loads(json.dumps(function(json.loads(payload), report)))
        if not isinstance(result, dict):
            raise TypeError(f"{target} must return a dict, got {type(result).__name__}")
    except KeyboardInterrupt:
        return INTERRUPTED
    except FlatlabError as error:
        return Ending("failed", error=str(error), exit_code=error.exit_code)
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}"
        return Ending("failed", error=text, exit_code=1, traceback=traceback.format_exc())
    if result.get("status") == "interrupted":
        return Ending("interrupted", result, error="interrupted", exit_code=130)
    return Ending("done", result)


def encode_progress(info: dict[str, Any]) -> str | None:
    """Return a report as JSON, or None if it is not plain data; other objects become strings."""
    try:
        return json.dumps(info, default=str)
    except (TypeError, ValueError):
        return None


def child_main(
    target: str, payload: str, environment: dict[str, str], messages: connection.Connection
) -> None:
    """Run one job in this process; send its reports and, as the last message, its ending.

    A message is one letter, "p" for progress or "e" for the ending, and JSON.
    """
    threading.Thread(target=_follow_parent, daemon=True).start()
    os.environ.clear()  # the fork server may be older than the parent's last change
    os.environ.update(environment)
    sending = threading.Lock()

    def report(info: dict[str, Any]) -> None:
        text = encode_progress(info)
        if text is not None:
            with _interrupts_held(), sending, contextlib.suppress(OSError):
                if _has_room(messages):
                    messages.send_bytes(b"p" + text.encode())

    signal.signal(signal.SIGINT, _interrupt_once)
    ending = INTERRUPTED
    with contextlib.suppress(KeyboardInterrupt):
        let_interrupts_in = partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, {signal.SIGINT})
        ending = attempt(target, payload, report, let_interrupts_in)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with sending, contextlib.suppress(OSError):
        messages.send_bytes(b"e" + json.dumps(vars(ending)).encode())


def _follow_parent() -> None:
    """End with the parent; its sentinel is a pipe whose other end only the parent holds."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _interrupt_once(*_: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold SIGINT back, so that no message is cut in two."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held = []
    before = signal.signal(signal.SIGINT, lambda *_: held.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


def _has_room(messages: connection.Connection) -> bool:
    """Tell whether a short message can be sent now; progress is dropped rather than waited for."""
    poll = select.poll()
    poll.register(messages.fileno(), select.POLLOUT)
    return bool(poll.poll(0))
