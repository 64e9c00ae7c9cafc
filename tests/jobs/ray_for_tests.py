"""Ray clusters for tests: one in this process, one of real nodes. Nothing of them stays."""

import contextlib
import gc
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
from processes import children_of

from conftest import wait_for

# Ray reads these when it is imported. The token of the tests is known to them alone.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Ray gives its workers a low priority, and beside other tests they would hardly run.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (the name that Ray reads)


@pytest.fixture(scope="module")
def ray_here():
    """Connect this process to a cluster of its own with two CPUs; a backend finds it there."""
    import ray

    with tempfile.TemporaryDirectory(prefix="flt", dir="/tmp", ignore_cleanup_errors=True) as place:
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=10**8,
            _temp_dir=place,
        )
        yield ray
        ray.shutdown()
        with warnings.catch_warnings():
            # Ray kills its processes and does not wait for them.
            warnings.filterwarnings("ignore", "subprocess .* is still running", ResourceWarning)
            gc.collect()
        wait_for(lambda: not left_behind(place))


class Nodes:
    """A cluster of real nodes on this machine; each is a process and its descendants."""

    def __init__(self, place):
        self.place, self.processes = place, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        head = ["--head", "--port", self.address.rpartition(":")[2], "--include-dashboard=false"]
        self.head = self.start(*head, "--temp-dir", place, "--num-cpus", "1")

    def start(self, *options, **environment):
        """Start a node and wait until it runs."""
        command = [Path(sys.executable).with_name("ray"), "start", "--block", *options]
        command += ["--disable-usage-stats", "--object-store-memory", "100000000"]
        log = Path(self.place, f"log{len(self.processes)}")
        with open(log, "w") as out:
            process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=out, stderr=out
            )
        self.processes.append(process)
        wait_for(lambda: "Ray runtime started" in log.read_text(), seconds=240)
        return process

    def join(self, **environment):
        """Start one more node with one CPU."""
        return self.start("--address", self.address, "--num-cpus", "1", **environment)

    def family(self, node):
        """Return the processes of a node."""
        return {node.pid, *children_of(node.pid)}

    def leave(self, node):
        """Stop a node as `ray stop` does."""
        node.terminate()
        node.wait()

    def lose(self, node):
        """Kill a node at once, as if its plug was pulled."""
        for pid in self.family(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait()

    def stop(self):
        for node in self.processes[::-1]:
            self.lose(node)


@pytest.fixture(scope="module")
def nodes():
    """Start a head node with one CPU; tests let others join. All are stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="flt", dir="/tmp", ignore_cleanup_errors=True) as place:
        made = Nodes(place)
        yield made
        made.stop()
        wait_for(lambda: not left_behind(place))


def left_behind(place):
    """Return the processes whose command line names a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"{place}/" in path.read_text():
                found.append(int(path.parent.name))
    return found
