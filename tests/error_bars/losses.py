"""The common losses: as flatlab is given them, and of one example, written out by hand.

The form for one example is what the oracle differentiates; it shares no code with flatlab's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import flatlab as fl

Random = np.random.Generator
# Residuals of 1e-7 have nine digits. Where torch's losses compute 1 − p, 1e-8 has eight.
SQUARED, LIKELIHOOD = 1e-14, 1e-8
Each = Callable[[Tensor, Tensor], Tensor]  # outputs and label of one example → its loss


@dataclass(frozen=True)
class Drawn:
    """A loss with labels for it.

    Attributes:
        name: Its name here.
        given: What flatlab is given.
        each: ℓ of one example.
        labels: Scores (n, outputs) of a random teacher → labels.
        outputs: Number of outputs of the network.
        floor: The least training loss at which float64 still gives its derivatives six digits.
        last: A layer to put at the end of the network, or None.
    """

    name: str
    given: Any
    each: Each
    labels: Callable[[Tensor], Tensor]
    outputs: int
    floor: float = SQUARED
    last: nn.Module | None = None


def _real(scores: Tensor) -> Tensor:
    return scores


def _classes(scores: Tensor) -> Tensor:
    return scores.argmax(1)


def _mse(f: Tensor, y: Tensor) -> Tensor:
    return (f - y).square().mean()


def _half_mse(f: Tensor, y: Tensor) -> Tensor:
    return (f - y).square().sum() / 2


def _huber(delta: float, unit: float) -> Each:
    """Return unit · (½e² for |e| ≤ δ, else δ(|e| − ½δ)), averaged over outputs."""

    def each(f: Tensor, y: Tensor) -> Tensor:
        e = f - y
        bent = delta * (e.abs() - delta / 2)
        return unit * torch.where(e.abs() <= delta, e.square() / 2, bent).mean()

    return each


def _cross_entropy(smoothing: float) -> Each:
    """Return log(1 + Σ_{k≠y} e^{f_k − f_y}), which does not cancel where it is small."""

    def each(f: Tensor, y: Tensor) -> Tensor:
        own = torch.arange(len(f)) == y
        ahead = f - (f * own).sum()
        most = ahead.detach().max().clamp(min=0)  # so that nothing overflows
        least = most + torch.log1p(torch.expm1(-most) + ((ahead - most).exp() * ~own).sum())
        return least - smoothing * ahead.mean()

    return each


def _soft(f: Tensor, y: Tensor) -> Tensor:
    return -(y * (f - f.logsumexp(0))).sum()


def _softplus(z: Tensor) -> Tensor:
    return -nn.functional.logsigmoid(-z)  # logaddexp has NaN as second derivative of large z


def _bce(f: Tensor, y: Tensor) -> Tensor:
    return (y * _softplus(-f) + (1 - y) * _softplus(f)).mean()


def _logistic(smoothing: float) -> Each:
    def each(f: Tensor, y: Tensor) -> Tensor:
        q = (1 + y) / 2 * (1 - smoothing) + (1 - y) / 2 * smoothing
        return (q * _softplus(-f) + (1 - q) * _softplus(f)).mean()

    return each


def _nll(f: Tensor, y: Tensor) -> Tensor:
    return -(f * (torch.arange(len(f)) == y)).sum()


def draw(random: Random) -> Drawn:
    """Return a random loss."""
    few, many = int(random.integers(1, 4)), int(random.integers(2, 6))
    delta = float(random.uniform(0.2, 1.0))
    smoothing = float(random.choice([0.0, 0.1, 0.2]))
    makers: list[Callable[[], Drawn]] = [
        lambda: Drawn("mse", nn.MSELoss(), _mse, _real, few),
        lambda: Drawn("mse", "mse", _mse, _real, 1),
        lambda: Drawn("half_mse", "half_mse", _half_mse, _real, few),
        lambda: Drawn("huber", nn.HuberLoss(delta=delta), _huber(delta, 1), _real, few),
        lambda: Drawn(
            "smooth_l1", nn.SmoothL1Loss(beta=delta), _huber(delta, 1 / delta), _real, few
        ),
        lambda: Drawn("ce", nn.CrossEntropyLoss(), _cross_entropy(0.0), _classes, many, LIKELIHOOD),
        lambda: Drawn("ce", "cross_entropy", _cross_entropy(0.0), _classes, many, LIKELIHOOD),
        lambda: Drawn(
            "ce_smooth", nn.CrossEntropyLoss(label_smoothing=0.1), _cross_entropy(0.1), _classes,
            many, LIKELIHOOD,
        ),
        lambda: Drawn("ce_soft", nn.CrossEntropyLoss(), _soft, lambda s: s.softmax(1), many),
        lambda: Drawn(
            "bce", nn.BCEWithLogitsLoss(), _bce, lambda s: (s > 0).double(), few,
            LIKELIHOOD,
        ),
        lambda: Drawn(
            "logistic", fl.Loss("logistic", smoothing=smoothing), _logistic(smoothing),
            lambda s: s.sign(), 1, LIKELIHOOD,
        ),
        lambda: Drawn("nll", nn.NLLLoss(), _nll, _classes, many, LIKELIHOOD, nn.LogSoftmax(1)),
    ]  # fmt: skip
    return makers[int(random.integers(len(makers)))]()
