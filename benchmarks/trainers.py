"""A run's trainer, to time it by itself."""

from __future__ import annotations

import numpy as np

from flatlab.data import Dataset
from flatlab.training import trainers
from flatlab.training.config import RunConfig


def trainer_of(config: RunConfig, data: Dataset) -> trainers.Trainer:
    """Return a run's trainer at its initial weights; torch's if the engine has no kernel."""
    kind, _ = trainers.choose_trainer("auto", config)
    start = trainers.labelled("params", config.arch.initial(data.d, config.seed))
    return trainers.trainer_of(kind, config, start, data)


def require_finite(trainer: trainers.Trainer, config: RunConfig) -> None:
    """Raise if the weights are not finite."""
    if not all(np.isfinite(value).all() for value in trainer.params().values()):
        raise FloatingPointError(f"{config.arch} diverged: such a timing means nothing")
