"""Random probes: means with standard errors that stop for the right reason.

A trace or a Frobenius norm is an expectation over random vectors. Its large part is first taken out
exactly, by projection on the range of a small sketch (Hutch++, Meyer et al. 2021); what is left is
estimated with independent probes until the standard error is small enough, never until the running
mean stops moving.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..problem import Matrix
from .effort import Effort

MINIMUM = 12
SKETCH = 8


@dataclass(frozen=True)
class Sample:
    """Independent values, one row a probe, and whether the wanted error was reached."""

    rows: NDArray[np.float64]
    complete: bool

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean over probes."""
        mean: NDArray[np.float64] = self.rows.mean(0)
        return mean

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the mean."""
        error: NDArray[np.float64] = self.rows.std(0, ddof=1) / np.sqrt(len(self.rows))
        return error

    @property
    def dof(self) -> int:
        """Degrees of freedom of the standard error."""
        return len(self.rows) - 1


def sample(
    probe: Callable[[int], NDArray[np.float64]],
    effort: Effort,
    enough: Callable[[NDArray[np.float64], NDArray[np.float64]], bool],
    limit: int,
) -> Sample:
    """Draw probes until enough(mean, stderr), at least `MINIMUM` of them.

    A budget can end it earlier, with two probes at the least.
    """
    rows: list[NDArray[np.float64]] = []
    while True:
        rows.append(probe(len(rows)))
        effort.spend()
        if len(rows) < 2:
            continue
        drawn = Sample(np.array(rows), True)
        if len(rows) >= MINIMUM and enough(drawn.mean, drawn.stderr):
            return drawn
        if len(rows) >= limit or not effort.left():
            return Sample(drawn.rows, False)


def sketch(matrix: Matrix, effort: Effort, width: int = SKETCH) -> tuple[Tensor, Tensor]:
    """Return Q, an orthonormal basis of the range of A S for random S, and A Q."""
    width = min(width, matrix.size)
    image = matrix @ effort.normal("sketch", 0, matrix.size, width)
    Q, _ = torch.linalg.qr(image)
    effort.spend(width)
    product = matrix @ Q
    effort.spend(width)
    return Q, product


def orthogonal_to(Q: Tensor, v: Tensor) -> Tensor:
    """Return (I − QQᵀ) v."""
    return v - Q @ (Q.T @ v)
