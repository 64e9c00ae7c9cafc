"""Following measures through training, in any loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from .errors import UserError
from .measures import Budget, Readings
from .measures.eigenvalues import Memory
from .measuring import Chosen, choose, read
from .problem import Problem

if TYPE_CHECKING:
    import pandas as pd


class Tracker:
    """Measures a model every so many steps; λ_max starts from the last eigenvector.

    >>> import torch
    >>> model = torch.nn.Linear(3, 1)
    >>> x, y = torch.ones(8, 3), torch.zeros(8, 1)
    >>> tracker = Tracker("lambda_max", every=10, loss=torch.nn.MSELoss(), data=(x, y))
    >>> for step in range(20):
    ...     _ = tracker(model, step)
    >>> list(tracker.history["step"])
    [0, 10]

    Args:
        measures: As for `measure`.
        every: Measure at steps that are multiples of this.
        loss: As for `measure`; may be left out with `fl.train`, which knows its own.
        data: As for `measure`; may be left out with `fl.train`.
        mode: As for `measure`.
        params: As for `measure`.
        seed: As for `measure`.
        budget: As for `measure`.
        dtype: As for `measure`.
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
    ):
        if every < 1:
            raise UserError(f"every must be >= 1, got {every!r}")
        self.measures, self.every, self.loss, self.data = choose(measures), every, loss, data
        self.options: dict[str, Any] = {"mode": mode, "params": params, "dtype": dtype}
        self.seed = seed
        self.budget = Budget(seconds=budget) if isinstance(budget, int | float) else budget
        self.rows: list[dict[str, float]] = []
        self.readings: list[tuple[int, Readings]] = []
        self._memories = {name: Memory() for name in self.measures}

    def __call__(self, model: nn.Module, step: int) -> Readings | None:
        """Measure if it is time; return the readings, or None."""
        if step % self.every:
            return None
        if self.loss is None or self.data is None:
            raise UserError("a Tracker in a loop of your own needs loss= and data=")
        return self.take(model, step, self.loss, self.data)

    def take(self, model: nn.Module, step: int, loss: Any, data: Any) -> Readings:
        """Measure now."""
        with torch.random.fork_rng(devices=[]):
            problem = Problem(model, loss, data, **self.options)
            found = {}
            for name, measure in self.measures.items():
                reading = read(
                    problem, name, measure, seed=self.seed, budget=self.budget,
                    memory=self._memories[name],
                )  # fmt: skip
                found[name] = reading
        readings = Readings(found)
        self.rows.append({"step": step, **_columns(readings)})
        self.readings.append((step, Readings({k: _light(r) for k, r in found.items()})))
        return readings

    @property
    def history(self) -> pd.DataFrame:
        """One row for each measurement: step, value and error of every measure."""
        import pandas as pd

        return pd.DataFrame(self.rows)


def _columns(readings: Readings) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, reading in readings.items():
        values, errors = np.atleast_1d(reading.value), np.atleast_1d(reading.stderr)
        labels = reading.labels or ([""] if len(values) == 1 else map(str, range(len(values))))
        for label, value, error in zip(labels, values, errors, strict=True):
            key = f"{name}.{label}" if label else name
            found[key], found[f"{key}_stderr"] = float(value), float(error)
    return found


def _light(reading: Any) -> Any:
    """Return a reading without vectors as long as the parameters: a history must not hoard them."""
    import dataclasses

    small = {k: v for k, v in reading.details.items() if not isinstance(v, Tensor)}
    return dataclasses.replace(reading, details=small)
