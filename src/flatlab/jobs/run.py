"""Run a list of jobs to their outcomes, in this process or on any backend.

A job starts when the jobs it comes after are done; of those that may start, the first in the list
goes first. A job that needs a failed one fails too.

A job that died is started again, as often as `Care` says. The pause before doubles each time:
memory that was short may be free by then.

A job that runs past its timeout, and every job when an interrupt (SIGINT) comes, has `GRACE`
seconds to save and return before it is killed. A second interrupt shortens that to `SHORT_GRACE`.
"""

from __future__ import annotations

import contextlib
import graphlib
import json
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from ..errors import UserError, whole, whole_number
from ..files.store import CHECKPOINT
from .contract import NOT_STARTED, Backend, Care, Ending, Event, Job, Outcome, Progress, Started
from .local import LocalProcesses
from .worker import attempt, encode_progress

GRACE = 10.0
SHORT_GRACE = 2.0
GIVE_UP = 10.0  # seconds after which a killed job counts as ended, whatever its backend says
POLL_SECONDS = 0.2
PAUSE = 1.0  # seconds before a job that died is started again for the first time

OnEvent = Callable[[Job, str, dict[str, Any]], None]


def run_jobs(
    jobs: Sequence[Job],
    workers: int | Backend | None = None,
    on_event: OnEvent | None = None,
    until: float | None = None,
    care: Care | None = None,
) -> list[Outcome]:
    """Run the jobs and return their outcomes in the order of the jobs.

    Args:
        jobs: What to run. Their names must differ.
        workers: The number of local processes at once; None is one for each usable core. 0, or 1
            with a single job, runs in this process. Or a backend, which stays open.
        on_event: Called as `on_event(job, kind, info)` with kind "started", "progress" (info is
            what the job reported), "retrying" (info has error, try, of, and start, which is "its
            last checkpoint" or "the beginning") or "finished" (info has status, error, seconds).
        until: The `time.monotonic()` at which to stop: running jobs are interrupted as by SIGINT,
            and no more are started.
        care: Timeouts, retries and whether a failure stops the others; by default there is no
            timeout, no retry, and a failure stops no other.

    Only a process can be stopped, so jobs run in processes if `until` or a timeout is given.

    Raises:
        UserError: The jobs are not well formed; then none is started.
    """
    if isinstance(workers := whole(workers), int | float):
        workers = whole_number("workers", workers, least=0)
    care = care or Care()
    if care.timeout is not None:
        own = (job.timeout for job in jobs)
        limits = [care.timeout if limit is None else limit for limit in own]
        jobs = [replace(job, timeout=s) for job, s in zip(jobs, limits, strict=True)]
    _check(jobs)
    course = _Course(jobs, on_event or _ignore_event, inf if until is None else until, care)
    stoppable = until is not None or any(job.timeout is not None for job in jobs)
    if not stoppable and (workers == 0 or (workers == 1 and len(jobs) == 1)):
        with contextlib.suppress(KeyboardInterrupt):
            course.run_here()
    elif workers is None or isinstance(workers, int):
        with course.counting_interrupts(), LocalProcesses(workers) as backend:
            course.run_on(backend)
    else:
        with course.counting_interrupts():
            course.run_on(workers)
    left = (Outcome.of(job, NOT_STARTED, 0.0) for job in jobs)
    return [course.outcomes.get(one.job.name, one) for one in left]


def _check(jobs: Sequence[Job]) -> None:
    """Refuse jobs that cannot be run as given."""
    names = Counter(job.name for job in jobs)
    for job in jobs:
        job.encoded()
        if names[job.name] > 1:
            raise UserError(f"the names of jobs must differ, but {names[job.name]} are {job.name}")
        if job.timeout is not None and not job.timeout > 0:
            raise UserError(f"the timeout of job {job.name} must be > 0, got {job.timeout}")
        for name in job.after:
            if name not in names:
                raise UserError(f"job {job.name} comes after {name!r}, which is none of the jobs")
    try:
        graphlib.TopologicalSorter({job.name: job.after for job in jobs}).prepare()
    except graphlib.CycleError as error:
        circle = " after ".join(reversed(error.args[1]))
        raise UserError(f"jobs wait for each other: {circle}") from None


def _ignore_event(job: Job, kind: str, info: dict[str, Any]) -> None:
    """The default of `on_event`."""


@dataclass
class _Running:
    """A job that a backend has."""

    job: Job
    started: float = inf  # when it began to run; infinite while it is queued
    kill: float = inf  # when to kill it; finite once it was cancelled
    late: bool = False  # whether it was cancelled because of its timeout
    killed: bool = False


