"""Following measures through training, in any loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UserError, truth, whole_number
from ..problem.copying import require_dtype
from ..problem.selection import require_reference
from ..problem.statistics import require_mode
from ..randomness import global_states_kept
from . import Budget, Readings
from .measuring import Chosen, Subject, choose, read_all, require_rereadable

if TYPE_CHECKING:
    import pandas as pd


class Tracker:
    """Measures a model every `every` steps.

    >>> import torch
    >>> model = torch.nn.Linear(3, 1)
    >>> x, y = torch.ones(8, 3), torch.zeros(8, 1)
    >>> tracker = Tracker("lambda_max", every=10, loss=torch.nn.MSELoss(), data=(x, y))
    >>> for step in range(20):
    ...     _ = tracker(model, step)
    >>> list(tracker.history["step"])
    [0, 10]

    Args:
        every: Measure at steps that are multiples of this.
        loss: As for `measure`; with `fl.train` by default the loss of the run.
        data: As for `measure`, but no generator, which can be read only once; with `fl.train` by
            default the data of the run.
        measures, mode, params, seed, budget, dtype, reference, preconditioner, skip: As for
            `measure`.
    """

    def __init__(
        self,
        measures: Chosen = "lambda_max",
        every: int = 1,
        *,
        loss: Any = None,
        data: Any = None,
        mode: str = "eval",
        params: str | Sequence[str] | None = None,
        seed: int = 0,
        budget: Budget | float | None = None,
        dtype: str | None = None,
        reference: Mapping[str, Tensor] | None = None,
        preconditioner: Any = None,
        skip: bool = False,
    ):
        require_rereadable(data)
        require_mode(mode)
        require_dtype(dtype)
        if reference is not None:
            require_reference(reference)
        self.measures, self.every = choose(measures), whole_number("every", every, least=1)
        self.loss, self.data, self.skip = loss, data, truth("skip", skip)
        self.options: dict[str, Any] = {"mode": mode, "params": params}
        self.options |= {"dtype": dtype, "reference": reference, "preconditioner": preconditioner}
        self.seed, self.budget = whole_number("seed", seed, least=0), Budget.of(budget)
        self.rows: list[dict[str, float]] = []
        self.readings: list[tuple[int, Readings]] = []

    def __call__(self, model: nn.Module, step: int) -> Readings | None:
        """Measure if it is time; return the readings, or None."""
        step = whole_number("step", step, least=0)
        if step % self.every:
            return None
        return self.take(model, step)

    def take(self, model: nn.Module, step: int, loss: Any = None, data: Any = None) -> Readings:
        """Measure now; `loss` and `data` stand in for those that the tracker was not given."""
        step = whole_number("step", step, least=0)
        loss = loss if self.loss is None else self.loss
        data = data if self.data is None else self.data
        if loss is None or data is None:
            raise UserError("a Tracker in a loop of your own needs loss= and data=")
        with torch.random.fork_rng(devices=[]), global_states_kept():
            subject = Subject.of(model, loss, data, **self.options)
            readings = read_all(subject, self.measures, self.seed, self.budget, self.skip)
        self.rows.append({"step": step, **columns_of(readings)})
        self.readings.append((step, _light(readings)))
        return readings

    @property
    def history(self) -> pd.DataFrame:
        """One row for each measurement: step, value and error of every measure."""
        import pandas as pd

        return pd.DataFrame(self.rows)


def columns_of(readings: Readings) -> dict[str, float]:
    """Return value and standard error of each reading, an array's one by one."""
    found: dict[str, float] = {}
    for name, reading in readings.items():
        values, errors = np.atleast_1d(reading.value), np.atleast_1d(reading.stderr)
        labels = reading.labels or ([""] if len(values) == 1 else map(str, range(len(values))))
        for label, value, error in zip(labels, values, errors, strict=True):
            key = f"{name}.{label}" if label else name
            found[key], found[f"{key}_stderr"] = float(value), float(error)
    return found


def _light(readings: Readings) -> Readings:
    """Return readings without vectors of the parameters' length, which would fill the memory."""
    light = {}
    for name, reading in readings.items():
        small = {k: v for k, v in reading.details.items() if not isinstance(v, Tensor)}
        light[name] = dataclasses.replace(reading, details=small)
    return Readings(light, readings.skipped)
