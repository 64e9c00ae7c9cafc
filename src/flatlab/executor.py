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
import importlib
import importlib.util
import json
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from typing import Any, Literal

from .errors import FlatlabError, UserError

PRELOAD = ("flatlab.engine",)
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}
INTERRUPT_GRACE = 10.0

Status = Literal["done", "failed", "interrupted"]
Report = Callable[[dict[str, Any]], None]


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
    jobs: Sequence[Job], workers: int | None = None, on_event: OnEvent | None = None
) -> list[Outcome]:
    """Run the jobs and return their outcomes in the order of the jobs; a failure stops no other.

    Args:
        jobs: What to run.
        workers: Processes at once; None is one for each usable core. 0, or 1 with a single job,
            runs in this process.
        on_event: Called as `on_event(job, kind, info)` with kind "started", "progress" (info is
            what the job reported) or "finished" (info has status, error and seconds).
    """
    if workers is None:
        workers = usable_cores()
    if workers < 0:
        raise UserError(f"workers must be >= 0, got {workers}")
    pool = _Pool(jobs, workers, on_event or _ignore_event)
    if workers == 0 or (workers == 1 and len(jobs) == 1):
        with contextlib.suppress(KeyboardInterrupt):
            pool.run_here()
    else:
        pool.run_processes()
    stopped = _message("interrupted", error="interrupted before it started", exit_code=130)
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

    def __init__(self, jobs: Sequence[Job], workers: int, on_event: OnEvent) -> None:
        self.jobs, self.workers, self.on_event = jobs, workers, on_event
        self.payloads = [_encode_payload(job) for job in jobs]
        self.outcomes: dict[int, Outcome] = {}
        self.children: list[_Child] = []
        self.interrupts = 0

    def run_here(self) -> None:
        for index, job in enumerate(self.jobs):
            started = time.monotonic()
            self.tell(job, "started", {"pid": os.getpid()})

            def report(info: dict[str, Any], job: Job = job) -> None:
                plain = _encode_progress(info)
                if plain is not None:  # an interrupt in the callback is one of the job
                    self.on_event(job, "progress", json.loads(plain)["info"])

            message = _attempt(job.target, self.payloads[index], report)
            self.finish(index, message, time.monotonic() - started)
            if self.interrupts or message["status"] == "interrupted":
                return

    def run_processes(self) -> None:
        waiting = list(range(len(self.jobs)))[::-1]
        deadline = None
        with self.counting_interrupts():
            try:
                while waiting or self.children:
                    while waiting and len(self.children) < self.workers and not self.interrupts:
                        self.start(waiting.pop())
                    self.attend()
                    if self.interrupts and deadline is None:
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
            message = _message("failed", error=f"cannot start a process: {error}", exit_code=1)
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
        if message is None and self.interrupts:
            message = _message(
                "interrupted", error="interrupted before it could save", exit_code=130
            )
        elif message is None:
            how = f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"
            name = self.jobs[child.index].name
            message = _message("failed", error=f"job {name} died ({how})", exit_code=1)
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


def _message(
    status: Status,
    result: dict[str, Any] | None = None,
    error: str | None = None,
    exit_code: int = 0,
    trace: str | None = None,
) -> dict[str, Any]:
    return {
        "kind": "outcome",
        "status": status,
        "result": result,
        "error": error,
        "exit_code": exit_code,
        "traceback": trace,
    }


def _ignore_event(job: Job, kind: str, info: dict[str, Any]) -> None:
    """The callback of those who want none."""


def _encode_payload(job: Job) -> str:
    try:
        return json.dumps(job.payload)
    except (TypeError, ValueError) as error:
        raise UserError(f"the payload of job {job.name} must be plain data: {error}") from None


def _encode_progress(info: dict[str, Any]) -> bytes | None:
    try:
        return json.dumps({"kind": "progress", "info": info}, default=str).encode()
    except (TypeError, ValueError):
        return None


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
        process = context.Process(target=_child_main, args=arguments)
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


def _child_main(
    target: str, payload: str, environment: dict[str, str], events: connection.Connection
) -> None:
    threading.Thread(target=_follow_parent, daemon=True).start()
    os.environ.clear()  # the fork server may be older than the parent's last change
    os.environ.update(environment)
    sending = threading.Lock()

    def report(info: dict[str, Any]) -> None:
        data = _encode_progress(info)
        if data is not None:
            with _interrupts_held(), sending, contextlib.suppress(OSError):
                if _has_room(events):
                    events.send_bytes(data)

    signal.signal(signal.SIGINT, _interrupt_once)
    message = _message("interrupted", error="interrupted", exit_code=130)
    with contextlib.suppress(KeyboardInterrupt):
        message = _attempt(target, payload, report, _let_interrupts_in)
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


def _attempt(
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
        return _message("interrupted", error="interrupted", exit_code=130)
    except FlatlabError as error:
        return _message("failed", error=str(error), exit_code=error.exit_code)
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}"
        return _message("failed", error=text, exit_code=1, trace=traceback.format_exc())
    if result.get("status") == "interrupted":
        return _message("interrupted", result, error="interrupted", exit_code=130)
    return _message("done", result)
