"""Connect to a Ray cluster, and say in a line why that does not work.

Ray itself waits 40 seconds and more for an address that does not answer, and a minute for one that
refuses its token; a task sent to a node without flatlab fails with a traceback. So all of this is
asked first.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import UserError
from .cluster import Cluster
from .local import usable_cores
from .node import identity

KNOCK_SECONDS = 4.0  # for a connection to the address
ANSWER_SECONDS = 8.0  # for an answer of the cluster
NODE_SECONDS = 60.0  # for a node to start a worker and say what it has
QUESTION = """
import sys
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5)
except AuthenticationError:
    print("refused")
else:
    print("answers")
"""


def ray_module() -> Any:
    """Import ray; without it, say what to install."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError(f"--engine ray needs Ray ({error}): pip install 'flatlab[ray]'") from None


@contextlib.contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine; yield the module ray.

    A connection that this process has already is used and left open.
    """
    ray = ray_module()
    # Ray prints what a raylet says to stdout, amid a JSON document; outcomes tell of it anyway.
    ray._private.worker._worker_logs_enabled = False
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    with contextlib.ExitStack() as stack:
        if cluster.address is not None:
            require_answer(cluster.address)
            options["address"] = cluster.address
        else:
            # Sockets lie in this directory, and their paths must not be long.
            place = tempfile.TemporaryDirectory(
                prefix="flr", dir="/tmp", ignore_cleanup_errors=True
            )
            options |= {"address": "local", "num_cpus": usable_cores(), "include_dashboard": False}
            options["_temp_dir"] = stack.enter_context(place)
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(**options)
        except (RuntimeError, ConnectionError, OSError, ValueError) as error:
            where = cluster.address or "this machine"
            says = " ".join(str(error).split())
            raise UserError(f"cannot connect to a Ray cluster on {where}: {says}") from None
        stack.callback(ray.shutdown)
        yield ray


def require_answer(address: str) -> None:
    """Raise `UserError` if no Ray cluster answers at HOST:PORT, or if it refuses our token."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"nothing answers at {address} ({error}): start a cluster there with "
            f"`ray start --head --port {port}`, or give the address that it printed"
        ) from None
    said = _ask(address, os.environ)
    if said == "refused" and "RAY_AUTH_MODE" not in os.environ:
        said = _ask(address, {**os.environ, "RAY_AUTH_MODE": "token"})  # as ray.init tries too
    if said == "refused":
        mode = os.environ.get("RAY_AUTH_MODE", "not set")
        raise UserError(
            f"the Ray cluster at {address} refuses the token of this machine (RAY_AUTH_MODE is "
            f"{mode}): set RAY_AUTH_MODE=token here and copy the token of the head node, as for "
            "every node"
        )
    if said != "answers":
        raise UserError(
            f"{address} takes connections but does not answer as a Ray cluster: give the address "
            "that `ray start --head` printed"
        )


def _ask(address: str, environment: Any) -> str:
    """Ask in a process of its own, since Ray cannot be told to give up earlier."""
    command = [sys.executable, "-c", QUESTION, address]
    try:
        asked = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "silent"
    return asked.stdout.strip()


def on_node(ray: Any, node: str, function: Callable[..., Any], **options: Any) -> Any:
    """Return a function as a task for one node, which takes no CPU from jobs."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    place = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=place, **options)(function)


def check_nodes(ray: Any, marker: tuple[str, str] | None) -> bool:
    """Check what the nodes have before work is sent to them; return whether all see the folder.

    Raises:
        UserError: Names the nodes that have no flatlab, have another one, or do not answer.
    """

    # A function inside a function travels by value, so that a node without flatlab can answer.
    def look(marker: tuple[str, str] | None) -> tuple[str | None, bool]:
        try:
            from flatlab.jobs import node
        except ImportError as error:
            missing = error.name == "flatlab"
            return None if missing else f"another version ({error})", False
        return node.identity(), node.sees(marker)

    asked = {node: on_node(ray, node, look).remote(marker) for node in alive_nodes(ray)}
    ours, wrong, silent, seen = identity(), [], [], True
    for node, answer in asked.items():
        try:
            theirs, sees = ray.get(answer, timeout=NODE_SECONDS)
        except ray.exceptions.RayError as error:
            if name := alive_nodes(ray).get(node):  # otherwise it is gone, and gets no work
                silent.append(f"{name} does not answer ({type(error).__name__})")
            continue
        seen = seen and sees
        if theirs != ours:
            has = "no flatlab" if theirs is None else f"flatlab {theirs}"
            wrong.append(f"{alive_nodes(ray).get(node, node)} has {has}")
    if wrong:
        raise UserError(f"{'; '.join(wrong)}: install flatlab {ours} there, which is used here")
    if silent:
        raise UserError(f"{'; '.join(silent)}: start it again, or take it out of the cluster")
    return seen


def alive_nodes(ray: Any) -> dict[str, str]:
    """Return the ids of the nodes that are there, each with a name for messages."""
    there = ((n["NodeID"], n["NodeManagerHostname"]) for n in ray.nodes() if n["Alive"])
    return {node: f"node {host} ({node[:8]})" for node, host in there}
