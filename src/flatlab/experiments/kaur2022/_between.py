"""λ_max between two successive iterates, as the authors measure it for BatchNorm at small η."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...models import network
from ...models.contract import State, part
from ...training.rows import evenly_spaced
from ...training.run import load_run
from ...training.trainers import labelled, trainer_of
from ..contract import Computation

POINTS = 8
TARGET = "flatlab.experiments.kaur2022._between:largest_between"


def largest_in_between(s: Any, batch: int) -> Computation:
    """Return what is computed after a run: λ_max at eight points between its end and one more step.

    BatchNorm takes the statistics of batches of min(B, measured) examples.
    """
    payload = {
        "examples": s.measured,
        "batch_size": min(batch, s.measured),
        "tolerance": s.tolerance,
        "points": POINTS,
    }
    return Computation("", TARGET, payload, seconds=5.0)


def mixed(before: State, after: State, weight: float) -> State:
    """Return the state between two: (1 − weight) · before + weight · after; counters stay.

    >>> mixed({"w": np.zeros(1), "n": np.array(3)}, {"w": np.ones(1), "n": np.array(4)}, 0.25)
    {'w': array([0.25]), 'n': array(3)}
    """
    return {
        name: ((1 - weight) * value + weight * after[name]).astype(value.dtype)
        if np.issubdtype(value.dtype, np.floating)
        else value
        for name, value in before.items()
    }


def largest_between(payload: dict[str, Any], report: Callable[[Any], None]) -> dict[str, Any]:
    """Train one more step and measure λ_max at even points between the two iterates.

    Parameters and buffers are interpolated. A run that diverged has no values.
    """
    from ...measures.measuring import measure

    run = load_run(payload["after"])
    if run.status == "diverged":
        return {"lambda_max": [], "largest": None}
    config, data = run.config, run.dataset()
    begin = labelled("params", dict(run.params)) | labelled("buffers", dict(run.buffers))
    trainer = trainer_of("torch", config, begin, data)
    trainer.advance(config.schedule[-1], 0, 1, int(run.columns["epoch"][-1]))
    end = {name: value for name, value in trainer.state().items() if name in begin}
    chosen, count = evenly_spaced(data, payload["examples"]), payload["points"]
    values, errors = [], []
    for k in range(count):
        state = mixed(begin, end, k / (count - 1))
        pieces = (part(state, "params"), part(state, "buffers"))
        net = network(config.arch, data, config.seed, *pieces)
        wanted = {"lambda_max": f"lambda_max:tolerance={payload['tolerance']:g}"}
        how: dict[str, Any] = {"mode": "train", "batch_size": payload["batch_size"]}
        found = measure(net, config.loss, chosen, wanted, seed=config.seed, progress=False, **how)
        reading = found["lambda_max"]
        values.append(float(reading.value))
        errors.append(float(reading.stderr))
        report({"done": (k + 1) / count})
    return {"lambda_max": values, "errors": errors, "largest": max(values)}
