"""A node's side of a job on a cluster: run it in a process of its own, send back what happens.

The process is a local one, as without a cluster. So an interrupt, a kill, the number of threads and
the cause of a death are the same on every backend, and what a job leaves in memory ends with it.

If the node sees the driver's folder, the job works there. Otherwise it works in a temporary
directory: what the driver has of the run comes with the job, the newest checkpoint returns every
few seconds and all files return at the end.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import BusyError
from ..files.carrying import FILES, TO_CONTINUE, packed, unpack
from ..files.durable import locked
from ..files.store import CHECKPOINT
from .contract import Ending, Job, Outcome, Started
from .local import LocalProcesses

TELL_SECONDS = 0.1  # between two messages
MOST = 20  # progress reports in a message; the rest of a chatty job's is dropped
RETURN_SECONDS = 3.0  # between two checkpoints that return to the driver, at least
SHARE = 0.02  # of the time may go to returning them
FREE_SECONDS = 10.0  # for a process whose worker was killed to end and leave its directory
DIRECTORIES = ("out", "after")
_OWN = frozenset(os.environ)  # what the node itself sets

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Errand:
    """A job with what a node needs to know of its driver; sent as plain data."""

    job: dict[str, Any]
    environment: dict[str, str]  # what the driver sets for flatlab; what a node sets comes first
    path: tuple[str, ...]  # where the driver finds modules
    directory: str  # where the driver is
    marker: tuple[str, str] | None  # a file in the driver's folder and the text in it
    files: dict[str, dict[str, bytes]] | None  # of the directories; None if all nodes see them


@functools.cache
def identity() -> str:
    """Return flatlab's version and a hash of its source: equal on two machines if the code is."""
    total, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return f"{importlib.metadata.version('flatlab')} (source {total.hexdigest()[:8]})"


def sees(marker: tuple[str, str] | None) -> bool:
    """Return whether this machine sees the driver's folder."""
    if marker is None:
        return True
    with contextlib.suppress(OSError):
        return Path(marker[0]).read_text() == marker[1]
    return False


def attend(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Run the job of an errand; yield messages {"events": [(kind, info), …], "files": …}.

    The last event is ("ended", an `Ending` as a dict). If the node does not see the folder and no
    files came with the job, the only message is {"unseen": True}.
    """
    errand = Errand(**given)
    job = Job(**errand.job)
    _become_like_the_driver(errand)
    if sees(errand.marker):
        _wait_until_free(job)
        yield from _messages(job)
    elif errand.files is None:
        yield {"unseen": True}
    else:
        with tempfile.TemporaryDirectory(prefix="flatlab-") as root:
            yield from _away(job, errand.files, Path(root))


def _away(job: Job, files: Mapping[str, Files], root: Path) -> Iterator[dict[str, Any]]:
    """Run a job with its directories below `root`; messages name those of the driver."""
    homes = {key: job.payload[key] for key in DIRECTORIES if key in job.payload}
    places = {key: root / key / Path(home).name for key, home in homes.items()}
    for key, place in places.items():
        unpack(place, files.get(key, {}))
    moved = {key: str(place) for key, place in places.items()}
    back = {place: homes[key] for key, place in moved.items()}
    here = replace(job, payload={**job.payload, **moved})
    for message in _messages(here, places.get("out")):
        yield {**message, "events": [_with_homes(event, back) for event in message["events"]]}


def _messages(job: Job, returns: Path | None = None) -> Iterator[dict[str, Any]]:
    """Run a job to its end; the files of the directory `returns` come with the messages."""
    events: list[tuple[str, dict[str, Any]]] = []
    told, sent, wait, seen = 0.0, time.monotonic(), RETURN_SECONDS, None
    with LocalProcesses(1) as processes:
        processes.submit(job)
        ended = False
        while not ended:
            files: Files | None = None
            for event in processes.poll(TELL_SECONDS):
                if isinstance(event, Outcome):
                    ending = {name: getattr(event, name) for name in Ending.__dataclass_fields__}
                    events.append(("ended", ending))
                    ended = True
                elif len(events) < MOST:
                    kind = "started" if isinstance(event, Started) else "progress"
                    events.append((kind, event.info))
            now = time.monotonic()
            if returns is not None and ended:
                files = packed(returns, FILES)
            elif returns is not None and now >= sent + wait and (new := _stamp(returns)) != seen:
                files, seen = packed(returns, TO_CONTINUE), new
            if files is not None or ended or (events and now >= told + TELL_SECONDS):
                yield {"events": events, "files": files}
                events, told = [], time.monotonic()
                if files is not None:
                    sent, wait = told, max(RETURN_SECONDS, (told - now) / SHARE)


def _stamp(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return (path / CHECKPOINT).stat().st_mtime_ns
    return None


def _wait_until_free(job: Job) -> None:
    """Wait for a process that worked here before and is about to end with its killed worker."""
    out, until = Path(job.payload.get("out", "")), time.monotonic() + FREE_SECONDS
    while "out" in job.payload and out.is_dir() and time.monotonic() < until:
        try:
            with locked(out):
                return
        except BusyError:
            time.sleep(0.1)


def _become_like_the_driver(errand: Errand) -> None:
    """Take over where the driver is and finds modules, and its variables that are not set here."""
    given = errand.environment.items()
    os.environ.update({name: value for name, value in given if name not in _OWN})
    sys.path += [path for path in errand.path if path not in sys.path and os.path.exists(path)]
    os.chdir(errand.directory if os.path.isdir(errand.directory) else "/")


def _with_homes(event: tuple[str, Any], back: Mapping[str, str]) -> tuple[str, Any]:
    """Name the driver's directories in a result and an error, not the temporary ones."""
    kind, info = event
    if kind != "ended":
        return event
    for place, home in back.items():
        if info["error"]:
            info = {**info, "error": info["error"].replace(place, home)}
        if info["result"] and info["result"].get("path") == place:
            info = {**info, "result": {**info["result"], "path": home}}
    return kind, info


def errand_of(job: Job, **known: Any) -> dict[str, Any]:
    """Return the errand of a job as plain data; paths in it are whole."""
    given = job.payload
    whole = {key: os.path.abspath(given[key]) for key in DIRECTORIES if key in given}
    errand = Errand(
        job=asdict(replace(job, payload={**given, **whole}, after=())),
        environment={k: v for k, v in os.environ.items() if k.startswith("FLATLAB_")},
        path=tuple(os.path.abspath(path) for path in sys.path),
        directory=os.getcwd(),
        **known,
    )
    return asdict(errand)
