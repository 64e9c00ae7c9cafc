"""Run the benchmarks and print one table: `python benchmarks/run.py [--only NAME] [--json]`.

Everything runs on one thread. Each competitor must first take the same steps as the engine in
float64; then both are timed in turns, and the fastest repeat counts. Steps are in processor time,
the benchmarks parallel, overhead and ray in wall-clock. With --json stdout is one document,

    {"machine": {...},
     "benchmarks": [{"name", "what", "value", "unit", "ratio", "target", "reached"}, ...]}

where value, unit, ratio, target and reached may be null.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    figures,
    jax_scan,
    measure_memory,
    measures,
    memory,
    overhead,
    parallel,
    ray_jobs,
    sam_step,
    scaling,
    steps,
    torch_loop,
    vgg,
)
from benchmarks.cases import CASES
from benchmarks.rows import Row, Tell, table
from benchmarks.timing import one_thread

BENCHMARKS: dict[str, Callable[[Tell, bool], list[Row]]] = {
    **{
        name: functools.partial(lambda case, tell, full: steps.benchmark(case, tell), name)
        for name in CASES
    },
    "jax": lambda tell, full: jax_scan.benchmark(tell),
    "scaling": lambda tell, full: scaling.benchmark(tell),
    "parallel": lambda tell, full: parallel.benchmark(tell),
    "overhead": lambda tell, full: overhead.benchmark(tell),
    "ray": lambda tell, full: ray_jobs.benchmark(tell),
    "memory": memory.benchmark,
    "trace": lambda tell, full: [
        row for weights in vgg.WEIGHTS for row in measures.trace(tell, weights)
    ],
    "lambda_max": lambda tell, full: [
        row for weights in vgg.WEIGHTS for row in measures.lambda_max(tell, weights)
    ],
    "torch_loop": lambda tell, full: torch_loop.benchmark(tell),
    "sam_step": lambda tell, full: sam_step.benchmark(tell),
    "measure_memory": lambda tell, full: measure_memory.benchmark(tell),
    "figures": lambda tell, full: figures.benchmark(tell),
}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the chosen benchmarks, print the table, and return the JSON document."""
    options = _parser().parse_args(argv)
    clock = time.perf_counter()
    machine = _machine()
    rows: list[Row] = []
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        tell = _progress(stack)
        for name in options.only or BENCHMARKS:
            rows += BENCHMARKS[name](tell, options.full)
    document = {"machine": machine, "benchmarks": [row.to_dict() for row in rows]}
    if options.json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        _print(rows, machine, time.perf_counter() - clock)
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description="Time the engine, on one thread.")
    parser.add_argument("--json", action="store_true", help="print one JSON document and no table")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(BENCHMARKS),
        metavar="NAME",
        help=f"run this benchmark; may be repeated: {', '.join(BENCHMARKS)}",
    )
    parser.add_argument(
        "--full", action="store_true", help=f"also the memory of {memory.FULL:,} epochs"
    )
    return parser


def _progress(stack: ExitStack) -> Tell:
    """Return a function that shows the current activity: on a terminal in one changing line."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return lambda message: print(message, file=sys.stderr, flush=True)
    status = stack.enter_context(console.status("starting"))
    return lambda message: status.update(message)


def _machine() -> dict[str, Any]:
    found = {"python": platform.python_version(), "cpu": _cpu(), "cores": parallel.cores()}
    found["load"] = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    for package in (
        *("flatlab", "numpy", "numba", "torch", "jax", "ray"),
        *("curvlinops-for-pytorch", "pyhessian", "pytorch_optimizer"),
    ):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def _cpu() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _print(rows: list[Row], machine: dict[str, Any], seconds: float) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=132)
    console.print(table(rows))
    judged = [row.reached for row in rows if row.reached is not None]
    if judged:
        console.print(f"{sum(judged)} of {len(judged)} targets reached.", highlight=False)
    console.print(
        f"{seconds:.0f} s on {machine['cpu']}, {machine['cores']} cores, one thread a process; "
        "fastest of interleaved repeats.",
        highlight=False,
    )
    console.print(
        "ratio: the competitor's time over the engine's, unless the row says otherwise.",
        highlight=False,
    )
    if machine["load"] and machine["load"] > 0.5:
        console.print(
            f"The load was {machine['load']:g} at the start: other work was running, so expect "
            "noise.",
            style="yellow",
            highlight=False,
        )


if __name__ == "__main__":
    main()
