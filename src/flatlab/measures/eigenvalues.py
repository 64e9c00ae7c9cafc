"""Extreme eigenvalues: λ_max, λ_min, the k largest, and λ_max of every layer's block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from ..problem import Problem
from ..specs import spec
from .contract import About, Outcome
from .davidson import Davidson, Known, known_of
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
# An intermediate level is left when so much may be missing.
PASSING = 0.1


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
        sure += all(
            -len(ritz.values) <= end < len(ritz.values)
            and _within(ritz, end, ritz.error(end), tolerance)
            for end in ends
        )
        if sure >= times:
            return ritz, True
        if space.steps >= limit or not effort.left():
            return ritz, False


def _within(ritz: Ritz, end: int, error: float, tolerance: float) -> bool:
    largest = float(np.abs(ritz.values).max())
    return error <= tolerance * max(abs(float(ritz.values[end])), largest / 1000)


@dataclass(frozen=True)
class End:
    """One end of a spectrum: its value, error and eigenvector, and how they were come by."""

    value: float
    error: float
    exact: bool
    complete: bool
    vector: Tensor

    def outcome(self, method: str, **details: Any) -> Outcome:
        """Return it as a measure does."""
        details["vector"] = self.vector
        return Outcome(self.value, self.error, self.exact, method, None, self.complete, (), details)


def extreme(space: Krylov, effort: Effort, end: int, tolerance: float, limit: int) -> End:
    """Return one end of the spectrum by Lanczos' method."""
    ritz, complete = converge(space, effort, [end], tolerance, limit)
    exact = space.exhausted
    error = 0.0 if exact else ritz.error(end)
    error = error if complete else max(error, ritz.doubt(space.matrix.size))
    vector = space.vectors(ritz.coefficients[:, [end]])[:, 0]
    return End(float(ritz.values[end]), error, exact, complete, vector)


def refine(
    space: Davidson, effort: Effort, tolerance: float, limit: int, least: int, enough: float
) -> End:
    """Return λ_max from that of a nearby matrix.

    Args:
        space: The space, with nothing in it yet.
        effort: The account.
        tolerance: Wanted relative error, by residuals and twice.
        limit: Most products.
        least: Fewest products to go by the nearby matrix.
        enough: Wanted relative error, by the nearby matrix.
    """
    sure = 0
    while True:
        ritz = space.grow()
        effort.spend()
        sure += _within(ritz, -1, ritz.error(-1), tolerance)
        near = space.steps >= least and _within(ritz, -1, space.missing, enough)
        complete = near or sure >= 2 or space.exhausted
        if complete or space.steps >= limit or not effort.left():
            break
    error = space.missing if near else ritz.error(-1)
    error = error if complete else max(error, ritz.doubt(space.matrix.size))
    return End(float(ritz.values[-1]), error, False, complete, space.known.vectors[:, -1])


@dataclass
class Memory:
    """What a tracker keeps of λ_max from one time to the next."""

    known: Known | None = None


@spec
class LambdaMax:
    """The largest algebraic eigenvalue.

    By Lanczos' method from a random start, on ever more of the data: a product costs as much as
    there are examples, and the eigenvector of a ninth of them is already close; from there it is
    Davidson's (`davidson`). In mode "train" the loss depends on how the data are cut, and nothing
    is thinned. Ritz values approach λ_max from below.
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
        "about 10 to 30 products with the matrix, most of them on a ninth of the data",
        "one direction of many; says nothing of the bulk. ReLU kinks are not seen",
        exact="no: a bound on the error from the residual",
    )

    def read(self, problem: Problem, effort: Effort, memory: Memory | None = None) -> Outcome:
        """Measure; from what is remembered of the last time, if anything is."""
        effort.expect(20)
        memory = Memory() if memory is None else memory
        warm = memory.known
        known = warm or self._coarse(problem, effort)
        matrix, limit = problem.matrix(self.matrix), self.max_products
        if known is None:
            lanczos = krylov(matrix, effort, "lanczos")
            end = extreme(lanczos, effort, -1, self.tolerance, limit)
            memory.known = known_of(lanczos)
            return end.outcome("Lanczos")
        space = Davidson(matrix, known)
        end = refine(space, effort, self.tolerance, limit, 1 if warm else 2, self.tolerance)
        memory.known = space.known
        return end.outcome("Davidson, from " + ("the last time" if warm else "thinned data"))

    def _coarse(self, problem: Problem, effort: Effort) -> Known | None:
        """Return what thinned data tell, or None where there are too few."""
        known: Known | None = None
        for step in THINNED:
            if problem.mode == "train" or problem.n // step < LEAST or not effort.left():
                continue
            matrix, limit = problem.thinned(step).matrix(self.matrix), self.max_products
            if known is None:
                lanczos = krylov(matrix, effort, "lanczos")
                extreme(lanczos, effort, -1, COARSE, limit)
                known = known_of(lanczos)
            else:
                space = Davidson(matrix, known)
                refine(space, effort, COARSE, limit, 1, PASSING)
                known = space.known
        return known


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
        space = krylov(problem.matrix(self.matrix), effort, "lanczos")
        return extreme(space, effort, 0, self.tolerance, self.max_products).outcome("Lanczos")


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
            extreme(
                krylov(whole.within(part), effort, "lanczos"), effort, -1, self.tolerance,
                self.max_products,
            )
            for part in problem.layers.values()
        ]  # fmt: skip
        return Outcome(
            np.array([end.value for end in found]),
            np.array([end.error for end in found]),
            all(end.exact for end in found),
            "Lanczos in each block",
            None,
            all(end.complete for end in found),
            tuple(problem.layers),
        )
