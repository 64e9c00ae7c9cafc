"""One row of a run's history: losses and errors on both sets, and what the family adds to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..anatomy import scores
from ..data import Dataset
from ..engine import evaluate, predict
from ..errors import UserError
from ..models import Chain, Params, is_chain
from .config import RunConfig
from .run import Run
from .trainers import Trainer


def row_of(config: RunConfig, trainer: Trainer, data: Dataset) -> dict[str, float]:
    """Return the row of a trainer's network as it is.

    The networks of the engine have their exact Hessian trace and the scores of `anatomy` in it,
    whichever trainer holds them.
    """
    if is_chain(config.arch):
        return chain_row(config, config.arch, trainer.params(), data)
    return trainer.evaluate()


def chain_row(config: RunConfig, arch: Chain, params: Params, data: Dataset) -> dict[str, float]:
    """Return the row of given parameters of an engine's network."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # the caller looks
        return evaluate(arch, params, config.loss, data) | scores(arch, params, data)


def on_test_set(run: Run, data: Dataset) -> dict[str, float]:
    """Return what the history would hold of a run's final parameters with other test points."""
    return chain_row(run.config, _chain(run), dict(run.params), data)


def outputs_on_test_set(run: Run) -> NDArray[np.floating[Any]]:
    """Return the outputs of a run's final network on its test set."""
    data = run.dataset()
    return predict(_chain(run), dict(run.params), data.x_train, data.x_test)


def _chain(run: Run) -> Chain:
    arch = run.config.arch
    if not is_chain(arch):
        raise UserError(f"this is for networks of the engine, got {arch.describe()}")
    return arch
