"""Random probes: means that stop on their standard error.

A trace or a Frobenius norm is an expectation over random vectors. Its large part is first computed
exactly, by projection on the range of a small sketch (Hutch++, Meyer et al. 2021). The rest is
estimated with independent probes until the standard error is small enough, never until the running
mean stops moving.

A mean over the examples needs no probes, but a budget can end it early. The examples seen by then
are a random sample, so their mean is an estimate with a standard error too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..problem import Matrix
from .contract import Measured, Vector
from .effort import Effort

Enough = Callable[[Vector, Vector], bool]

MINIMUM = 12
SKETCH = 8
# Least number of groups of a random sample; fewer would say little about its spread.
GROUPS = 4
# A sketch may take at most this share of a budget.
SHARE = 0.5


@dataclass(frozen=True)
class Sample:
    """Independent values, one row for each probe, and whether the wanted error was reached."""

    rows: Vector
    complete: bool

    @property
    def mean(self) -> Vector:
        """Mean over probes."""
        mean: Vector = self.rows.mean(0)
        return mean

    @property
    def stderr(self) -> Vector:
        """Standard error of the mean."""
        error: Vector = self.rows.std(0, ddof=1) / np.sqrt(len(self.rows))
        return error

    @property
    def dof(self) -> int:
        """Degrees of freedom of the standard error."""
        return len(self.rows) - 1


def sample(probe: Callable[[int], Vector], effort: Effort, enough: Enough, limit: int) -> Sample:
    """Draw probes until enough(mean, stderr), at least `MINIMUM` of them.

    A budget can end it earlier, after at least two probes.
    """
    rows: list[Vector] = []
    before = effort.spent
    while True:
        rows.append(probe(len(rows)))
        effort.spend()
        if len(rows) < 2:
            continue
        drawn = Sample(np.array(rows), True)
        mean, error = drawn.mean, drawn.stderr
        if len(rows) >= MINIMUM and enough(mean, error):
            return drawn
        if len(rows) >= limit or not effort.left():
            return Sample(drawn.rows, False)
        missing = min(needed(len(rows), mean, error, enough), limit) - len(rows)
        effort.expect(effort.spent + missing * (effort.spent - before) / len(rows))


def needed(count: int, mean: Vector, error: Vector, enough: Enough) -> float:
    """Return how many probes will probably be enough; the error falls like 1/√probes.

    >>> round(needed(20, np.array([1.0]), np.array([0.2]), lambda mean, error: error[0] <= 0.1))
    80
    """
    low, high = 1e-3, 1.0  # shares of the error: enough at the low one, if anywhere
    for _ in range(12):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if enough(mean, middle * error) else (low, middle)
    return max(count / low**2, MINIMUM)


@dataclass(frozen=True)
class Survey:
    """The mean over a finite population, from a random sample without replacement.

    Attributes:
        mean: The mean over the members seen.
        stderr: Its standard error; 0 if all were seen.
        seen: How many were seen.
        population: How many there are.
        groups: Number of groups in which they were seen.
    """

    mean: Vector
    stderr: Vector
    seen: int
    population: int
    groups: int

    @property
    def complete(self) -> bool:
        """Whether all were seen."""
        return self.seen == self.population

    @property
    def dof(self) -> int | None:
        """Degrees of freedom of the standard error; None if there is none."""
        return None if self.complete else self.groups - 1

    @property
    def method(self) -> str:
        """The method, in words."""
        if self.complete:
            return "exact, per-example gradients"
        return f"per-example gradients of {self.seen:,} of {self.population:,} examples"

    def measured(self, labels: tuple[str, ...] = ()) -> Measured:
        """Return it as a measure does: an array if there are labels."""
        return Measured(
            self.mean if labels else float(self.mean[0]),
            self.stderr if labels else float(self.stderr[0]),
            self.complete,
            self.method,
            self.dof,
            self.complete,
            labels,
        )


def survey(
    mean_of: Callable[[NDArray[np.int64]], Vector],
    population: int,
    effort: Effort,
    first: int,
    most: int,
) -> Survey:
    """Average over a population in groups; a budget can end it after `GROUPS` of them.

    Members come in random order, so those seen are a random sample without replacement. With
    m_k members in group k of K, Σ_k m_k (x̄_k − x̄)² / (K − 1) has the variance S² of single members
    as its mean whatever the m_k, and x̄ over m of n members has the variance S² (1/m − 1/n).

    Args:
        mean_of: The mean over the members with these indices; accounts for its products.
        population: How many members there are.
        effort: The account.
        first: The size of the first `GROUPS` groups; they grow from there as the budget allows.
        most: The largest size of a group.
    """
    order = effort.order("survey", population)
    means: list[Vector] = []
    sizes: list[int] = []
    seen, size, began, before = 0, min(first, most), effort.seconds, effort.spent
    while seen < population and (len(means) < GROUPS or effort.left()):
        group = order[seen : seen + size]
        means.append(mean_of(group))
        sizes.append(len(group))
        seen += len(group)
        seconds, products = (effort.seconds - began) / seen, (effort.spent - before) / seen
        effort.expect(effort.spent + products * (population - seen))
        if len(means) >= GROUPS:
            payable = effort.affordable(seconds, products)
            size = int(max(1, min(2 * size, most, payable)))
    weights = np.array(sizes, dtype=np.float64)[:, None]
    values = np.array(means)
    mean: Vector = (weights * values).sum(0) / seen
    if seen == population:
        return Survey(mean, np.zeros_like(mean), seen, population, len(means))
    spread = (weights * (values - mean) ** 2).sum(0) / (len(means) - 1)
    stderr: Vector = np.sqrt(spread * (1 / seen - 1 / population))
    return Survey(mean, stderr, seen, population, len(means))


def sketch(matrix: Matrix, effort: Effort, width: int = SKETCH) -> tuple[Tensor, Tensor]:
    """Return Q, an orthonormal basis of the range of A S for random S, and A Q.

    Under a budget it costs at most half of it, and may be empty.
    """
    width = min(width, matrix.size)
    start = effort.normal("sketch", 0, matrix.size, width)
    if effort.limited:
        began = effort.seconds
        image = matrix @ start[:, :1]
        effort.spend()
        payable = 1 + effort.affordable(effort.seconds - began, 1)
        width = int(min(width, SHARE * payable / 2))  # 2 · width products, of which one is made
        image = torch.cat([image, matrix @ start[:, 1:width]], 1) if width > 1 else image[:, :width]
        effort.spend(max(width - 1, 0))
    else:
        image = matrix @ start
        effort.spend(width)
    if not width:
        return image, image
    Q, _ = torch.linalg.qr(image)
    product = matrix @ Q
    effort.spend(width)
    return Q, product


def orthogonal_to(Q: Tensor, v: Tensor) -> Tensor:
    """Return (I − QQᵀ) v."""
    return v - Q @ (Q.T @ v)


def dense_within(matrix: Matrix, effort: Effort) -> Tensor | None:
    """Return the whole matrix, or None if the budget is too small, judged by one product's time."""
    if effort.limited:
        if effort.affordable(0, 1) < matrix.size:
            return None
        began = effort.seconds
        matrix @ effort.signs("price", 0, matrix.size)
        effort.spend()
        if effort.affordable(effort.seconds - began, 0) < matrix.size:
            return None
    effort.expect(effort.spent + matrix.size)
    whole = matrix.dense()
    effort.spend(matrix.size)
    return whole
