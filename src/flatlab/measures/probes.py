"""Random probes: means that stop on their standard error.

A trace or a Frobenius norm is an expectation over random vectors. Its large part is first computed
exactly, by projection on the range of a small sketch (Hutch++, Meyer et al. 2021). The rest is
estimated with independent probes. The spread of a pilot decides how many are drawn, so that
stopping does not make the error look smaller than it is.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from ..errors import UserError
from ..outside.memory import require_memory
from ..problem import Matrix
from .contract import Measured, Value, Vector
from .effort import Budget, Effort

# (mean, standard error) → the error and the one that is wanted, each as one number
Wanted = Callable[[Vector, Vector], tuple[float, float]]

# Probes of the pilot, whose spread decides how many are drawn in all.
PILOT = 24
SKETCH = 8
OVERFLOW = (
    "the loss is infinite or NaN near these parameters: take a smaller radius or σ, or write the "
    "loss without overflow"
)
# Equal quadratic forms in random signs: one that varies gives this many with a probability of at
# most (3/4)^11 < 5 %.
ENOUGH = 12
# Quadratic forms that differ by less, relative to the largest, are equal up to rounding in float32.
SAME = 1e-6
# A preparation, such as a sketch, may take at most this share of a budget.
SHARE = 0.5


@dataclass(frozen=True)
class Sample:
    """Independent values, one row for each probe, and whether the wanted error was reached.

    The first `PILOT` rows decide how many rows are drawn, and they alone give the spread. Student's
    interval with the pilot's degrees of freedom then covers as often as it says (Stein 1945); the
    spread of all rows, stopped when it looks small, would be too small on average. If a limit ended
    the sample, no spread has chosen its size, so all rows enter the spread.

    Equal rows show no spread, and their error is unknown, ∞, unless they are `ENOUGH` quadratic
    forms in random signs: a polynomial of degree two in signs that is not constant differs from any
    number with probability 1/4 at least. Other rows may hide an event of any size that is rarer
    than 3/rows (the rule of three).
    """

    rows: Vector
    complete: bool
    signs: bool = True

    @property
    def pilot(self) -> Vector:
        """The rows whose spread counts."""
        return self.rows[:PILOT] if self.complete else self.rows

    @property
    def mean(self) -> Vector:
        """Mean over all probes."""
        return np.asarray(self.rows.mean(0))

    @property
    def stderr(self) -> Vector:
        """Standard error of the mean, widened where the rows are skewed."""
        return self.error_of(len(self.rows))

    def error_of(self, count: int) -> Vector:
        """Return the standard error of a mean of `count` rows."""
        peak = float(np.abs(self.pilot).max()) or 1.0  # the squares of tiny numbers vanish
        error = peak * (self.pilot / peak).std(0, ddof=1) / np.sqrt(count)
        found: Vector = error * widening(skewness_of(self.pilot / peak), count, self.dof)
        return np.where(self.equal, np.inf, found)

    @property
    def equal(self) -> Vector:
        """Which columns have too few values, all equal, to have an error."""
        pilot = self.pilot
        if self.signs and len(pilot) >= ENOUGH:
            return np.zeros(pilot.shape[1:], dtype=bool)
        return np.asarray(np.ptp(pilot, 0) <= (SAME if self.signs else 0.0) * np.abs(pilot).max(0))

    def said(self, method: str) -> str:
        """Return the method, and that nothing is known of the error if all probes are equal."""
        if not self.equal.any():
            return method
        if self.signs:
            return f"{method}, all equal: too few to show an error"
        return f"{method}, all equal: events rarer than {3 / len(self.rows):.2g} are not excluded"

    @property
    def dof(self) -> int:
        """Degrees of freedom of the standard error."""
        return len(self.pilot) - 1

    def measured(self, value: Value, error: Value, method: str, **rest: Any) -> Measured:
        """Return an estimate that was made from this sample."""
        return Measured(value, error, False, method, self.dof, self.complete, **rest)


def skewness_of(rows: Vector) -> Vector:
    """Return the third central moment over the variance's 3/2th power, for each column."""
    away = rows - rows.mean(0)
    cubed, spread = (away**3).mean(0), (away**2).mean(0) ** 1.5
    found: Vector = np.divide(cubed, spread, out=np.zeros_like(cubed), where=spread > 0)
    return found


