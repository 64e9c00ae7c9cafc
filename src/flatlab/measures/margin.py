"""The margin: by how much the right answer wins."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..errors import UserError
from ..problem import Problem
from ..specs import spec
from .contract import About, Measured
from .effort import Effort


def margins(outputs: Tensor, y: Tensor) -> Tensor:
    """Return f_y − max_{k≠y} f_k for classes, y f for one output and labels ±1 (or 0 and 1)."""
    f = outputs.double()
    if f.ndim == 2 and f.shape[1] >= 2:
        if y.shape == f.shape and bool(((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all()):
            y = y.argmax(1)
        if y.ndim == 1 and not y.is_floating_point():
            own = torch.zeros_like(f, dtype=torch.bool).scatter_(1, y.long()[:, None], True)
            return f[own] - f.masked_fill(own, -torch.inf).amax(1)
    if f.numel() == len(f) and y.numel() == len(f):
        label, out = y.flatten().double(), f.flatten()
        if bool((label.abs() == 1).all()):
            return label * out
        if bool(((label == 0) | (label == 1)).all()):
            return (2 * label - 1) * out
    raise UserError(
        f"margin needs class labels (or ±1 for one output), got outputs {tuple(outputs.shape)} and "
        f"labels {tuple(y.shape)} of {y.dtype}: leave it out for regression"
    )


@spec
class Margin:
    """A quantile over examples of m_i = f_{y_i}(x_i) − max_{k ≠ y_i} f_k(x_i); 0 is the smallest.

    With one output and labels ±1, m_i = y_i f(x_i); labels 0 and 1 are read as −1 and 1.
    """

    quantile: Annotated[float, Field(ge=0, le=1)] = 0.0
    about: ClassVar[About] = About(
        "margin",
        "by how much the right class wins: the smallest over examples, or a quantile",
        "min_i f_{y_i}(x_i) − max_{k ≠ y_i} f_k(x_i)",
        "one pass",
        "not normalised: doubling the last layer doubles it. Negative if an example is wrong",
        exact="yes",
        relu="invariant",
        batchnorm="invariant",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        labels = torch.cat([y for _, y in problem.batches])
        each = margins(torch.cat(problem.outputs), labels).cpu().numpy()
        effort.spend()
        details = {
            "mean": float(each.mean()),
            "median": float(np.median(each)),
            "accuracy": float((each > 0).mean()),
        }
        value = float(np.quantile(each, self.quantile))
        return Measured(value, 0.0, True, f"exact, quantile {self.quantile:g}", details=details)
