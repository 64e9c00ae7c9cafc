"""Extreme eigenvalues: λ_max, λ_min, the k largest, and λ_max of every layer's block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..problem import Matrix, Problem
from ..specs import spec
from .contract import About, Measured
from .davidson import RIVAL, Davidson, Known, known_of
from .effort import Effort
from .ends import COARSE, converge, extreme, refine
from .krylov import krylov

Kind = Literal["hessian", "ggn", "fisher", "gram"]
Tolerance = Annotated[float, Field(gt=0, lt=1)]
Limit = Annotated[int, Field(gt=0)]


# Subsamples (one in 9, one in 3) whose eigenvectors start λ_max, if they keep `LEAST` examples.
THINNED = (9, 3)
LEAST = 50
# Parameters × examples above which subsampling pays.
DEAR = 2e7
# Most products on the finer subsample.
PASSING = 4
# Most products on the subsample in a warm start.
GLANCE = 8
# Weight of a random vector in the start, so that the residual can see an eigenvector that the
# subsample lacks. The first correction removes it again.
SPRINKLE = 0.05
# Weight of a rival eigenvector in the start: on other data it may be the top one.
BLEND = 0.3
# Weight of the subsampled eigenvector in a warm start. It is small because it has to be removed
# again if the old eigenvector is still the top one.
GLIMPSE = 0.1


@dataclass
class Memory:
    """What a tracker keeps of λ_max from one time to the next: the leading eigenvectors.

    Attributes:
        vectors: One or two of them as columns; None before the first time.
    """

    vectors: Tensor | None = None

    def starts(self, size: int) -> Tensor | None:
        """Return the leading vectors of the last time; None if there are none of this size."""
        return None if self.vectors is None or len(self.vectors) != size else self.vectors

    def keep(self, known: Known) -> None:
        """Remember the leading vectors of this time."""
        self.vectors = known.leaders.clone(memory_format=torch.contiguous_format)


@spec
class LambdaMax:
    """The largest algebraic eigenvalue.

    By the Lanczos method from a random vector. If products are expensive it starts on a random
    ninth of the data, then a third, where products are cheaper and the eigenvector is already
    close; Davidson's method (`davidson`) then continues on all data. In mode "train" the loss
    depends on the batches, so nothing is subsampled. Ritz values approach λ_max from below.

    Attributes:
        matrix: Which matrix.
        tolerance: Relative error to stop at.
        max_products: Most products, on each part of the data.
        thin: Whether to start on subsampled data; None decides by size. This can miss an
            eigenvector that lives on a few examples outside the subsample.
    """

    matrix: Kind = "hessian"
    tolerance: Tolerance = 1e-3
    max_products: Limit = 100
    thin: bool | None = None
    about: ClassVar[About] = About(
        "λ_max",
        "the largest eigenvalue (algebraic, not in magnitude)",
        "max_{‖v‖=1} vᵀ∇²L v",
        "about 10 to 40 products with the matrix, most of them on a ninth of the data",
        "one direction of many; says nothing of the bulk. ReLU kinks are not seen",
        exact="no: an error from the residual and from thinned data",
    )

    def read(self, problem: Problem, effort: Effort, memory: Memory | None = None) -> Measured:
        """Measure, with a warm start if `memory` has one."""
        effort.expect(20)
        memory = Memory() if memory is None else memory
        warm = memory.starts(problem.size)
        coarse = self._coarse(problem, effort, warm)
        matrix, limit = problem.matrix(self.matrix), self.max_products
        since = "" if warm is None else " and the last time"
        if coarse is None:
            lanczos = krylov(
                matrix, effort, "lanczos", start=None if warm is None else _mixed(warm, effort, 0.3)
            )
            end = extreme(lanczos, effort, -1, self.tolerance, limit)
            memory.keep(known_of(lanczos))
            return end.measured("Lanczos" + (", from the last time" if since else ""))
        near, share = coarse
        given = near.leaders if warm is None else torch.cat([near.vectors[:, -1:], warm], 1)
        space = Davidson(matrix, _mixed(_blended(given, share), effort, SPRINKLE), near)
        end = refine(space, effort, self.tolerance, limit)
        memory.keep(space.known)
        return end.measured(f"Davidson, from thinned data{since}")

    def _coarse(
        self, problem: Problem, effort: Effort, warm: Tensor | None
    ) -> tuple[Known, float] | None:
        """Return the pairs of the subsample and their weight in the start; None if it is too small.

        It starts from a random vector, or in a warm start from an equal mixture of random and old
        vectors, so that an eigenvector which has become the top one since then is seen. In a warm
        start one subsample is enough.
        """
        known, share = None, BLEND
        wanted = problem.size * problem.n >= DEAR if self.thin is None else self.thin
        if not wanted or problem.mode == "train":
            return None
        for step in THINNED if warm is None else THINNED[:1]:
            if problem.n // step < LEAST or not effort.left():
                continue
            matrix = problem.thinned(step, effort.seed).matrix(self.matrix)
            if known is None:
                begin = None if warm is None else _mixed(warm, effort, 1.0)
                lanczos = krylov(matrix, effort, "lanczos", start=begin)
                most = self.max_products if warm is None else GLANCE
                extreme(lanczos, effort, -1, COARSE, most, times=1)
                known = known_of(lanczos)
                if warm is not None:
                    share = _share(matrix, effort, warm, known)
            else:
                space = Davidson(matrix, _blended(known.leaders, BLEND), known)
                refine(space, effort, COARSE, min(PASSING, self.max_products), passing=True)
                known = _refreshed(known, space)
        return None if known is None else (known, share)


def _share(matrix: Matrix, effort: Effort, warm: Tensor, near: Known) -> float:
    """Return the weight of the subsampled eigenvector in a warm start.

    It is small if the old eigenvector is still the top one on the subsample.
    """
    last = warm[:, -1] / warm[:, -1].norm()
    value = float((last * (matrix @ last)).sum())
    effort.spend()
    return GLIMPSE if value >= RIVAL * near.values[-1] else BLEND


def _refreshed(known: Known, space: Davidson) -> Known:
    """Return the pairs of a coarser subsample, the top ones replaced by those of a finer one."""
    fine = space.known
    others = known.vectors[:, :-1] - fine.vectors @ (fine.vectors.T @ known.vectors[:, :-1])
    values = np.append(known.values[:-1], fine.values)
    return Known(values, torch.cat([torch.linalg.qr(others)[0], fine.vectors], 1))


def _blended(vectors: Tensor, share: float) -> Tensor:
    """Return the last vector plus `share` times the others, made orthogonal to it."""
    last = vectors[:, -1:] / vectors[:, -1].norm()
    others = vectors[:, :-1] - last @ (last.T @ vectors[:, :-1])
    made: Tensor = last + share * others.sum(1, keepdim=True)
    return made


def _mixed(vectors: Tensor, effort: Effort, share: float) -> Tensor:
    """Return the sum of the vectors plus `share` times a random unit vector."""
    fresh = effort.normal("lanczos", 0, len(vectors), 1)
    made: Tensor = vectors.sum(1, keepdim=True) + share * fresh / fresh.norm()
    return made


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
        "about 20 to 60 products",
        "at a minimum of a wide network it is near zero, where a relative error means little",
        exact="no: a bound on the error from the residual",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        effort.expect(40)
        space = krylov(problem.matrix(self.matrix), effort, "lanczos")
        return extreme(space, effort, 0, self.tolerance, self.max_products).measured("Lanczos")


@spec
class TopK:
    """The k largest eigenvalues, by block Lanczos with blocks of k.

    From a single start vector a repeated eigenvalue is found only once (a linear model with c
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
        "about 10 products for each eigenvalue",
        "k eigenvalues of as many as there are parameters",
        exact="no: a bound on the error from the residual",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
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
        return Measured(
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
        "about 10 to 20 products for each layer",
        "blocks off the diagonal are left out: λ_max is at least the largest of these",
        exact="no: a bound on the error from the residual",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
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
        return Measured(
            np.array([end.value for end in found]),
            np.array([end.error for end in found]),
            all(end.exact for end in found),
            "Lanczos in each block",
            None,
            all(end.complete for end in found),
            tuple(problem.layers),
        )
