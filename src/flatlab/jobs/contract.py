"""What a job is, how it ends, and what a backend must do to run it.

A job names its function ("package.module:function") and carries plain data, so that it can be sent
to any kind of worker; payload and result travel as JSON. The function is called as
`function(payload, report)` and returns a dict. `report(dict)` sends progress and never fails. A
job that is interrupted gets SIGINT or KeyboardInterrupt, saves what it has, and returns a dict with
{"status": "interrupted"} or lets the exception pass.

Three fields of a payload mean the same in every job: "out" is the directory that it writes, "after"
one that it reads, and "fresh" says not to continue what is there. A job that finds its directory
half done continues it.

A backend starts jobs and says what becomes of them. Everything else is the same for all backends
and lives in `run.py`: the order, dependencies, retries, timeouts and interrupts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from ..errors import UserError, whole_number

JobStatus = Literal["done", "failed", "interrupted"]


@dataclass(frozen=True)
class Job:
    """A function by name and the plain data to call it with."""

    name: str  # unique among the jobs that are run together
    target: str  # the function, as "package.module:function"
    payload: dict[str, Any]  # its argument; must survive JSON
    after: tuple[str, ...] = ()  # names of jobs that must be done before this one starts
    timeout: float | None = None  # seconds it may run, or None for as long as it takes

    def encoded(self) -> str:
        """Return the payload as JSON; raise `UserError` if it is not plain data."""
        try:
            return json.dumps(self.payload)
        except (TypeError, ValueError) as error:
            message = f"the payload of job {self.name} must be plain data: {error}"
            raise UserError(message) from None


@dataclass(frozen=True)
class Ending:
    """How a function ended; plain data, so that a worker can send it.

    `exit_code` is 0 (done), 130 (interrupted) or the exit code of the failure. `died` says that the
    function did not fail but was lost, with its process or its machine: another try may help.
    """

    status: JobStatus
    result: dict[str, Any] | None = None
    error: str | None = None
    exit_code: int = 0
    traceback: str | None = None
    died: bool = False


INTERRUPTED = Ending("interrupted", error="interrupted", exit_code=130)
NOT_STARTED = Ending("interrupted", error="interrupted before it started", exit_code=130)
NOT_SAVED = Ending("interrupted", error="interrupted before it could save", exit_code=130)


@dataclass(frozen=True)
class Outcome(Ending):
    """How a job ended, and how long it ran."""

    job: Job = field(kw_only=True)
    seconds: float = field(kw_only=True)

    @classmethod
    def of(cls, job: Job, ending: Ending, seconds: float) -> Outcome:
        """Return the outcome of a job that ended this way."""
        return cls(job=job, seconds=seconds, **vars(ending))


@dataclass(frozen=True)
class Care:
    """What to do about jobs that take too long, die or fail."""

    retries: int = 0  # how often a job that died is started again
    retry_failed: bool = False  # whether a job that failed by itself is started again too
    fail_fast: bool = False  # whether the first job that fails stops all others
    timeout: float | None = None  # seconds for each job that has no timeout of its own

    def __post_init__(self) -> None:
        whole_number("retries", self.retries, least=0)
        if self.timeout is not None and not self.timeout > 0:
            raise UserError(f"timeout must be > 0, got {self.timeout}")


@dataclass(frozen=True)
class Started:
    """A job has begun to run; `info` says where, for instance its process id."""

    job: Job
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """A job has reported something."""

    job: Job
    info: dict[str, Any]


# A job's events are Started, any number of Progress, and Outcome. A job that could not be started
# has only an Outcome.
Event = Started | Progress | Outcome


class Backend(Protocol):
    """Runs jobs somewhere. The contract is tested by tests/jobs/test_backends.py.

    A job that dies, by a signal or with its machine, ends as "failed" with `died` and an error that
    names the cause. A job that was cancelled ends as it says; if it says nothing, as `NOT_SAVED`,
    and if it was still queued, as `NOT_STARTED`. No job is lost: each has exactly one Outcome, as
    its last event.
    """

    def room(self) -> int:
        """Return how many more jobs it takes now; a backend with a queue of its own takes many."""
        ...

    def submit(self, job: Job) -> None:
        """Start a job, or queue it. What goes wrong becomes its outcome."""
        ...

    def poll(self, seconds: float) -> Sequence[Event]:
        """Return what has happened since the last call; if nothing has, wait up to `seconds`."""
        ...

    def cancel(self, job: Job, *, kill: bool = False) -> None:
        """Interrupt a job so that it can save, or kill it; its outcome comes by `poll`.

        Nothing happens if the job has ended.
        """
        ...

    def close(self) -> None:
        """Kill what still runs and free what the backend holds."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
