"""The diagonal of a curvature matrix."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..problem import Problem
from ..problem.examples import exact_diagonal
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Kind, Limit, Tolerance
from .probes import dense_within, sample
from .trace import Method, expect_passes, route


@spec
class Diagonal:
    """Every A_jj: exactly from per-example gradients, or as E g_j (A g)_j over signs g.

    If the network is linear in each parameter alone, the Hessian's diagonal is the Gauss–Newton
    one. The error of an estimate is the standard error of each entry. With a budget the diagonal is
    always estimated: a part of the examples would say nothing about a parameter that only other
    examples use.
    """

    matrix: Kind = "hessian"
    method: Method = "auto"
    tolerance: Tolerance = 0.1
    max_products: Limit = 200
    about: ClassVar[About] = About(
        "diag",
        "the diagonal: the curvature along each parameter alone",
        "∂²L/∂θ_j² for every parameter j",
        "exact: one backward pass for each output; otherwise up to 200 products",
        "depends on the choice of coordinates; entries of an estimate have large errors",
        exact="as the trace; a standard error for each entry otherwise",
        permutation="moves",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; an estimate stops when its RMS error is small compared with the norm."""
        way = route(problem, self.matrix, self.method, effort)
        if way == "exact" and not effort.limited:
            kind = "ggn" if self.matrix == "hessian" else self.matrix
            expect_passes(problem, kind, effort)
            values = exact_diagonal(problem, kind, effort.spend).numpy()
            return Measured(values, 0.0 * values, True, "exact, per-example gradients")
        matrix = problem.matrix(self.matrix)
        dense = dense_within(matrix, effort) if way == "dense" else None
        if dense is not None:
            values = dense.diagonal().numpy()
            return Measured(values, 0.0 * values, True, "exact, dense")
        effort.expect(self.max_products)

        def probe(i: int) -> np.ndarray:
            g = effort.signs("diagonal", i, problem.size)
            return np.asarray((g * (matrix @ g)).numpy())

        drawn = sample(
            probe,
            effort,
            lambda mean, error: bool(
                np.linalg.norm(error) <= self.tolerance * np.linalg.norm(mean)
            ),
            self.max_products,
        )
        return Measured(
            drawn.mean, drawn.stderr, False, f"Hutchinson, {len(drawn.rows)} probes",
            drawn.dof, drawn.complete,
        )  # fmt: skip