class _Course:
    """The state of one call of `run_jobs`."""

    def __init__(self, jobs: Sequence[Job], on_event: OnEvent, until: float, care: Care) -> None:
        self.waiting = {job.name: job for job in jobs}
        self.running: dict[str, _Running] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.on_event, self.until, self.care = on_event, until, care
        self.retries = Counter[str]()
        self.pauses: dict[str, float] = {}  # until when a job that died waits
        self.interrupts: list[float] = []
        self.failed = False  # and that is to stop everything
        self.inbox: deque[Event] = deque()

    def run_here(self) -> None:
        """Run the jobs in this process, until one is interrupted."""
        while not self.stopped and (job := self.next_job()):
            started = time.monotonic()
            self.tell(job, "started", {"pid": os.getpid()})

            def report(info: dict[str, Any], job: Job = job) -> None:
                text = encode_progress(info)
                if text is not None:  # an interrupt in the callback is one of the job
                    self.on_event(job, "progress", json.loads(text))

            ending = attempt(job.target, job.encoded(), report)
            outcome = Outcome.of(job, ending, time.monotonic() - started)
            if not self.try_again(outcome):
                self.finish(outcome)
            if ending.status == "interrupted":
                return

    def run_on(self, backend: Backend) -> None:
        """Run the jobs on a backend; leave none running there."""
        try:
            while self.waiting or self.running:
                self.step(backend)
        except BaseException:
            self.on_event = _ignore_event  # it may be the one that raised
            self.interrupts += [time.monotonic()] * 2
            while self.running:
                self.step(backend)
            raise

    def step(self, backend: Backend) -> None:
        while backend.room() > 0 and not self.stopped and (job := self.next_job()):
            backend.submit(job)
            self.running[job.name] = _Running(job)
        self.inbox.extend(backend.poll(POLL_SECONDS))
        while self.inbox:
            self.hear(self.inbox.popleft())
        if self.stopped:
            self.waiting.clear()
        for one in list(self.running.values()):
            self.limit(one, backend)

    @property
    def stopped(self) -> bool:
        return bool(self.interrupts) or self.failed or time.monotonic() >= self.until

    def next_job(self) -> Job | None:
        """Take the first job that waits neither for another nor for the end of a pause."""
        for name, job in self.waiting.items():
            pausing = name in self.pauses and time.monotonic() < self.pauses[name]
            if not pausing and all(other in self.outcomes for other in job.after):
                return self.waiting.pop(name)
        return None

    def hear(self, event: Event) -> None:
        one = self.running.get(event.job.name)
        if one is None:  # it was given up
            return
        if isinstance(event, Started):
            one.started = time.monotonic()
            self.tell(event.job, "started", event.info)
        elif isinstance(event, Progress):
            self.tell(event.job, "progress", event.info)
        else:
            del self.running[event.job.name]
            if one.late and event.status != "done":
                error = f"job {event.job.name} took longer than {event.job.timeout:g} s"
                event = replace(event, status="failed", error=error, exit_code=1)
            if one.kill < inf or not self.try_again(event):
                self.finish(event)

    def try_again(self, outcome: Outcome) -> bool:
        """Put a job that died, or failed if asked to, back into the list while retries are left."""
        job, care = outcome.job, self.care
        may = outcome.died or (care.retry_failed and outcome.status == "failed")
        if not may or self.stopped or self.retries[job.name] >= care.retries:
            return False
        if outcome.died:
            self.pauses[job.name] = time.monotonic() + PAUSE * 2 ** self.retries[job.name]
        self.retries[job.name] += 1
        self.waiting = {job.name: job, **self.waiting}
        start = "its last checkpoint" if _continues(job) else "the beginning"
        info = {"error": outcome.error, "try": self.retries[job.name] + 1, "of": care.retries + 1}
        self.tell(job, "retrying", {**info, "start": start})
        return True

    def limit(self, one: _Running, backend: Backend) -> None:
        """Cancel a job whose time is over, and kill it when its grace is over too."""
        now, timeout = time.monotonic(), inf if one.job.timeout is None else one.job.timeout
        late = now - one.started >= timeout
        if one.kill == inf and (late or self.stopped):
            one.late, one.kill = late, now + GRACE
            backend.cancel(one.job)
        if len(self.interrupts) > 1:
            one.kill = min(one.kill, self.interrupts[1] + SHORT_GRACE)
        if now >= one.kill and not one.killed:
            one.killed = True
            backend.cancel(one.job, kill=True)
        if now >= one.kill + GIVE_UP:
            ending = Ending("interrupted", error="does not end, though killed", exit_code=130)
            self.inbox.append(Outcome.of(one.job, ending, max(0.0, now - one.started)))

    def finish(self, outcome: Outcome) -> None:
        """Keep an outcome. If the job is not done, the jobs that need it end the same way."""
        ended = [outcome]
        for one in ended:  # grows on the way
            self.outcomes[one.job.name] = one
            info = {"status": one.status, "error": one.error, "seconds": one.seconds}
            self.tell(one.job, "finished", info)
            self.failed |= self.care.fail_fast and one.status == "failed"
            if one.status != "done":
                lost = [job for job in self.waiting.values() if one.job.name in job.after]
                ended += [_without(outcome, self.waiting.pop(job.name)) for job in lost]

    def tell(self, job: Job, kind: str, info: dict[str, Any]) -> None:
        try:
            self.on_event(job, kind, info)
        except KeyboardInterrupt:
            self.interrupts.append(time.monotonic())

    @contextlib.contextmanager
    def counting_interrupts(self) -> Iterator[None]:
        """Count SIGINT instead of raising: it must not strike between two steps of a start."""

        def count(*_: Any) -> None:
            self.interrupts.append(time.monotonic())

        here = threading.current_thread() is threading.main_thread()
        if not here or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
            yield
            return
        before = signal.signal(signal.SIGINT, count)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _continues(job: Job) -> bool:
    """Return whether a job finds a checkpoint in its directory and goes on from it."""
    here = "out" in job.payload and not job.payload.get("fresh")
    return here and Path(job.payload["out"], CHECKPOINT).exists()


def _without(needed: Outcome, job: Job) -> Outcome:
    """Return the outcome of a job that needs another one, which is not done."""
    how = "was interrupted" if needed.status == "interrupted" else f"failed: {needed.error}"
    error = f"job {job.name} needs job {needed.job.name}, which {how}"
    ending = Ending(needed.status, error=error, exit_code=needed.exit_code)
    return Outcome.of(job, ending, 0.0)
