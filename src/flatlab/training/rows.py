"""One row of a run's history: losses and errors, what the family adds, and tracked measures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..anatomy import scores
from ..data import Dataset
from ..engine import evaluate, predict
from ..errors import UserError
from ..models import Chain, Params
from .config import RunConfig
from .run import Run
from .trainers import Trainer


def row_of(config: RunConfig, trainer: Trainer, data: Dataset) -> dict[str, float]:
    """Evaluate the current network: the row of the history at this log point.

    Two-layer and deep networks also get their exact Hessian trace and the scores of `anatomy`, also
    when torch trains them.
    """
    if chain := config.arch.chain:
        return chain_row(config, chain, trainer.params(), data)
    return trainer.evaluate()


def chain_row(config: RunConfig, arch: Chain, params: Params, data: Dataset) -> dict[str, float]:
    """Return the row of given parameters of an engine's network."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # the caller looks
        return evaluate(arch, params, config.loss, data) | scores(arch, params, data)


def tracked_row(config: RunConfig, model: Any, data: Dataset) -> dict[str, float]:
    """Return a value and a standard error for each measure that a run tracks."""
    import torch

    from ..measures import Budget
    from ..measures.catalogue import named
    from ..measures.measuring import Subject, read_all
    from ..measures.tracking import columns_of

    row: dict[str, float] = {}
    for tracked in config.measures:
        measured: Any = data
        if tracked.examples is not None:
            measured = evenly_spaced(data, tracked.examples)
        with torch.random.fork_rng(devices=[]):
            how: Any = {"mode": tracked.mode, "batch_size": tracked.batch_size}
            subject = Subject.of(model, config.loss, measured, **how)
            chosen = {tracked.column: named(tracked.measure)}
            row |= columns_of(read_all(subject, chosen, config.seed, Budget.of(None), skip=False))
    return row


def evenly_spaced(data: Dataset, examples: int) -> Any:
    """Return evenly spaced training examples as tensors (x, y), or the data if all are asked for.

    Of 50,000 training examples and `examples` = 1,000, these are every 50th.
    """
    if examples == data.n:
        return data
    import torch

    rows = np.arange(examples) * data.n // examples
    return torch.tensor(data.x_train[rows]), torch.tensor(data.y_train[rows])


def on_test_set(run: Run, data: Dataset) -> dict[str, float]:
    """Return what the history would hold of a run's final parameters with other test points."""
    return chain_row(run.config, _chain(run), dict(run.params), data)


def outputs_on_test_set(run: Run) -> NDArray[np.floating[Any]]:
    """Return the outputs of a run's final network on its test set."""
    data = run.dataset()
    return predict(_chain(run), dict(run.params), data.x_train, data.x_test)


def _chain(run: Run) -> Chain:
    chain = run.config.arch.chain
    if chain is None:
        raise UserError(f"this is for networks of the engine, got {run.config.arch.describe()}")
    return chain
