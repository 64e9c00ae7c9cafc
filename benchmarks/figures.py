"""Extrapolated seconds of each figure at the paper's sizes and epochs, and the paper's GPU hours.

Every distinct run of a figure's preset `paper` is trained with one seed for a few epochs of each
phase, and the seconds per epoch are multiplied by the paper's epochs. Networks slow down or speed
up as they train (neurons die, ascents change), and logging is not counted. So the seconds are an
extrapolation; `flatlab reproduce SOURCE --preset paper` measures them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from flatlab.data.catalogue import make
from flatlab.experiments import CATALOGUE, Experiment
from flatlab.experiments.catalogue import hours_per_epoch, paper_runs
from flatlab.training.config import RunConfig

from .rows import Row, Tell, number
from .trainers import require_finite, trainer_of

EPOCHS = 40  # epochs of each phase, after one that compiles
SECONDS = 2.0  # longest time for a phase


@dataclass(frozen=True)
class Extrapolated:
    """A run's epochs, how many of them were timed, and the extrapolated seconds of all."""

    epochs: int
    timed: int
    seconds: float


def extrapolate(config: RunConfig, epochs: int = EPOCHS) -> Extrapolated:
    """Train the first epochs of each phase, one phase after the other, in processor time."""
    trainer = trainer_of(config, make(config.data))
    seconds, timed, epoch0 = 0.0, 0, 0
    for phase in config.schedule:
        units = trainer.units_per_epoch(phase)
        trainer.advance(phase, 0, units, epoch0)
        clock, done = time.process_time(), 0
        while done < min(epochs, phase.epochs) and time.process_time() - clock < SECONDS:
            trainer.advance(phase, (done + 1) * units, (done + 2) * units, epoch0)
            done += 1
        seconds += phase.epochs * (time.process_time() - clock) / done
        require_finite(trainer, config)
        timed, epoch0 = timed + done, epoch0 + phase.epochs
    return Extrapolated(config.epochs, timed, seconds)


def figure(experiment: Experiment, epochs: int = EPOCHS) -> Row | None:
    """Return an experiment's row; None if it trains nothing or the paper states no hours."""
    rate = hours_per_epoch(experiment)
    configs = {p.config.digest(): p.config for p in paper_runs(experiment)}
    if rate is None or not configs:
        return None
    try:
        parts = [extrapolate(config, epochs) for config in configs.values()]
    except FloatingPointError as error:
        return Row("figures", f"skipped: {experiment.id}: {error}")
    seconds, total = sum(part.seconds for part in parts), sum(part.epochs for part in parts)
    what = (
        f"{experiment.id}: {total:,} epochs, extrapolated from {sum(p.timed for p in parts):,}; "
        f"ratio: to the paper's {number(rate * total)} hours"
    )
    return Row("figures", what, seconds, "s", 3600 * rate * total / seconds)


def benchmark(tell: Tell, epochs: int = EPOCHS) -> list[Row]:
    """Return a row for each figure or table that trains something."""
    rows = []
    for experiment in CATALOGUE.values():
        tell(f"figures: {experiment.id}, some epochs of each run")
        row = figure(experiment, epochs)
        rows += [row] if row else []
    return rows
