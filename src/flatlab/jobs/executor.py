"""A list of jobs -> their outcomes, in this process or in one process for each job.

A job names its function ("package.module:function") and carries plain data, so that the same jobs
can go to any kind of worker; payload and result travel as JSON. The function is called as
`function(payload, report)` and returns a dict; `report(dict)` shows progress and never fails.

Children start from a fork server that has the heavy imports done already, run with one thread
each, and end when their parent is gone, however it went. An interrupt (SIGINT) is passed on: a
child has `INTERRUPT_GRACE` seconds to save and return. It may get the signal twice, from the
terminal and from here, so a handler that a job installs must take the second one calmly.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from typing import Any

from ..errors import UserError
from .worker import Status, attempt, child_main, encode_progress, message_of

PRELOAD = ("flatlab.jobs.preload",)
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}
INTERRUPT_GRACE = 10.0


@dataclass(frozen=True)
class Job:
    """A function by name and the plain data to call it with."""

    name: str
    target: str
    payload: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a job ended. `exit_code` is 0 (done), 130 (interrupted) or that of the failure."""

    job: Job
    status: Status
    result: dict[str, Any] | None
    error: str | None
    exit_code: int
    seconds: float
    traceback: str | None = None


OnEvent = Callable[[Job, str, dict[str, Any]], None]


def run_jobs(
    jobs: Sequence[Job],
    workers: int | None = None,
    on_event: OnEvent | None = None,
    until: float | None = None,
) -> list[Outcome]:
    """Run the jobs and return their outcomes in the order of the jobs; a failure stops no other.

    Args:
        jobs: What to run.
        workers: Processes at once; None is one for each usable core. 0, or 1 with a single job,
            runs in this process.
        on_event: Called as `on_event(job, kind, info)` with kind "started", "progress" (info is
            what the job reported) or "finished" (info has status, error and seconds).
        until: The `time.monotonic()` at which to stop: what runs is interrupted, as by SIGINT, and
            nothing more is started. The jobs then run in processes, even a single one.
    """
    if workers is None:
        workers = usable_cores()
    if workers < 0:
        raise UserError(f"workers must be >= 0, got {workers}")
    pool = _Pool(jobs, workers, on_event or _ignore_event, until)
    if until is None and (workers == 0 or (workers == 1 and len(jobs) == 1)):
        with contextlib.suppress(KeyboardInterrupt):
            pool.run_here()
    else:
        pool.run_processes()
    stopped = message_of("interrupted", error="interrupted before it started", exit_code=130)
    return [pool.outcomes.get(i) or _outcome(job, stopped, 0.0) for i, job in enumerate(jobs)]


def usable_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass
class _Child:
    index: int
    process: Any  # the contexts' process classes share no public type
    events: connection.Connection
    started: float
    message: dict[str, Any] | None = None
    open: bool = True


