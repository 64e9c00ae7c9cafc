"""The jobs of an experiment: compute and store, measure the end of a run, or train on from it.

The directory of a computation holds its `result.json`: the request, the result and a checksum. A
killed computation leaves no result, and starts again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import StoreError, UserError
from ..files.documents import read_document, write_document
from ..files.store import RESULT, ensure_directory, locked
from ..outside.functions import Report, function_named
from ..training.config import RunConfig
from ..training.rows import evenly_spaced
from ..training.run import Run, load_run, params_digest, start_table, versions


@dataclasses.dataclass(frozen=True)
class Computed:
    """The stored result of a computation, as given to an analysis."""

    result: Mapping[str, Any]
    seconds: float
    path: Path
    status: str = "done"  # always; a `Run` may also have diverged


def load_computed(path: Path, asked: Mapping[str, Any]) -> Computed | None:
    """Return the stored result of a request; None if there is none or it is for another request."""
    found = read_document(path / RESULT)
    if found is None or found.get("asked") != asked:
        return None
    return Computed(found["result"], float(found["seconds"]), path)


def result_of(path: str | Path) -> dict[str, Any]:
    """Return the result of the computation in a directory, for work that comes after it."""
    found = read_document(Path(path) / RESULT)
    if found is None:
        raise UserError(f"{path} holds no result of a computation")
    result: dict[str, Any] = found["result"]
    return result


def compute(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Call a function and store its result; a target of jobs.

    The payload is {"asked": {"target", "payload", "after"}, "out": directory, "fresh": bool}. A
    computation that comes after other work also has "after", the directory of that work.
    """
    asked, path = payload["asked"], Path(payload["out"])
    given = asked["payload"] | ({"after": payload["after"]} if "after" in payload else {})
    ensure_directory(path)
    with locked(path):
        made = None
        with contextlib.suppress(StoreError):  # a damaged result is computed again
            made = None if payload["fresh"] else load_computed(path, asked)
        if made is None:
            started = time.monotonic()
            result = function_named(asked["target"])(given, report)
            if not isinstance(result, dict):
                raise UserError(
                    f"{asked['target']} must return a dict, got {type(result).__name__}"
                )
            seconds = time.monotonic() - started
            document = {"asked": asked, "result": result, "seconds": seconds}
            write_document(path / RESULT, {**document, "versions": versions()})
    return {"status": "done", "path": str(path)}


def train_on(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Train from the end of another run; a target of jobs.

    The payload is {"config", "out": directory, "after": directory, "fresh": bool}; "device" is that
    of `run_config`, by default "cpu".
    """
    from ..training.session import run_config

    config = RunConfig.from_dict(payload["config"])
    _check_end(payload["after"])
    started = dataclasses.replace(config, start=start_table(payload["after"]))
    options = {"out": payload["out"], "fresh": payload["fresh"], "report": report}
    run = run_config(started, device=payload.get("device", "cpu"), **options)
    return {**run.result(), "path": payload["out"]}


def starts_from(config: RunConfig, planned: RunConfig, before: Path) -> bool:
    """Return whether a configuration is the planned one, started from the end of a run."""
    start = config.start or {}
    if dataclasses.replace(config, start=None).digest() != planned.digest():
        return False
    return bool(start.get("sha256") == params_digest(load_run(before).params))


def measure_end(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Measure the end of the run that this comes after; the function that `measurement` names."""
    from ..measures.measuring import measure

    run = _check_end(payload["after"])
    data: Any = run.dataset()
    if "examples" in payload:
        data = evenly_spaced(data, payload["examples"])
    found = measure(
        run.module(),
        run.config.loss,
        data,
        payload["measures"],
        payload.get("mode", "eval"),
        seed=run.config.seed,
        progress=False,
    )
    return {"measures": found.to_dict()}


def _check_end(path: str) -> Run:
    """Return a finished run; raise an error if it diverged or was interrupted."""
    run = load_run(path)
    if run.status in ("diverged", "interrupted"):
        error = UserError(f"the run it comes after has no end to go on from: {path} {run.status}")
        error.exit_code = 3
        raise error
    return run