def widening(skewness: Vector, count: int, dof: int) -> Vector:
    """Return by how much to widen a standard error, so that Student's interval holds Hall's too.

    Quadratic forms in random signs are skewed: a mean that is too small comes with a spread that is
    too small, and Student's interval covers less often than it says. Hall's interval corrects for
    skewness γ: with t = √n (mean − μ)/s and a = γ/√n, it takes Student's quantiles for
    t + a t²/3 + a² t³/27 + a/6.

    Reference: P. Hall, On the removal of skewness by transformation, JRSS B, 1992.

    >>> widening(np.array([0.0, 2.0]), 24, 23).round(2)
    array([1.  , 1.76])
    """
    a = np.where(np.abs(skewness) < 1e-6, 1e-6, skewness) / np.sqrt(count)
    reach = stdtrit(dof, 0.975)
    ends = [3 / a * (np.cbrt(1 + a * (sign * reach - a / 6)) - 1) for sign in (-1, 1)]
    found: Vector = np.maximum(1.0, np.abs(ends).max(0) / reach)
    return found


def sample(
    probe: Callable[[int], Vector], effort: Effort, wish: Wanted, limit: int, signs: bool = True
) -> Sample:
    """Draw `PILOT` probes, and then as many as their spread asks for.

    A budget can end it earlier, after at least two probes. `signs` says whether a probe is a
    quadratic form in random signs.
    """
    rows: list[Vector] = []
    before, wanted, pilot = effort.spent, min(PILOT, limit), min(PILOT, limit)
    while len(rows) < max(wanted, 2):
        if len(rows) >= 2 and (len(rows) >= limit or not effort.left()):
            return Sample(np.array(rows), False, signs)
        rows.append(probe(len(rows)))
        if not np.isfinite(rows[-1]).all():
            raise UserError(OVERFLOW)
        effort.spend()
        if len(rows) == pilot and pilot > 1:
            drawn = Sample(np.array(rows), True, signs)

            def enough(count: int, drawn: Sample = drawn) -> bool:
                error, most = wish(drawn.mean, drawn.error_of(count))
                return error <= most

            counts = range(pilot, limit + 1)
            wanted = pilot + bisect.bisect_left(counts, True, key=enough)
        each = (effort.spent - before) / len(rows)
        effort.expect(before + each * min(max(wanted, pilot), limit))
    return Sample(np.array(rows), len(rows) >= PILOT, signs)


def sketch(matrix: Matrix, effort: Effort, width: int = SKETCH) -> tuple[Tensor, Tensor]:
    """Return Q, an orthonormal basis of the range of A S for random S, and A Q.

    Under a budget it costs at most half of it, and may be empty.
    """
    width = min(width, matrix.size)
    require_memory(
        3 * 8 * width * matrix.size,  # S, A S and Q, then Q, A Q and a product
        f"a sketch of {width} vectors of {matrix.size:.3g} numbers",
        "measure fewer parameters with params=",
    )
    start = effort.normal("sketch", 0, matrix.size, width)
    if effort.budget != Budget():
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


def in_two_parts(
    matrix: Matrix,
    effort: Effort,
    purpose: str,
    form: Callable[[Tensor, Tensor], float],
    tolerance: float,
    limit: int,
    width: int = SKETCH,
) -> tuple[float, Sample]:
    """Estimate form(Q, AQ) + E form(v, Av) with v = (I − QQᵀ) g for independent signs g.

    Q is that of `sketch`. The sample is of the second part.
    """
    effort.expect(60)
    Q, AQ = sketch(matrix, effort, width)
    large = form(Q, AQ)

    def probe(i: int) -> Vector:
        g = effort.signs(purpose, i, matrix.size)
        v = g - Q @ (Q.T @ g)
        return np.array([form(v, matrix @ v)])

    def wish(mean: Vector, error: Vector) -> tuple[float, float]:
        return error[0], tolerance * abs(large + mean[0])

    drawn = sample(probe, effort, wish, limit)
    return large + float(drawn.mean[0]), drawn