class _Pool:
    """The state of one call of `run_jobs`."""

    def __init__(
        self, jobs: Sequence[Job], workers: int, on_event: OnEvent, until: float | None
    ) -> None:
        self.jobs, self.workers, self.on_event = jobs, max(workers, 1), on_event
        self.until = float("inf") if until is None else until
        self.payloads = [_encode_payload(job) for job in jobs]
        self.outcomes: dict[int, Outcome] = {}
        self.children: list[_Child] = []
        self.interrupts = 0

    def run_here(self) -> None:
        for index, job in enumerate(self.jobs):
            started = time.monotonic()
            self.tell(job, "started", {"pid": os.getpid()})

            def report(info: dict[str, Any], job: Job = job) -> None:
                plain = encode_progress(info)
                if plain is not None:  # an interrupt in the callback is one of the job
                    self.on_event(job, "progress", json.loads(plain)["info"])

            message = attempt(job.target, self.payloads[index], report)
            self.finish(index, message, time.monotonic() - started)
            if self.interrupts or message["status"] == "interrupted":
                return

    def run_processes(self) -> None:
        waiting = list(range(len(self.jobs)))[::-1]
        deadline = None
        with self.counting_interrupts():
            try:
                while waiting or self.children:
                    while waiting and len(self.children) < self.workers and not self.stopped:
                        self.start(waiting.pop())
                    self.attend()
                    if self.stopped and deadline is None:
                        waiting.clear()
                        deadline = time.monotonic() + INTERRUPT_GRACE
                        for child in self.children:
                            _signal(child, signal.SIGINT)
                    if deadline and (time.monotonic() > deadline or self.interrupts > 1):
                        self.stop_children()
            except BaseException:
                self.on_event = _ignore_event  # it is what raised
                self.stop_children()
                raise

    @property
    def stopped(self) -> bool:
        return self.interrupts > 0 or time.monotonic() >= self.until

    @contextlib.contextmanager
    def counting_interrupts(self) -> Iterator[None]:
        """Count SIGINT instead of raising: it must not strike between two steps of a start."""

        def count(*_: Any) -> None:
            self.interrupts += 1

        here = threading.current_thread() is threading.main_thread()
        if not here or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
            yield
            return
        before = signal.signal(signal.SIGINT, count)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def tell(self, job: Job, kind: str, info: dict[str, Any]) -> None:
        try:
            self.on_event(job, kind, info)
        except KeyboardInterrupt:
            self.interrupts += 1

    def start(self, index: int) -> None:
        job, started = self.jobs[index], time.monotonic()
        try:
            process, events = _start_process(job.target, self.payloads[index])
        except (OSError, EOFError) as error:
            message = message_of("failed", error=f"cannot start a process: {error}", exit_code=1)
            self.finish(index, message, 0.0)
            return
        self.children.append(_Child(index, process, events, started))
        self.tell(job, "started", {"pid": process.pid})

    def attend(self) -> None:
        """Wait a moment for the children to say something or to end, and act on it."""
        sources = [child.process.sentinel for child in self.children]
        sources += [child.events for child in self.children if child.open]
        ready = connection.wait(sources, timeout=0.2) if sources else []
        for child in list(self.children):
            ended = child.process.sentinel in ready
            if ended or child.events in ready:
                self.listen(child, to_the_end=ended)
            if ended:
                self.reap(child)

    def listen(self, child: _Child, *, to_the_end: bool) -> None:
        job = self.jobs[child.index]
        try:
            while child.open and child.events.poll():
                message = json.loads(child.events.recv_bytes())
                if message["kind"] == "progress":
                    self.tell(job, "progress", message["info"])
                else:
                    child.message = message
                if not to_the_end:  # one at a time, so that a chatty child starves no other
                    return
        except (EOFError, OSError):
            child.open = False

    def reap(self, child: _Child) -> None:
        self.children.remove(child)
        child.process.join()
        code = child.process.exitcode
        child.process.close()
        child.events.close()
        message = child.message
        if message is None and self.stopped:
            message = message_of(
                "interrupted", error="interrupted before it could save", exit_code=130
            )
        elif message is None:
            how = f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"
            name = self.jobs[child.index].name
            message = message_of("failed", error=f"job {name} died ({how})", exit_code=1)
        self.finish(child.index, message, time.monotonic() - child.started)

    def finish(self, index: int, message: dict[str, Any], seconds: float) -> None:
        outcome = self.outcomes[index] = _outcome(self.jobs[index], message, seconds)
        info = {"status": outcome.status, "error": outcome.error, "seconds": seconds}
        self.tell(outcome.job, "finished", info)

    def stop_children(self) -> None:
        for stop, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
            for child in self.children:
                _signal(child, stop)
            until = time.monotonic() + seconds
            while self.children and time.monotonic() < until:
                self.attend()
        self.children.clear()  # nothing outlives SIGKILL but a process stuck in the kernel


def _outcome(job: Job, message: dict[str, Any], seconds: float) -> Outcome:
    fields = {name: value for name, value in message.items() if name != "kind"}
    return Outcome(job=job, seconds=seconds, **fields)


def _ignore_event(job: Job, kind: str, info: dict[str, Any]) -> None:
    """The callback of those who want none."""


def _encode_payload(job: Job) -> str:
    try:
        return json.dumps(job.payload)
    except (TypeError, ValueError) as error:
        raise UserError(f"the payload of job {job.name} must be plain data: {error}") from None


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
    server = "forkserver" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if server else "spawn")
    if not server:
        return _launch(context, target, payload)
    context.set_forkserver_preload([name for name in PRELOAD if importlib.util.find_spec(name)])
    for _ in range(20):
        try:
            return _launch(context, target, payload)
        except (OSError, EOFError):  # the fork server died, perhaps of what it preloads
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
