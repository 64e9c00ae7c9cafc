"""The ends of a spectrum: grow a space until they are known or the budget is spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from .contract import Measured
from .davidson import Davidson
from .effort import Effort
from .krylov import Krylov, Ritz

# How often in a row the error must be small; once may be luck of the random start vector.
TIMES = 3
# Relative error that is enough on subsampled data.
COARSE = 3e-3
# Accept if the residual error is at most LOOSE times the tolerance.
LOOSE = 30


def converge(
    space: Krylov,
    effort: Effort,
    ends: list[int],
    tolerance: float,
    limit: int,
    times: int = TIMES,
) -> tuple[Ritz, bool]:
    """Grow a space until the Ritz values at some ends are known.

    The tolerance is relative to the value itself, or to a thousandth of the largest Ritz value in
    magnitude if that is more. Returns the last pairs, and whether they were reached within the
    budget.
    """
    sure = 0
    while True:
        before = space.matrix.products
        space.grow()
        effort.spend(space.matrix.products - before)
        ritz = space.ritz()
        if space.exhausted:
            return ritz, True
        known = all(
            -len(ritz.values) <= end < len(ritz.values)
            and _within(ritz, end, ritz.error(end), tolerance)
            for end in ends
        )
        sure = sure + 1 if known else 0
        if sure >= times:
            return ritz, True
        if space.steps >= limit or not effort.left():
            return ritz, False


def _within(ritz: Ritz, end: int, error: float, tolerance: float) -> bool:
    largest = float(np.abs(ritz.values).max())
    return error <= tolerance * max(abs(float(ritz.values[end])), largest / 1000)


@dataclass(frozen=True)
class End:
    """One end of a spectrum: its value, error and eigenvector."""

    value: float
    error: float
    exact: bool
    complete: bool
    vector: Tensor

    def measured(self, method: str, **details: Any) -> Measured:
        """Return it as a measure does."""
        details["vector"] = self.vector
        return Measured(
            self.value, self.error, self.exact, method, None, self.complete, (), details
        )


def extreme(
    space: Krylov, effort: Effort, end: int, tolerance: float, limit: int, times: int = TIMES
) -> End:
    """Return one end of the spectrum by the Lanczos method."""
    ritz, complete = converge(space, effort, [end], tolerance, limit, times)
    exact = space.exhausted
    error = 0.0 if exact else ritz.error(end)
    error = error if complete else max(error, ritz.doubt(space.matrix.size))
    vector = space.vectors(ritz.coefficients[:, [end]])[:, 0]
    return End(float(ritz.values[end]), error, exact, complete, vector)


def refine(
    space: Davidson, effort: Effort, tolerance: float, limit: int, passing: bool = False
) -> End:
    """Return λ_max by Davidson's method.

    It stops when the error estimated with the nearby matrix is small and the residual error is not
    much larger, or when the residual error is small twice in a row. With `passing` a coarse
    residual error, or a nearby matrix that guided the last step, is enough.
    """
    sure = 0
    while True:
        ritz = space.grow()
        effort.spend()
        by_residuals = ritz.error(-1)
        small = _within(ritz, -1, by_residuals, COARSE if passing else tolerance)
        sure = sure + 1 if small else 0
        near = _within(ritz, -1, space.missing, tolerance) and _within(
            ritz, -1, by_residuals, LOOSE * tolerance
        )
        enough = passing and space.is_near
        complete = near or enough or sure >= 2 or space.exhausted
        if complete or space.steps >= limit or not effort.left():
            break
    error = space.missing if near and sure < 2 else by_residuals
    error = error if complete else max(error, ritz.doubt(space.matrix.size))
    return End(float(ritz.values[-1]), error, False, complete, space.known.vectors[:, -1])
