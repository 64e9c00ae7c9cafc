"""Measures of the function, not of its parameters: the margin and the gradient to the input."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..errors import UserError
from ..problem import Problem
from ..problem.examples import input_gradients, require_examples
from ..specs import spec
from .contract import About, Measured, Vector
from .effort import Effort
from .rounding import lost, settled


def margins(outputs: Tensor, y: Tensor) -> Tensor:
    """Return f_y − max_{k≠y} f_k for classes, y f for one output and labels ±1 (or 0 and 1)."""
    f = outputs.double()
    if f.ndim == 2 and f.shape[1] >= 2:
        own = (y == 1).sum(1) if y.shape == f.shape else torch.zeros(1)
        if bool((own == 1).all()) and bool(((y == 0) | (y == 1)).all()):
            y = y.argmax(1)
        if y.ndim == 1 and not y.is_floating_point():
            own = torch.zeros_like(f, dtype=torch.bool).scatter_(1, y.long()[:, None], True)
            return f[own] - f.masked_fill(own, -torch.inf).amax(1)
    if f.numel() == len(f) and y.numel() == len(f):
        label, out = y.flatten().double(), f.flatten()
        if bool(((label == 1) | (label == -1)).all()):
            return label * out
        if bool(((label == 0) | (label == 1)).all()):
            return (2 * label - 1) * out
    raise UserError(
        f"margin needs class labels (or ±1 for one output), got outputs {tuple(outputs.shape)} and "
        f"labels {tuple(y.shape)} of {y.dtype}: leave it out for regression"
    )


def _margins(problem: Problem) -> Vector:
    """Return the margin of every example."""
    f, y = (torch.cat(part) for part in zip(*problem.pairs, strict=True))
    found: Vector = margins(f, y).cpu().numpy()
    return found


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
        exact = problem.precise
        each = _margins(exact)
        effort.spend()
        details = {"mean": float(each.mean()), "median": float(np.median(each))}
        details["accuracy"] = float((each > 0).mean())
        value = float(np.quantile(each, self.quantile))
        error = lost(exact, lambda part: np.quantile(_margins(part), self.quantile))
        return settled(value, error, f"exact, quantile {self.quantile:g}", details=details)


@spec
class InputGradient:
    """(1/n) Σ ‖∂ℓ_i/∂x_i‖₂, by one backward pass to the inputs."""

    about: ClassVar[About] = About(
        "E‖∇_x ℓ‖",
        "the mean norm of the loss gradient with respect to the input",
        "(1/n) Σ ‖∂ℓ(f(x_i), y_i)/∂x_i‖₂",
        "one gradient",
        "a property of the function on this data, not of the parameters; scales with 1/‖x‖",
        exact="yes",
        relu="invariant",
        batchnorm="invariant",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        require_examples(problem)
        each = input_gradients(problem.precise)
        effort.spend()
        error = lost(problem.precise, lambda part: input_gradients(part).mean())
        return settled(float(each.mean()), error, "exact, one pass", details={"examples": each})
