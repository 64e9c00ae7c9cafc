"""The curvature of the loss of a random batch along its own gradient: what SGD's steps meet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..problem import Problem
from ..problem.examples import require_examples
from ..problem.slope import along_gradient
from ..randomness import generator
from ..specs import spec
from .contract import About, Measured, Vector
from .effort import Effort
from .eigenvalues import Limit, Tolerance
from .probes import PILOT, Sample, sample
from .rounding import lost, settled

Members = NDArray[np.int64]
# Batches whose rounding is measured: those with the smallest gradients, which round most.
TESTED = 4
# No more batches than this are enumerated, even if asked for.
MOST = 100_000


class _Exhausted(Exception):
    """Raised if no more batches may be drawn."""


class _Batches:
    """The curvatures u_BᵀH_Bu_B of batches, u_B = g_B/‖g_B‖, one after the other.

    `rows` and `sizes` are the examples of each batch that has a gradient, and the gradient's norm.
    """

    def __init__(self, problem: Problem, effort: Effort):
        self.problem, self.effort = problem, effort
        self.rows: list[Members] = []
        self.sizes: list[float] = []
        self.seen = 0

    def curvature(self, rows: Members) -> float | None:
        """Return a batch's curvature, or None if its gradient is exactly zero."""
        size, found = along_gradient(self.problem.of(rows))
        self.seen += 1
        if size == 0:
            return None
        self.rows.append(rows)
        self.sizes.append(size)
        return found

    def lost(self) -> float:
        """Return how much rounding may move a batch's curvature, by those that round most."""
        if not self.rows:
            return 0.0
        tested = [self.rows[place] for place in np.argsort(self.sizes)[:TESTED]]
        # Batches by their places in the problem of their examples alone.
        kept = np.unique(np.concatenate(tested))
        places = [np.searchsorted(kept, rows) for rows in tested]

        def curvatures(part: Problem) -> list[float]:
            return [along_gradient(part.of(_within(part, rows)))[1] for rows in places]

        return float(np.max(lost(self.problem.of(kept), curvatures)))

    def vanished(self, mean: float) -> float:
        """Return by how much the mean would move if batches without a gradient had curvature 0.

        Rounding alone may make a gradient 0, and the batch then belongs to the mean. The curvature
        of a fitted cross-entropy vanishes with its gradient. That of a squared error does not:
        there this is the size of the effect, not a bound.
        """
        return abs(mean) * (self.seen - len(self.rows)) / max(self.seen, 1)

    @property
    def details(self) -> dict[str, int]:
        """How many batches were looked at, and how many of them have no gradient."""
        return {"batches": self.seen, "without_gradient": self.seen - len(self.rows)}


def _within(problem: Problem, rows: Members) -> Members:
    """Return the rows that a problem of fewer examples still has, at least one."""
    inside = rows[rows < problem.n]
    return inside if len(inside) else np.zeros(1, dtype=np.int64)


