"""Local processes as a backend: one process for each job, several at once.

Children start from a fork server that has done the heavy imports already, run with one thread each,
and end when their parent is gone, whatever the reason. To interrupt a job is to send it SIGINT.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from typing import Any

from ..errors import whole_number
from .contract import NOT_SAVED, Backend, Ending, Event, Job, Outcome, Progress, Started
from .worker import child_main

PRELOAD = ("flatlab.jobs.preload",)
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMBA")}
LAST_WAIT = 10.0  # seconds that `close` waits for killed processes


def usable_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass
class _Child:
    job: Job
    process: Any  # the contexts' process classes share no public type
    messages: connection.Connection
    started: float
    ending: Ending | None = None
    open: bool = True
    cancelled: bool = False


class LocalProcesses(Backend):
    """Runs jobs in processes of this machine, `workers` at once; by default one a usable core."""

    def __init__(self, workers: int | None = None) -> None:
        given = usable_cores() if workers is None else whole_number("workers", workers)
        self.workers = max(given, 1)
        self.children: dict[str, _Child] = {}
        self.events: list[Event] = []

    def room(self) -> int:
        """Return how many more processes may start now."""
        return self.workers - len(self.children)

    def submit(self, job: Job) -> None:
        """Start a process for the job."""
        started = time.monotonic()
        try:
            process, messages = _start_process(job.target, job.encoded())
        except (OSError, EOFError) as error:
            ending = Ending("failed", error=f"cannot start a process: {error}", exit_code=1)
            self.events.append(Outcome.of(job, ending, 0.0))
            return
        self.children[job.name] = _Child(job, process, messages, started)
        self.events.append(Started(job, {"pid": process.pid}))

    def poll(self, seconds: float) -> list[Event]:
        """Return what the children have said and which have ended."""
        sources: list[Any] = [child.process.sentinel for child in self.children.values()]
        sources += [child.messages for child in self.children.values() if child.open]
        if not sources and not self.events:
            time.sleep(seconds)
        ready = connection.wait(sources, 0.0 if self.events else seconds) if sources else []
        for child in list(self.children.values()):
            ended = child.process.sentinel in ready
            if ended or child.messages in ready:
                self._listen(child, to_the_end=ended)
            if ended:
                self._reap(child)
        events, self.events = self.events, []
        return events

    def cancel(self, job: Job, *, kill: bool = False) -> None:
        """Send SIGINT, or SIGKILL."""
        child = self.children.get(job.name)
        if child:
            child.cancelled = True
            _signal(child, signal.SIGKILL if kill else signal.SIGINT)

    def close(self) -> None:
        """Kill the processes that are left."""
        for child in self.children.values():
            _signal(child, signal.SIGKILL)
        for child in self.children.values():
            child.process.join(LAST_WAIT)  # only a process stuck in the kernel outlives SIGKILL
            if not child.process.is_alive():
                child.process.close()
            child.messages.close()
        self.children.clear()

    def _listen(self, child: _Child, *, to_the_end: bool) -> None:
        try:
            while child.open and child.messages.poll():
                message = child.messages.recv_bytes()
                content = json.loads(message[1:])
                if message[:1] == b"p":
                    self.events.append(Progress(child.job, content))
                else:
                    child.ending = Ending(**content)
                if not to_the_end:  # one at a time, so that a chatty child starves no other
                    return
        except (EOFError, OSError):
            child.open = False

    def _reap(self, child: _Child) -> None:
        del self.children[child.job.name]
        child.process.join()
        code = child.process.exitcode
        child.process.close()
        child.messages.close()
        ending = child.ending
        if ending is None and (child.cancelled or code == -signal.SIGINT):
            ending = NOT_SAVED
        elif ending is None:
            how = f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"
            error = f"job {child.job.name} died ({how})"
            ending = Ending("failed", error=error, exit_code=1, died=True)
        self.events.append(Outcome.of(child.job, ending, time.monotonic() - child.started))


def _signal(child: _Child, number: int) -> None:
    if child.process.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.process.pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _start_process(target: str, payload: str) -> tuple[Any, connection.Connection]:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return _launch(multiprocessing.get_context("spawn"), target, payload)
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in PRELOAD if importlib.util.find_spec(name)])
    for _ in range(20):
        try:
            return _launch(context, target, payload)
        except (OSError, EOFError):  # the fork server died, perhaps of a module it preloads
            context.set_forkserver_preload([])
            time.sleep(0.05)  # a new one starts only when the old one has ended
    return _launch(context, target, payload)


def _launch(context: Any, target: str, payload: str) -> tuple[Any, connection.Connection]:
    receiver, sender = context.Pipe(duplex=False)
    with sender, _inheritance():
        arguments = (target, payload, dict(os.environ), sender)
        process = context.Process(target=child_main, args=arguments)
        try:
            process.start()
        except BaseException:
            receiver.close()
            raise
    return process, receiver


@contextlib.contextmanager
def _inheritance() -> Iterator[None]:
    """Arrange what a child inherits: one thread, SIGINT blocked until it is ready, no `__main__`.

    A child that imports the parent's main module would run an unguarded script again.
    """
    resource_tracker.ensure_running()  # first, as it unblocks SIGINT when it starts its process
    main, before = sys.modules["__main__"], {name: os.environ.get(name) for name in ONE_THREAD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(ONE_THREAD)
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
