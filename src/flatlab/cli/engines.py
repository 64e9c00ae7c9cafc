"""The options of `run` and `reproduce` that say where runs are done, and what if one fails."""

from __future__ import annotations

from ..errors import UserError, truth, unknown, whole_number
from ..jobs import Care, Cluster

ENGINES = ("local", "ray")
RETRIES = {"local": 0, "ray": 3}


def workers_of(
    engine: str,
    jobs: int | None = None,
    address: str | None = None,
    cpus_per_job: float | None = None,
    gpus_per_job: float | None = None,
) -> int | Cluster | None:
    """Return what `experiments.run` takes as workers.

    >>> workers_of("ray", jobs=2)
    Cluster(address=None, cpus_per_job=1.0, gpus_per_job=0.0, jobs=2)
    >>> workers_of("local", gpus_per_job=0.5)
    Traceback (most recent call last):
    flatlab.errors.UserError: gpus_per_job is an option of the engine ray, not of local
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    given = {"address": address, "cpus_per_job": cpus_per_job, "gpus_per_job": gpus_per_job}
    given = {name: value for name, value in given.items() if value is not None}
    if engine == "ray":
        return Cluster(jobs=jobs, **given)  # type: ignore[arg-type]
    if given:
        raise UserError(f"{next(iter(given))} is an option of the engine ray, not of local")
    return jobs


def care_of(
    engine: str,
    retries: int | None = None,
    timeout: float | str | None = None,
    fail_fast: bool = False,
    retry_failed: bool = False,
) -> Care:
    """Return what `experiments.run` takes as care; machines of a cluster are lost more often.

    >>> care_of("ray", timeout="2h")
    Care(retries=3, retry_failed=False, fail_fast=False, timeout=7200.0)
    """
    from ..experiments.budget import seconds_of

    seconds = None if timeout is None else seconds_of(timeout, "timeout")
    fail_fast, retry_failed = truth("fail_fast", fail_fast), truth("retry_failed", retry_failed)
    if retries is None:
        retries = max(RETRIES[engine], 3 if retry_failed else 0)
    return Care(whole_number("retries", retries, least=0), retry_failed, fail_fast, seconds)
