"""What rounding leaves uncertain.

A number that is computed, not drawn, is computed again in arithmetic that rounds at random
(`problem/shaking.py`). How far it moves is its rounding: near a fit f − y and 1 − p cancel, a
saturated unit loses 1 − tanh², a model may cast to float32 inside. If that cannot change the
printed digits, the number is called exact; otherwise it is the error, or a part of it.

A matrix that is computed with rounding is A + E. For a standard normal g, E‖Eg‖² = ‖E‖_F² and
E gᵀEg = Tr E, so a few products in either arithmetic show how large E is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..problem import Matrix, Problem
from ..problem.examples import every_row, mixing
from ..problem.shaking import shaken
from ..randomness import generator
from .contract import Measured, Value, Vector
from .lanczos import ROUNDING

# Largest relative error of a number that is called exact: six digits are printed.
EXACT = 5e-7
# Vectors that show the rounding of products: 3‖Eg‖ < ‖E‖ for all of them is rarer than 1 %.
PROBES = 4
# How far rounding may be from what disturbed runs show.
MARGIN = 3
# Products of extreme size are scaled by a power of two, so that their squares do not vanish.
EXTREME = 2.0**300


def lost(problem: Problem, compute: Callable[[Problem], Any]) -> Any:
    """Return how much rounding may move compute(problem): a number, or an array of them."""
    found = MARGIN * shaken(problem, compute)[1].abs().amax(0)
    return found.numpy() if found.ndim else float(found)


def settled(value: Value, error: Value, how: str, **rest: Any) -> Measured:
    """Return a number that was computed, not drawn: exact, or with rounding as its error.

    An array is exact relative to its largest entry.
    """
    worst = float(np.max(error))
    if worst == 0 or worst <= EXACT * float(np.max(np.abs(np.nan_to_num(value)), initial=0.0)):
        return Measured(value, 0.0 * np.abs(value), True, how, **rest)
    how = how.replace("exact, ", "") + ", up to rounding"
    return Measured(value, 0.0 * value + error, False, how, **rest)


@dataclass(frozen=True)
class Rounding:
    """Rounding of a matrix: normal vectors g and their images E g, as rows.

    Products with the matrix are to be divided by `unit`, a power of two.
    """

    probes: Tensor
    images: Tensor
    unit: float
    single: bool  # products are in float32

    def size(self, scale: float) -> float:
        """Estimate what rounding does to a number of this scale, such as an eigenvalue.

        E moves no eigenvalue by more than ‖E‖_F, which ‖Eg‖ estimates. If E has one direction only,
        ‖Eg‖ is ‖E‖ |z| for a normal z, which may be small; the largest of several is not.
        """
        peak = float(self.images.abs().max()) or 1.0
        length = float((self.images / peak).norm(dim=1).max()) if peak < math.inf else 1.0
        return MARGIN * peak * length + ROUNDING * scale

    def trace(self, fold: Callable[[Vector], Any], scale: float) -> Any:
        """Return a bound on Σ_j E_jj: |Σ_j g_j (Eg)_j| plus two standard deviations of it."""
        peak = float(self.images.abs().max()) or 1.0
        if math.isinf(peak):
            return peak
        pairs = zip(self.probes.numpy(), self.images.numpy() / peak, strict=True)
        found = [np.abs(fold(g * Eg)) + 2 * np.sqrt(fold(Eg**2)) for g, Eg in pairs]
        return peak * np.max(found, 0) + ROUNDING * scale

    def said(self, method: str, allowed: float) -> str:
        """Return the method, with advice if products round by more than the error asked for."""
        lost = self.size(0.0)
        if lost <= allowed or lost == 0:
            return method
        advice = ": measure with dtype='float64'" if self.single else ""
        return f"{method}; rounding is ±{lost:.1g}{advice}"


def rounding(problem: Problem, kind: str, root: Tensor | None = None) -> Rounding:
    """Return the rounding of a matrix as it is computed on this problem, once for each matrix.

    With a vector `root` it is that of the matrix A_ij root_i root_j.
    """
    key = f"rounding of {kind}{'' if root is None else ', scaled'}"
    if key not in problem.known:
        draw = generator(0, "rounding").normal(size=(problem.size, PROBES))
        g = torch.from_numpy(draw)

        def images(part: Problem) -> Tensor:
            if root is not None:
                return root[:, None] * (part.matrix(kind) @ (root[:, None] * g))
            try:
                return part.matrix(kind) @ g
            except UserError:  # rows need no forward mode
                if kind == "hessian" or mixing(part) is not None:
                    raise
                F, weights = every_row(part, kind)
                return (F.T @ (weights[:, None] * (F @ g))).cpu()

        clean, moved = shaken(problem, images)
        size = float(clean.abs().max())
        unit = 2.0 ** math.floor(math.log2(size)) if 0 < size < 1 / EXTREME or size > EXTREME else 1
        rows = moved.transpose(1, 2).reshape(-1, problem.size)
        single = problem.dtype != torch.float64
        problem.known[key] = Rounding(g.T.repeat(len(moved), 1), rows, unit, single)
    found: Rounding = problem.known[key]
    return found


def scaled(problem: Problem, kind: str) -> tuple[Matrix, Rounding]:
    """Return a matrix divided by the unit of its rounding, and the rounding."""
    noise, matrix = rounding(problem, kind), problem.matrix(kind)
    if noise.unit == 1:
        return matrix, noise
    return Matrix(problem.size, lambda v: (matrix @ v) / noise.unit), noise
