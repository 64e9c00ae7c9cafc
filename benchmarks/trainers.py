"""The trainer that a run would have, to be timed by itself."""

from __future__ import annotations

import numpy as np

from flatlab.data import Dataset
from flatlab.engine import CompiledTrainer, unsupported
from flatlab.training.config import RunConfig
from flatlab.training.torch_trainer import TorchTrainer

AnyTrainer = CompiledTrainer | TorchTrainer


def trainer_of(config: RunConfig, data: Dataset) -> AnyTrainer:
    """Return a run's trainer at its initial weights: torch's where the engine has no kernel."""
    slow = unsupported(config.loss, config.arch, config.schedule)
    kind = TorchTrainer if slow else CompiledTrainer
    start = config.arch.initial(data.d, config.seed)
    return kind(config.arch, start, config.loss, data, config.seed, config.dtype)


def require_finite(trainer: AnyTrainer, config: RunConfig) -> None:
    """Raise if the weights are not finite."""
    if not all(np.isfinite(value).all() for value in trainer.params().values()):
        raise FloatingPointError(f"{config.arch} diverged: such a timing means nothing")
