"""Measure the constants of `flatlab.jobs.costs` and print them: `python benchmarks/costs.py`.

Every kind of update is timed at a few sizes like the experiments', on one thread and in
processor time. The fit minimises the relative error, with no constant below zero. Copy the printed
constants to src/flatlab/jobs/costs.py.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.timing import one_thread
from benchmarks.trainers import require_finite, trainer_of
from flatlab.data.catalogue import make
from flatlab.jobs import Job, costs, run_jobs
from flatlab.losses import Loss
from flatlab.models import Architecture, Deep, TwoLayer
from flatlab.training.config import RunConfig
from flatlab.training.rows import chain_row
from flatlab.training.schedule import Phase
from flatlab.training.trainers import Trainer

# Width, input dimension, examples: `quick`, an intermediate size, `lab` and `paper`.
SIZES = ((100, 10, 60), (250, 30, 100), (500, 30, 100))
BATCHES = (1, 10, None)
NETWORKS = {
    "plain": lambda width: TwoLayer(width=width),
    "layer norm": lambda width: TwoLayer(width=width, norm="layer"),
    "softplus": lambda width: TwoLayer(width=width, activation="softplus"),
    "tanh": lambda width: TwoLayer(width=width, activation="tanh"),
    "batch norm": lambda width: TwoLayer(width=width, norm="batch"),
    "deep": lambda width: Deep(depth=3, width=width),
    "deeper": lambda width: Deep(depth=4, width=width),
}
SLICE = 0.15  # seconds per timing, after a warm-up
REPEATS = 3  # the fastest counts


def configs() -> Iterator[RunConfig]:
    """Yield the configurations to time, of one phase each; a small lr prevents divergence."""
    for width, d, n in SIZES:
        data = {"name": "xor", "d": d, "n": n, "seed": 0, "n_test": 1000}
        for name, network in NETWORKS.items():
            for batch in BATCHES:
                for algorithm, rho in (("sgd", 0.0), ("sam", 0.05)):
                    phase = Phase(algorithm, lr=1e-3, rho=rho, batch_size=batch, epochs=1)
                    yield RunConfig(network(width), data, (phase,))
                    if name in ("plain", "layer norm") and batch == 1:
                        carried = phase.changed(momentum=0.5)
                        yield RunConfig(network(width), data, (carried,))
                    if name == "plain" and batch != 10 and width != 250:
                        yield RunConfig(network(width), data, (phase,), loss=Loss("truncated_mse"))


def seconds_a_step(config: RunConfig) -> float:
    """Return the fastest processor time of an update."""
    phase, data = config.schedule[0], make(config.data)
    trainer = trainer_of(config, data)
    units = trainer.units_per_epoch(phase)
    steps = -(-data.n // (phase.batch_size or data.n))
    trainer.advance(phase, 0, units, 0)
    epochs, spent = 1, 0.0
    while spent < SLICE / 2:
        spent = _timed(trainer, phase, units * epochs)
        epochs = max(epochs + 1, round(epochs * min(SLICE / max(spent, 1e-6), 4)))
    best = min(_timed(trainer, phase, units * epochs) for _ in range(REPEATS))
    require_finite(trainer, config)
    return best / (epochs * steps)


def _timed(trainer: Trainer, phase: Phase, units: int) -> float:
    clock = time.process_time()
    trainer.advance(phase, 0, units, 0)
    return time.process_time() - clock


def seconds_a_row(arch: Architecture, config: RunConfig) -> float:
    """Return the fastest processor time of one row of the history."""
    data = make(config.data)
    params = {name: p.astype("float32") for name, p in arch.initial(data.d, 0).items()}
    best = np.inf
    for _ in range(4):
        clock = time.process_time()
        chain_row(config, arch, params, data)
        best = min(best, time.process_time() - clock)
    return best


def fit(rows: list[costs.Constants], seconds: list[float]) -> tuple[costs.Constants, float]:
    """Return nanoseconds for each feature, and the largest relative error."""
    scaled = np.array(rows) / np.array(seconds)[:, None]
    # Columns differ by many orders of magnitude.
    norms = np.linalg.norm(scaled, axis=0)
    found = nnls(scaled / norms, np.ones(len(rows)))[0] / norms
    wrong = float(np.abs(scaled @ found - 1).max())
    return tuple(float(f"{1e9 * value:.3g}") for value in found), wrong  # type: ignore[return-value]


def main() -> None:
    """Measure, fit and print."""
    measured: dict[tuple[str, int], tuple[list[costs.Constants], list[float]]] = {}
    wide = []
    with one_thread():
        for config in configs():
            phase = config.schedule[0]
            key = costs.kind_of(config, phase), int(phase.optimizer.passes) - 1
            rows, seconds = measured.setdefault(key, ([], []))
            rows.append(costs.update_counts(config, phase))
            seconds.append(seconds_a_step(config))
            if config.arch.width == 500 and key[0] != "torch" and phase.batch_size != 10:
                as_float64 = dataclasses.replace(config, dtype="float64")
                wide.append(seconds_a_step(as_float64) / seconds[-1])
        logged = [config for config in configs() if config.schedule[0].batch_size == 1]
        sets = [
            RunConfig(c.arch, {**c.data, "n_test": n_test}, c.schedule)
            for c in logged
            for n_test in (1000, 10_000)
            if c.schedule[0].algorithm == "sgd"
        ]
        evaluation, wrong = fit(
            [
                costs.counts_of(*costs.dimensions(c)[:2], costs.dimensions(c)[2] + c.data["n_test"])
                for c in sets
            ],
            [seconds_a_row(c.arch, c) for c in sets],
        )
    print("CONSTANTS: dict[str, tuple[Constants, Constants]] = {")
    for kind in dict.fromkeys(kind for kind, _ in measured):
        fits = [fit(*measured[kind, number]) for number in (0, 1)]
        errors = ", ".join(f"{error:.0%}" for _, error in fits)
        print(f'    "{kind}": ({fits[0][0]}, {fits[1][0]}),  # within {errors}')
    print("}")
    print(f"EVALUATION: Constants = {evaluation}  # within {wrong:.0%}")
    print(f"FLOAT64 = {np.median(wide):.2g}  # from {min(wide):.2g} to {max(wide):.2g}")
    print(f"START_SECONDS = {starting():.2g}")


def starting() -> float:
    """Return the wall-clock of a job of one epoch."""
    jobs, (width, d, n) = [], SIZES[0]
    data = {"name": "xor", "d": d, "n": n, "seed": 0, "n_test": 100}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(4):
            phase = Phase("sam", lr=1e-3, rho=0.05, batch_size=1, epochs=1)
            config = RunConfig(TwoLayer(width=width), data, (phase,), seed=seed)
            payload = {"config": config.to_dict(), "out": f"{folder}/{seed}", "fresh": False}
            jobs.append(Job(f"seed{seed}", "flatlab.training.session:run_job", payload))
        outcomes = run_jobs(jobs, workers=1)[1:]  # the first starts the fork server too
    return float(np.median([outcome.seconds for outcome in outcomes]))


if __name__ == "__main__":
    main()
