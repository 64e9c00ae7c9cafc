"""Extreme eigenvalues: λ_max, λ_min, the k largest, and λ_max of every layer's block."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from ..problem import Matrix, Problem
from ..specs import spec
from .contract import About, Outcome
from .effort import Effort
from .krylov import Krylov, Ritz, krylov

Kind = Literal["hessian", "ggn", "fisher", "gram"]
Tolerance = Annotated[float, Field(gt=0, lt=1)]
Limit = Annotated[int, Field(gt=0)]

_MOVES = "moves"
_INVARIANT = "invariant"


# So often the error must be small: once can be luck of a random start vector.
TIMES = 3
# λ_max starts from the eigenvector of thinned data, coarse to fine, where enough examples are left.
THINNED = (9, 3)
LEAST = 50
COARSE = 3e-3


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
        largest = float(np.abs(ritz.values).max())
        sure += all(
            -len(ritz.values) <= end < len(ritz.values)
            and ritz.error(end) <= tolerance * max(abs(float(ritz.values[end])), largest / 1000)
            for end in ends
        )
        if sure >= times:
            return ritz, True
        if space.steps >= limit or not effort.left():
            return ritz, False


def extreme(
    matrix: Matrix,
    effort: Effort,
    end: int,
    tolerance: float,
    limit: int,
    start: Tensor | None = None,
    times: int = TIMES,
) -> tuple[float, float, bool, bool, Tensor]:
    """Return one end of the spectrum: value, error, exactness, completeness and eigenvector."""
    space = krylov(matrix, effort, "lanczos", start=start)
    ritz, complete = converge(space, effort, [end], tolerance, limit, times)
    exact = space.exhausted
    vector = space.vectors(ritz.coefficients[:, [end]])[:, 0]
    error = 0.0 if exact else ritz.error(end)
    error = error if complete else max(error, ritz.doubt(matrix.size))
    return float(ritz.values[end]), error, exact, complete, vector


@spec
class LambdaMax:
    """The largest algebraic eigenvalue, by Lanczos from a random start.

    The error is that of `Ritz.error`; Ritz values approach λ_max from below.
    """

    matrix: Kind = "hessian"
    tolerance: Tolerance = 1e-3
    max_products: Limit = 100
    about: ClassVar[About] = About(
        "λ_max",
        "the largest eigenvalue (algebraic, not in magnitude)",
        "max_{‖v‖=1} vᵀ∇²L v",
        _MOVES,
        _MOVES,
        _INVARIANT,
        "about 10 to 30 products with the matrix",
        "one direction of many; says nothing of the bulk. ReLU kinks are not seen",
        exact="no: a bound on the error from the residual",
    )

    def read(self, problem: Problem, effort: Effort, start: Tensor | None = None) -> Outcome:
        """Measure, from a start vector if one is given."""
        effort.expect(20)
        method, times = "Lanczos", TIMES
        if start is None:
            start = self._coarse(problem, effort)
            method += "" if start is None else ", started on thinned data"
        if start is not None:
            times = 2
        value, error, exact, complete, vector = extreme(
            problem.matrix(self.matrix), effort, -1, self.tolerance, self.max_products, start, times
        )
        return Outcome(value, error, exact, method, None, complete, (), {"vector": vector})

    def _coarse(self, problem: Problem, effort: Effort) -> Tensor | None:
        """Return λ_max's eigenvector on ever more of the data, to a coarse tolerance.

        A product costs as much as there are examples, and the eigenvector of a ninth of them is
        already close. In mode "train" the loss depends on how the data are cut: nothing is thinned.
        """
        vector: Tensor | None = None
        for step in THINNED:
            if problem.mode == "train" or problem.n // step < LEAST or not effort.left():
                continue
            matrix = problem.thinned(step).matrix(self.matrix)
            *_, found = extreme(matrix, effort, -1, COARSE, self.max_products, vector, 2)
            vector = found[:, None]
        return vector


@spec
class LambdaMin:
    """The smallest algebraic eigenvalue; negative at a saddle of the loss."""

    matrix: Kind = "hessian"
    tolerance: Tolerance = 1e-3
    max_products: Limit = 200
    about: ClassVar[About] = About(
        "λ_min",
        "the smallest eigenvalue (algebraic)",
        "min_{‖v‖=1} vᵀ∇²L v",
        _MOVES,
        _MOVES,
        _INVARIANT,
        "about 20 to 60 products",
        "at a minimum of a wide network it is near zero, where a relative error means little",
        exact="no: a bound on the error from the residual",
    )

    def read(self, problem: Problem, effort: Effort) -> Outcome:
        """Measure."""
        effort.expect(40)
        value, error, exact, complete, vector = extreme(
            problem.matrix(self.matrix), effort, 0, self.tolerance, self.max_products
        )
        return Outcome(value, error, exact, "Lanczos", None, complete, (), {"vector": vector})


@spec
class TopK:
    """The k largest eigenvalues, by block Lanczos with blocks of k.

    A single start vector finds an eigenvalue once however often it repeats (a linear model with c
    outputs has each c times); a block of k finds up to k copies.
    """

    k: Annotated[int, Field(gt=0, le=100)] = 5
    matrix: Kind = "hessian"
    tolerance: Tolerance = 1e-3
    max_products: Limit = 300
    about: ClassVar[About] = About(
        "λ_1…λ_k",
        "the k largest eigenvalues, with multiplicity",
        "eigenvalues of ∇²L in descending order",
        _MOVES,
        _MOVES,
        _INVARIANT,
        "about 10 products for each eigenvalue",
        "k eigenvalues of as many as there are parameters",
        exact="no: a bound on the error from the residual",
    )

    def read(self, problem: Problem, effort: Effort) -> Outcome:
        """Measure."""
        k = min(self.k, problem.size)
        effort.expect(10 * k)
        space = krylov(problem.matrix(self.matrix), effort, "block", block=k)
        ends = [-1 - i for i in range(k)]
        ritz, complete = converge(space, effort, ends, self.tolerance, self.max_products)
        ends = [end for end in ends if -end <= len(ritz.values)]
        exact = space.exhausted
        errors = np.array([0.0 if exact else ritz.error(end) for end in ends])
        errors = errors if complete else np.maximum(errors, ritz.doubt(problem.size))
        labels = tuple(f"λ_{i + 1}" for i in range(len(ends)))
        vectors = space.vectors(ritz.coefficients[:, ends])
        return Outcome(
            ritz.values[ends], errors, exact, "block Lanczos", None, complete, labels,
            {"vectors": vectors},
        )  # fmt: skip


@spec
class LayerLambdaMax:
    """The largest eigenvalue of every layer's diagonal block."""

    matrix: Kind = "hessian"
    tolerance: Tolerance = 1e-2
    max_products: Limit = 50
    about: ClassVar[About] = About(
        "λ_max by layer",
        "the largest eigenvalue of each layer's diagonal block",
        "λ_max of ∂²L/∂θ_l² for every layer l",
        _MOVES,
        _MOVES,
        _INVARIANT,
        "about 10 to 20 products for each layer",
        "blocks off the diagonal are left out: λ_max is at least the largest of these",
        exact="no: a bound on the error from the residual",
    )

    def read(self, problem: Problem, effort: Effort) -> Outcome:
        """Measure."""
        effort.expect(15 * len(problem.layers))
        whole = problem.matrix(self.matrix)
        found = [
            extreme(whole.within(part), effort, -1, self.tolerance, self.max_products)
            for part in problem.layers.values()
        ]
        return Outcome(
            np.array([value for value, *_ in found]),
            np.array([error for _, error, *_ in found]),
            all(exact for _, _, exact, *_ in found),
            "Lanczos in each block",
            None,
            all(complete for *_, complete, _ in found),
            tuple(problem.layers),
        )
