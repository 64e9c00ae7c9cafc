"""The Frobenius norm of a curvature matrix."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..problem import Problem
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Kind, Limit, Tolerance
from .probes import dense_within, orthogonal_to, sample, sketch
from .trace import MOST_PARAMETERS


@spec
class Frobenius:
    """‖A‖_F = (Σ λ_i²)^½, from its square.

    With Q and g as for the trace, ‖A‖_F² = ‖AQ‖_F² + E ‖A(I − QQᵀ)g‖². The error of the root is
    that of the square over 2‖A‖_F.
    """

    matrix: Kind = "hessian"
    tolerance: Tolerance = 0.03
    max_products: Limit = 400
    exact_up_to: Limit = MOST_PARAMETERS
    about: ClassVar[About] = About(
        "‖·‖_F",
        "the Frobenius norm: the root of the sum of squared eigenvalues",
        "(Σ_i λ_i²)^½",
        "30 to 400 products",
        "dominated by the few largest eigenvalues",
        exact="no (yes up to 48 parameters): a standard error",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        matrix = problem.matrix(self.matrix)
        small = problem.size <= self.exact_up_to
        dense = dense_within(matrix, effort) if small else None
        if dense is not None:
            return Measured(float(dense.norm()), 0.0, True, "exact, dense")
        effort.expect(60)
        Q, AQ = sketch(matrix, effort)
        large = float(AQ.square().sum())

        def probe(i: int) -> np.ndarray:
            v = orthogonal_to(Q, effort.signs("frobenius", i, problem.size))
            return np.array([float((matrix @ v).square().sum())])

        drawn = sample(
            probe,
            effort,
            lambda mean, error: float(error[0]) <= 2 * self.tolerance * (large + float(mean[0])),
            self.max_products,
        )
        norm = float(np.sqrt(large + float(drawn.mean[0])))
        error = float(drawn.stderr[0]) / (2 * norm) if norm else 0.0
        return Measured(norm, error, False, f"probes, {len(drawn.rows)}", drawn.dof, drawn.complete)
