"""Ray tasks as a backend: one task for each job, queued and placed by the cluster.

A task runs its job as `node.attend` does and streams messages back. flatlab's own store is the only
truth: the cluster keeps nothing, so any backend continues what another began. `run.py` retries: a
retry is a new task, which carries the newest checkpoint. Ray itself retries nothing, neither after
a crash nor after a kill for lack of memory.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import FlatlabError, UserError
from ..files.carrying import packed, unpack
from ..files.durable import ensure_directory, remove, write_atomically
from .cluster import Cluster
from .connecting import check_nodes, connected, on_node
from .contract import (
    NOT_SAVED,
    NOT_STARTED,
    Backend,
    Ending,
    Event,
    Job,
    Outcome,
    Progress,
    Started,
)
from .node import DIRECTORIES, errand_of, identity

MARKER = ".driver"  # the file by which a node sees the driver's folder
QUEUE = 8  # jobs beyond twice the places that the cluster may queue
LAST_WAIT = 10.0  # seconds that `close` waits for killed jobs


@dataclass(eq=False)
class _Task:
    job: Job
    stream: Any  # of messages
    started: float | None = None
    pid: int = 0
    node: str = ""
    cancelled: bool = False


class RayTasks(Backend):
    """Runs jobs on a Ray cluster; their directories return if it does not share `folder`."""

    def __init__(self, cluster: Cluster | None = None, folder: Path | None = None) -> None:
        self.cluster = cluster or Cluster()
        self.tasks: dict[Any, _Task] = {}  # by stream
        self.events: list[Event] = []
        self.ours = identity()
        self.marker: tuple[str, str] | None = None
        with contextlib.ExitStack() as stack:
            if folder is not None:
                ensure_directory(folder)
                path = folder.absolute() / MARKER
                self.marker = (str(path), secrets.token_hex(16))
                write_atomically(path, self.marker[1].encode())
                stack.callback(remove, path)
            self.ray = stack.enter_context(connected(self.cluster))
            self.slots = self._places()
            self.shared = check_nodes(self.ray, self.marker)
            self.open = stack.pop_all()
        self.task = self._remote_function()

    def _places(self) -> int:
        """Return how many jobs the cluster runs at once; raise `UserError` if it is none."""
        need = {"CPU": self.cluster.cpus_per_job, "GPU": self.cluster.gpus_per_job}
        need = {name: amount for name, amount in need.items() if amount}
        there = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        each = [
            min(int(n.get(k, 0.0) / amount + 1e-9) for k, amount in need.items()) for n in there
        ]
        if not sum(each):
            asked = " and ".join(f"{amount:g} {name}" for name, amount in need.items())
            has = "; ".join(" and ".join(f"{n.get(k, 0):g} {k}" for k in need) for n in there)
            raise UserError(f"no node has {asked} for a job (they have {has}): ask for less")
        return min(sum(each), self.cluster.jobs or sum(each))

    def _remote_function(self) -> Any:
        # A function inside a function travels by value: a node that joined later without flatlab,
        # or with another one, says so.
        def attend(errand: dict[str, Any], ours: str) -> Any:
            import os
            import platform

            import ray

            host, node_id = platform.node(), ray.get_runtime_context().get_node_id()
            try:
                from flatlab.jobs import node

                theirs = node.identity()
            except (ImportError, AttributeError) as error:
                theirs = f"none, or another ({error})"
            if theirs != ours:
                text = f"node {host} ({node_id[:8]}) has flatlab {theirs}: install {ours} there"
                yield {"events": [("ended", {"status": "failed", "error": text, "exit_code": 2})]}
                return
            where = {"host": host, "node": node_id, "worker": os.getpid()}
            for message in node.attend(errand):
                yield {**message, "where": where}

        return self.ray.remote(
            num_cpus=self.cluster.cpus_per_job, num_gpus=self.cluster.gpus_per_job, max_retries=0
        )(attend)

    def room(self) -> int:
        """Return how many more jobs the cluster may queue, or run if their number is limited."""
        most = self.slots if self.cluster.jobs else 2 * self.slots + QUEUE
        return most - len(self.tasks)

    def submit(self, job: Job) -> None:
        """Queue a task for the job."""
        try:
            files = None if self.shared else _files_of(job)
        except FlatlabError as error:
            ending = Ending("failed", error=str(error), exit_code=error.exit_code)
            self.events.append(Outcome.of(job, ending, 0.0))
            return
        device = {"device": "cuda"} if self.cluster.gpus_per_job else {}
        sent = replace(job, payload={**job.payload, **device})
        errand = errand_of(sent, marker=self.marker, files=files)
        stream = self.task.remote(errand, self.ours)
        self.tasks[stream] = _Task(job, stream)

    def poll(self, seconds: float) -> list[Event]:
        """Return what the tasks have said and which have ended."""
        streams, ready = list(self.tasks), []
        if not streams and not self.events:
            time.sleep(seconds)
        if streams:
            ready, _ = self.ray.wait(streams, timeout=0.0 if self.events else seconds)
        if ready:
            ready, _ = self.ray.wait(streams, num_returns=len(streams), timeout=0.0)
        for stream in ready:
            self._listen(self.tasks[stream])
        events, self.events = self.events, []
        return events

    def cancel(self, job: Job, *, kill: bool = False) -> None:
        """Send SIGINT or SIGKILL to the process of the job; take it from the queue if it has none.

        A cancelled task of Ray cannot say any more how it ended, so a running one gets a signal.
        """
        for task in self.tasks.values():
            if task.job.name == job.name:
                task.cancelled = True
                if task.started is None:
                    self.ray.cancel(task.stream, force=kill)
                else:
                    self._signal(task, signal.SIGKILL if kill else signal.SIGINT)

    def close(self) -> None:
        """Kill the jobs that are left, and leave the cluster; end it if it was started here."""
        until = time.monotonic() + LAST_WAIT
        for task in list(self.tasks.values()):
            self.cancel(task.job, kill=True)
        while self.tasks and time.monotonic() < until:
            self.poll(0.2)
        for stream in self.tasks:
            self.ray.cancel(stream, force=True)
        self.tasks.clear()
        self.open.close()

    def _signal(self, task: _Task, number: int) -> None:
        def send(pid: int, number: int) -> None:
            import contextlib
            import os

            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        on_node(self.ray, task.node, send).remote(task.pid, number)

    def _listen(self, task: _Task) -> None:
        """Take one message of a task, or the news of its end."""
        errors = self.ray.exceptions
        try:
            message = self.ray.get(next(task.stream))
        except (StopIteration, errors.TaskCancelledError):
            self._end(task, replace(NOT_SAVED, died=True))
            return
        except errors.RayTaskError as error:  # of the node's side, before or after the job
            text = f"job {task.job.name} could not be run: {error.cause}"
            self._end(task, Ending("failed", error=text, exit_code=1, traceback=str(error)))
            return
        except errors.RayError as error:
            text = f"job {task.job.name} died ({_cause(error)})"
            self._end(task, Ending("failed", error=text, exit_code=1, died=True))
            return
        if message.get("unseen"):  # the node joined late: from now on directories travel
            del self.tasks[task.stream]
            self.shared = False
            self.submit(task.job)
            return
        damage = self._keep(task.job, message.get("files"))
        for kind, info in message["events"]:
            if kind == "ended":
                self._end(task, damage or Ending(**info))
            elif kind == "progress":
                self.events.append(Progress(task.job, info))
            else:
                where = message["where"]
                task.started, task.pid, task.node = time.monotonic(), info["pid"], where["node"]
                self.events.append(Started(task.job, {**info, **where}))

    def _keep(self, job: Job, files: dict[str, bytes] | None) -> Ending | None:
        """Write the files that returned; what goes wrong is an ending."""
        try:
            if files:
                unpack(Path(job.payload["out"]), files)
        except FlatlabError as error:
            return Ending("failed", error=str(error), exit_code=error.exit_code)
        return None

    def _end(self, task: _Task, ending: Ending) -> None:
        del self.tasks[task.stream]
        if task.cancelled and ending.died:
            ending = NOT_STARTED if task.started is None else NOT_SAVED
        seconds = 0.0 if task.started is None else time.monotonic() - task.started
        self.events.append(Outcome.of(task.job, ending, seconds))


def _files_of(job: Job) -> dict[str, dict[str, bytes]]:
    """Return the files of a job's directories; a fresh job needs none of its own."""
    needed = [key for key in DIRECTORIES if key in job.payload]
    fresh = job.payload.get("fresh")
    return {k: {} if k == "out" and fresh else packed(Path(job.payload[k])) for k in needed}


def _cause(error: Exception) -> str:
    """Say in a few words how Ray lost a task."""
    known = {
        "OutOfMemoryError": "its node ran out of memory",
        "NodeDiedError": "its node was lost",
        "WorkerCrashedError": "its worker was killed, or lost with its node",
    }
    return known.get(type(error).__name__, f"{type(error).__name__}: {str(error).splitlines()[0]}")
