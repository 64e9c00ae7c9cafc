"""The child's side of the executor: call a job's function and say how it ended.

A child ends when its parent is gone, however that went. It may get an interrupt twice, from the
terminal and from its parent, so a handler that a job installs must take the second one calmly.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import Any, Literal

from ..errors import FlatlabError, UserError

Status = Literal["done", "failed", "interrupted"]
Report = Callable[[dict[str, Any]], None]


def message_of(
    status: Status,
    result: dict[str, Any] | None = None,
    error: str | None = None,
    exit_code: int = 0,
    trace: str | None = None,
) -> dict[str, Any]:
    """Return how a job ended as plain data, to be sent to the parent."""
    return {
        "kind": "outcome",
        "status": status,
        "result": result,
        "error": error,
        "exit_code": exit_code,
        "traceback": trace,
    }


def encode_progress(info: dict[str, Any]) -> bytes | None:
    """Return a progress message, or None if it is not plain data."""
    try:
        return json.dumps({"kind": "progress", "info": info}, default=str).encode()
    except (TypeError, ValueError):
        return None


def child_main(
    target: str, payload: str, environment: dict[str, str], events: connection.Connection
) -> None:
    """Run one job in this process and send its outcome."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    os.environ.clear()  # the fork server may be older than the parent's last change
    os.environ.update(environment)
    sending = threading.Lock()

    def report(info: dict[str, Any]) -> None:
        data = encode_progress(info)
        if data is not None:
            with _interrupts_held(), sending, contextlib.suppress(OSError):
                if _has_room(events):
                    events.send_bytes(data)

    signal.signal(signal.SIGINT, _interrupt_once)
    message = message_of("interrupted", error="interrupted", exit_code=130)
    with contextlib.suppress(KeyboardInterrupt):
        message = attempt(target, payload, report, _let_interrupts_in)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with sending, contextlib.suppress(OSError):
        events.send_bytes(json.dumps(message).encode())


def _follow_parent() -> None:
    """End with the parent; its sentinel is a pipe whose other end only the parent holds."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _let_interrupts_in() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


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


def _has_room(events: connection.Connection) -> bool:
    """Tell whether a short message can be sent now; progress is dropped rather than waited for."""
    poll = select.poll()
    poll.register(events.fileno(), select.POLLOUT)
    return bool(poll.poll(0))


def attempt(
    target: str, payload: str, report: Report, ready: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Call the function; whatever happens becomes a message.

    `ready` is called when the imports are done: a KeyboardInterrupt amid an import can get lost.
    """
    try:
        module, _, name = target.partition(":")
        if not module or not name:
            raise UserError(f"a target must be 'package.module:function', got {target!r}")
        function = getattr(importlib.import_module(module), name)
        if ready:
            ready()
        result = json.loads(json.dumps(function(json.loads(payload), report)))
        if not isinstance(result, dict):
            raise TypeError(f"{target} must return a dict, got {type(result).__name__}")
    except KeyboardInterrupt:
        return message_of("interrupted", error="interrupted", exit_code=130)
    except FlatlabError as error:
        return message_of("failed", error=str(error), exit_code=error.exit_code)
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}"
        return message_of("failed", error=text, exit_code=1, trace=traceback.format_exc())
    if result.get("status") == "interrupted":
        return message_of("interrupted", result, error="interrupted", exit_code=130)
    return message_of("done", result)