@spec
class BatchSharpness:
    """E_B[g_Bᵀ H_B g_B / ‖g_B‖²] over batches B of `batch_size` different examples.

    g_B and H_B are the gradient and the Hessian of the mean loss of the batch. With batch_size = n
    it is the curvature along the full gradient, and it is at most E λ_max(H_B). If all batches are
    at most `max_batches` they are enumerated and the mean is exact. Otherwise independent batches
    are drawn. A batch with g_B = 0 has no direction: the mean is over the other batches, the
    details count both, and the error grows (`vanished`). If no batch has a gradient, the value is
    NaN.

    Reference: Andreyev and Beneventano, Edge of stochastic stability, 2024.
    """

    batch_size: Limit = 1
    tolerance: Tolerance = 0.05
    max_batches: Limit = 400
    exact: bool | None = None
    about: ClassVar[About] = About(
        "BS",
        "the batch sharpness: the mean curvature of a batch's loss along the batch's own gradient",
        "E_B[g_Bᵀ H_B g_B / ‖g_B‖²] over batches B of batch_size examples without replacement, as "
        "in SGD's shuffled epochs; g_B, H_B of the batch's mean loss",
        "a gradient and a product with the Hessian of each batch, of at most 400 batches",
        "batches with g_B = 0 are left out and counted in the details. Rounding alone may make "
        "a gradient 0, so the error includes what they would change at curvature 0, which is no "
        "bound for a squared error. ReLU kinks are not seen",
        exact="exact if there are at most 400 batches (batch_size = n, or batch_size = 1 and "
        "n ≤ 400); otherwise a standard error",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        n, size = problem.n, self.batch_size
        if size > n:
            raise UserError(
                f"batch_size must be at most the number of examples, {n:,}, got {size:,}: give a "
                "smaller batch_size or more data"
            )
        require_examples(problem)
        batches, count = _Batches(problem.precise, effort), math.comb(n, size)
        if self.exact and count > MOST:
            raise UserError(
                f"there are {count:.3g} batches of {size} among {n:,} examples, more than the "
                f"{MOST:,} that are enumerated: leave exact=true out"
            )
        fits = count <= self.max_batches and effort.affordable(0, 1) >= count
        if fits if self.exact is None else self.exact:
            found = self._enumerated(batches, count, effort)
            if found is not None:
                return found
        return self._drawn(batches, effort)

    def _enumerated(self, batches: _Batches, count: int, effort: Effort) -> Measured | None:
        """Return the mean over all batches, or None if the seconds left do not suffice."""
        effort.expect(count, self.batch_size / batches.problem.n)
        fits, values = effort.pace(), list[float]()
        for rows in itertools.combinations(range(batches.problem.n), self.batch_size):
            found = batches.curvature(np.array(rows))
            effort.spend()
            values += [] if found is None else [found]
            if self.exact is None and not fits(batches.seen / count):
                return None
        if not values:
            return _nothing(batches, True)
        mean, said = math.fsum(values) / len(values), f"exact, {_several(count)}"
        error = batches.lost() + batches.vanished(mean)
        return settled(mean, error, said, details=batches.details)

    def _drawn(self, batches: _Batches, effort: Effort) -> Measured:
        rows, ratios = _random(batches.problem.n, self.batch_size, effort.seed), list[Vector]()
        batches = _Batches(batches.problem, effort)

        def probe(index: int) -> Vector:
            """Draw until a batch has a gradient: a draw from the batches that have one."""
            while True:
                found = batches.curvature(next(rows))
                if found is not None:
                    ratios.append(np.array([found]))
                    return ratios[-1]
                effort.spend()
                if batches.seen >= self.max_batches or not effort.left():
                    raise _Exhausted

        def wish(mean: Vector, error: Vector) -> tuple[float, float]:
            return error[0], self.tolerance * abs(float(mean[0]))

        effort.expect(PILOT, self.batch_size / batches.problem.n)
        try:
            drawn = sample(probe, effort, wish, self.max_batches, signs=False)
        except _Exhausted:
            if len(ratios) < 2:
                return _nothing(batches)
            drawn = Sample(np.array(ratios), False, signs=False)
        mean = float(drawn.mean[0])
        error = float(drawn.stderr[0]) + batches.lost() + batches.vanished(mean)
        method = drawn.said(f"{len(drawn.rows)} random batches of {self.batch_size}")
        return drawn.measured(mean, error, method, details=batches.details)


def _random(n: int, size: int, seed: int) -> Iterator[Members]:
    """Yield independent batches, each without replacement."""
    for index in itertools.count():
        draw = generator(seed, "measure:batch", index)
        yield np.sort(draw.choice(n, size, replace=False))


def _several(count: int) -> str:
    return "the only batch" if count == 1 else f"all {count:,} batches"


def _nothing(batches: _Batches, every: bool = False) -> Measured:
    how = f"undefined: no batch{'' if every else ' that was drawn'} has a gradient"
    error = 0.0 if every else math.inf
    return Measured(math.nan, error, every, how, complete=every, details=batches.details)
