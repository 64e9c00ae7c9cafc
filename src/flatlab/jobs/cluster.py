"""Where jobs run: on this machine, or on a Ray cluster, which is described here and not opened."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

from ..errors import UserError, shown, whole_number
from .contract import Backend
from .local import usable_cores


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and how much of it a job gets; the options of `--engine ray`.

    A job has one thread, whatever `cpus_per_job` reserves for it, so that it ends in the same bits
    everywhere. With GPUs it trains on "cuda".
    """

    address: str | None = None  # HOST:PORT; None starts a cluster on this machine, for this call
    cpus_per_job: float = 1.0
    gpus_per_job: float = 0.0
    jobs: int | None = None  # at most so many at a time; None for as many as there is room for

    def __post_init__(self) -> None:
        address = self.address
        if address is not None and not re.fullmatch(r"[^\s:/]+:\d{1,5}", str(address)):
            raise UserError(
                f"address must be HOST:PORT, as `ray start --head` prints it, got {self.address!r}"
            )
        for name in ("cpus_per_job", "gpus_per_job"):
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, Real):
                raise UserError(f"{name} must be a number, got {shown(value)}")
        if not 0 < self.cpus_per_job < float("inf"):
            raise UserError(f"cpus_per_job must be > 0, got {self.cpus_per_job}")
        gpus = self.gpus_per_job
        if not 0 <= gpus < float("inf") or (gpus > 1 and gpus != int(gpus)):
            raise UserError(f"gpus_per_job must be from 0 to 1 or a whole number, got {gpus}")
        if self.jobs is not None:
            whole_number("jobs", self.jobs, least=1)


@contextlib.contextmanager
def opened(
    workers: int | Cluster | None, folder: Path, needed: bool = True
) -> Iterator[tuple[int | Backend, int]]:
    """Open what jobs run on; yield it for `run_jobs`, and how many jobs it runs at once.

    A cluster is left alone unless it is needed. `folder` holds the directories that jobs write.
    """
    if not isinstance(workers, Cluster):
        number = usable_cores() if workers is None else whole_number("workers", workers, least=0)
        yield number, number
    elif not needed:
        yield 1, 1
    else:
        from .ray_tasks import RayTasks

        with RayTasks(workers, folder) as backend:
            yield backend, backend.slots
