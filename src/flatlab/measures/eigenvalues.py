"""Extreme eigenvalues: λ_max, λ_min, the k largest, and λ_max of every layer's block."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..problem import Matrix, Problem
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .exact import whole
from .lanczos import HOW, largest
from .rounding import rounding, scaled, settled

Kind = Literal["hessian", "ggn", "fisher", "gram"]
Method = Literal["auto", "dense", "lanczos"]
Tolerance = Annotated[float, Field(gt=0, lt=1)]
Limit = Annotated[int, Field(gt=0)]

EXACT = "exact up to about 1,000 parameters (or rows of per-example gradients)"
BOUND = f"{EXACT}; otherwise a bound that holds with probability 1 − 10⁻⁶"


@spec
class LambdaMax:
    """The largest algebraic eigenvalue: exact for small problems, otherwise by `lanczos`.

    The value is a lower bound; value + error is an upper bound with probability 1 − 10⁻⁶. The
    tolerance is relative to the largest eigenvalue in magnitude.
    """

    matrix: Kind = "hessian"
    method: Method = "auto"
    tolerance: Tolerance = 1e-3
    max_products: Limit = 200
    about: ClassVar[About] = About(
        "λ_max",
        "the largest eigenvalue (algebraic, not in magnitude)",
        "max_{‖v‖=1} vᵀ∇²L v",
        "about 20 to 50 products with the matrix",
        "one direction of many; says nothing of the bulk. ReLU kinks are not seen",
        exact=BOUND,
    )
    sign: ClassVar[int] = 1

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; the eigenvector is in the details."""
        kind, tolerance, sign = self.matrix, self.tolerance, self.sign
        known = whole(problem, kind, effort, self.method)
        if known is not None:
            value, vector = known.end(sign)
            error, details = rounding(problem.precise, kind).size(known.scale), {"vector": vector}
            return settled(value, error, known.how, details=details)
        effort.expect(30)
        matrix, noise = scaled(problem, kind)
        given = (matrix, effort, tolerance, self.max_products)
        top = largest(*given, sign=sign, unit=noise.unit)
        error, method = top.error + noise.size(top.scale), noise.said(HOW, tolerance * top.scale)
        details = {"vector": top.vector}
        return Measured(sign * top.value, error, False, method, None, top.complete, (), details)


@spec
class LambdaMin(LambdaMax):
    """The smallest algebraic eigenvalue; negative at a saddle of the loss.

    It usually lies at the edge of a bulk, which takes more products than λ_max. The tolerance is
    relative to the largest eigenvalue in magnitude.
    """

    tolerance: Tolerance = 1e-2
    about: ClassVar[About] = About(
        "λ_min",
        "the smallest eigenvalue (algebraic)",
        "min_{‖v‖=1} vᵀ∇²L v",
        "about 50 to 100 products",
        "at a minimum of a wide network it is near zero, where a relative error means little",
        exact=BOUND,
    )
    sign: ClassVar[int] = -1


@spec
class TopK:
    """The k largest eigenvalues, with multiplicity, one after the other.

    With P the projection on the i − 1 vectors found so far, λ_i ≤ λ_max((I − P) A (I − P))
    (Courant and Fischer), which `lanczos` bounds from above with a start vector of its own. The
    eigenvalues of A restricted to all vectors found are lower bounds.
    """

    k: Annotated[int, Field(gt=0, le=100)] = 5
    matrix: Kind = "hessian"
    method: Method = "auto"
    tolerance: Tolerance = 1e-3
    max_products: Limit = 500
    about: ClassVar[About] = About(
        "λ_1…λ_k",
        "the k largest eigenvalues, with multiplicity",
        "eigenvalues of ∇²L in descending order",
        "about 20 to 50 products for each eigenvalue",
        "k eigenvalues of as many as there are parameters",
        exact=BOUND,
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        k, kind = min(self.k, problem.size), self.matrix
        labels = tuple(f"λ_{i + 1}" for i in range(k))
        known = whole(problem, kind, effort, self.method)
        if known is not None:
            values, vectors = known.top(k)
            rest: Any = {"labels": labels, "details": {"vectors": vectors}}
            error = rounding(problem.precise, kind).size(known.scale)
            return settled(values, error, known.how, **rest)
        effort.expect(30 * k)
        matrix, noise = scaled(problem, kind)
        found, above = torch.zeros(problem.size, 0, dtype=torch.float64), list[float]()
        scale, complete = 0.0, True
        while len(above) < k and (
            not above or (effort.left() and effort.spent < self.max_products)
        ):
            limit, purpose = self.max_products - effort.spent, f"top:{len(above)}"
            smaller = _compressed(matrix, found)
            top = largest(smaller, effort, self.tolerance, limit, purpose, without=found)
            above.append(top.value + top.error)
            scale = max(scale, top.scale)
            complete &= top.complete
            vector = top.vector - found @ (found.T @ top.vector)
            found = torch.cat([found, (vector / vector.norm())[:, None]], 1)
        product = matrix @ found
        effort.spend(len(above))
        values, mix = np.linalg.eigh((found.T @ product).numpy())
        values, scale = noise.unit * values[::-1], noise.unit * scale
        errors = np.maximum(noise.unit * np.array(above) - values, 0) + noise.size(scale)
        method, complete = noise.said(HOW, self.tolerance * scale), complete and len(above) == k
        details = {"vectors": found @ torch.from_numpy(mix[:, ::-1].copy())}
        labels = labels[: len(above)]
        return Measured(values, errors, False, method, None, complete, labels, details)


def _compressed(matrix: Matrix, found: Tensor) -> Matrix:
    """Return (I − P) A (I − P) with P the projection on some orthonormal vectors."""

    def product(v: Tensor) -> Tensor:
        image = matrix @ (v - found @ (found.T @ v))
        return image - found @ (found.T @ image)

    return Matrix(matrix.size, product)


@spec
class LayerLambdaMax(LambdaMax):
    """The largest eigenvalue of every layer's diagonal block; each is found as λ_max is."""

    tolerance: Tolerance = 1e-2
    max_products: Limit = 100
    about: ClassVar[About] = About(
        "λ_max by layer",
        "the largest eigenvalue of each layer's diagonal block",
        "λ_max of ∂²L/∂θ_l² for every layer l",
        "about 20 to 50 products for each layer",
        "blocks off the diagonal are left out: λ_max is at least the largest of these",
        exact=BOUND,
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        layers = problem.layers
        known = whole(problem, self.matrix, effort, self.method)
        if known is not None:
            blocks = [known.block(part) for part in layers.values()]
            values, scale = np.array([b.end(1)[0] for b in blocks]), max(b.scale for b in blocks)
            error = rounding(problem.precise, self.matrix).size(scale)
            return settled(values, error, known.how, labels=tuple(layers))
        effort.expect(20 * len(layers))
        matrix, noise = scaled(problem, self.matrix)
        given = (effort, self.tolerance, self.max_products)
        parts = [matrix.within(part) for part in layers.values()]
        tops = [largest(part, *given, unit=noise.unit) for part in parts]
        values = np.array([top.value for top in tops])
        errors = np.array([top.error + noise.size(top.scale) for top in tops])
        method = noise.said(HOW, self.tolerance * max(top.scale for top in tops))
        complete = all(top.complete for top in tops)
        return Measured(values, errors, False, method, None, complete, tuple(layers))
