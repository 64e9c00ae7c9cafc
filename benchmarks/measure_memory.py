"""Memory over repeated measurements of one model, in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .memory import peak_mebibytes
from .rows import Row, Target, Tell

WARM_UP, REPEATS = 20, 200
MEASURES = ("trace", "lambda_max", "frobenius")
GROWTH = Target("value", "<", 5)

_CHILD = """
import sys
from benchmarks.measure_memory import child
child(int(sys.argv[1]), int(sys.argv[2]))
"""


def benchmark(tell: Tell, warm_up: int = WARM_UP, repeats: int = REPEATS) -> list[Row]:
    """Show that the peak after the first measurements is the peak after all of them."""
    tell(f"measure_memory: {repeats} measurements in a process of its own")
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(warm_up), str(repeats)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"the run of 'measure_memory' failed:\n{done.stderr}")
    before, after = map(float, done.stdout.split()[-2:])
    named = ", ".join(MEASURES)
    return [
        Row("measure_memory", f"peak memory after {warm_up} measurements of a small conv net "
            f"({named})", before, "MiB"),
        Row("measure_memory", f"its growth over {repeats} more", after - before, "MiB",
            after / before, GROWTH),
    ]  # fmt: skip


def child(warm_up: int, repeats: int) -> None:
    """Measure in this process and print its peak memory in MiB, after the warm-up and after all."""
    import torch
    from torch import nn

    from flatlab.measures.measuring import measure

    torch.set_num_threads(1)
    torch.manual_seed(0)  # this process does nothing else
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    data = torch.randn(32, 3, 8, 8), torch.randint(10, (32,))
    peaks = []
    for count in (warm_up, repeats):
        for _ in range(count):
            measure(net, nn.CrossEntropyLoss(), data, MEASURES, progress=False)
        peaks.append(peak_mebibytes())
    print(*peaks)
