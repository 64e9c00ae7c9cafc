"""Figure 2b: features in the first layer of a network with simplified BatchNorm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...models import Params

PRINTED = (  # (w1, w2, norm of the rest)
    (18.581, -18.582, 0.02),
    (-14.363, -14.363, 0.03),
    (13.768, 13.771, 0.03),
    (-12.601, 12.601, 0.01),
)
PRINTED_COLUMNS = (42.47, 42.48, 5.65)


def largest(params: Params, count: int = 4) -> list[int]:
    """Return the neurons with the largest weights, the largest first."""
    return [int(j) for j in np.argsort(-np.linalg.norm(params["W1"], axis=1))[:count]]


def patterns(params: Params) -> int:
    """Return how many of the four sign patterns of (w1, w2) the four largest neurons have."""
    return len({tuple(np.sign(params["W1"][j, :2])) for j in largest(params)})


def misalignment(params: Params) -> float:
    """Return the largest sine of the angles between the four largest neurons and their ±x1 ± x2."""
    rows = params["W1"][largest(params)].astype(float)
    cosine = np.abs(rows[:, :2]).sum(1) / np.sqrt(2) / np.linalg.norm(rows, axis=1)
    return float(np.sqrt(np.maximum(0, 1 - cosine**2)).max())


def columns(params: Params) -> tuple[float, float, float]:
    """Return the norms of the first two columns of W1 and the largest of the others."""
    norms = np.linalg.norm(params["W1"].astype(float), axis=0)
    return float(norms[0]), float(norms[1]), float(norms[2:].max())


def other_columns(params: Params) -> float:
    """Return the largest norm of the other columns over the smaller norm of the first two."""
    one, two, rest = columns(params)
    return rest / min(one, two)


def carried_by_four(params: Params) -> float:
    """Return the share of the four largest neurons in Σ |γ_i a_i|."""
    weights = np.abs(params["gamma"].astype(float) * params["W2"].astype(float).ravel())
    return float(weights[largest(params)].sum() / weights.sum())


def printed_neurons() -> list[dict[str, Any]]:
    """Return the paper's rows; the paper does not show biases and output weights."""
    return [
        {"weights": "paper", "w1": w1, "w2": w2, "rest": rest, "bias": None, "output": None}
        for w1, w2, rest in PRINTED
    ]


def neurons(label: str, params: Params) -> list[dict[str, Any]]:
    """Return a row for each of the four largest neurons."""
    return [
        {
            "weights": label,
            "w1": float(params["W1"][j, 0]),
            "w2": float(params["W1"][j, 1]),
            "rest": float(np.linalg.norm(params["W1"][j, 2:].astype(float))),
            "bias": float(params["b1"][j]),
            "output": float(params["gamma"][j] * params["W2"][j]),
        }
        for j in largest(params)
    ]


def column_norms(
    label: str, each: Sequence[tuple[float, float, float]], seeds: int | None
) -> dict[str, Any]:
    """Return a row with the norms of the columns, averaged over seeds."""
    one, two, rest = (float(norm) for norm in np.mean(each, axis=0))
    return {"weights": label, "first": one, "second": two, "largest_other": rest, "seeds": seeds}
