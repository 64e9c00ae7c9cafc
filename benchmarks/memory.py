"""Peak memory of a long run, measured in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .rows import Row, Target, Tell

EPOCHS, FULL = (6_000, 60_000), 600_000
BELOW = Target("value", "<", 1024)
NO_GROWTH = Target("ratio", "<=", 1.05)

_CHILD = "import sys; from benchmarks.memory import child; child(int(sys.argv[1]), sys.argv[2])"


def benchmark(tell: Tell, full: bool) -> list[Row]:
    """Show that memory is small and does not grow with the number of epochs."""
    peaks = {}
    for epochs in (*EPOCHS, FULL) if full else EPOCHS:
        tell(f"memory: {epochs:,} epochs in a process of its own")
        peaks[epochs] = _peak_of_child(epochs)
    first, *longer = peaks
    rows = [Row("memory", f"peak memory of {first:,} epochs of 1-SAM", peaks[first], "MiB")]
    for epochs in longer:
        growth, ratio = peaks[epochs] - peaks[first], peaks[epochs] / peaks[first]
        rows += [
            Row("memory", f"peak memory of {epochs:,} epochs", peaks[epochs], "MiB", target=BELOW),
            Row("memory", f"its growth from {first:,} epochs; ratio: {epochs:,} over {first:,}",
                growth, "MiB", ratio, NO_GROWTH),
        ]  # fmt: skip
    return rows


def _peak_of_child(epochs: int) -> float:
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(epochs), out],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"the run of the benchmark 'memory' failed:\n{done.stderr}")
    return float(done.stdout)


def child(epochs: int, out: str) -> None:
    """Train in this process and print its peak memory in MiB."""
    from .overhead import train

    train(epochs, out)
    print(peak_mebibytes())


def peak_mebibytes() -> float:
    """Return the largest resident size this process has had.

    Linux includes the parent's size in the `ru_maxrss` of a child started by vfork, so the figure
    is read from /proc if possible.
    """
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        if "VmHWM" in fields:
            return int(fields["VmHWM"].split()[0]) / 2**10
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
