"""The trace of a curvature matrix, its diagonal, and its Frobenius norm: sums by random probes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.linalg import norm
from torch import Tensor

from ..errors import UserError
from ..problem import Problem
from ..problem.certificate import linear_in_each_parameter
from ..problem.examples import exact_diagonal, exact_traces, mixing
from ..problem.ghost import CHUNK
from ..specs import spec
from .contract import About, Measured, Vector
from .effort import Effort
from .eigenvalues import EXACT, Kind, Limit, Tolerance
from .exact import whole
from .lanczos import ROUNDING
from .probes import SHARE, SKETCH, in_two_parts, sample
from .rounding import lost, rounding, scaled, settled

# Exact traces need one backward pass for each output of an example. Up to this number they are
# preferred to an estimate.
MOST_OUTPUTS = 64
ROWS = "exact, per-example gradients"

Compute = Callable[[Problem, str, Callable[[], None]], Vector]
Fold = Callable[[Vector], Any]


@spec
class _OfDiagonal:
    """A linear function of the diagonal of a matrix."""

    matrix: Kind = "hessian"
    method: Literal["auto", "exact", "dense", "probes"] = "auto"
    tolerance: Tolerance = 0.1
    max_products: Limit = 400

    def _by_rows(
        self, problem: Problem, effort: Effort, compute: Compute
    ) -> tuple[Vector, Vector] | None:
        """Return what follows from the gradients of single examples, and its rounding.

        A trace or a diagonal does for GGN, Fisher and Gram matrices, and for the Hessian of a
        network that is linear in each parameter alone, if the budget pays for all examples. A whole
        matrix that another measure has computed is cheaper still. None if it does not follow.
        """
        kind, auto = self.matrix, self.method == "auto"
        if self.method in ("dense", "probes") or (auto and kind in problem.known):
            return None
        fits = mixing(problem) is None and (kind != "hessian" or _linear(problem, effort))
        if self.method == "exact" and not fits:
            raise UserError(
                "the exact trace needs a network that is linear in each parameter alone (ReLU, "
                "max-pooling, fixed statistics), measured outside mode='train': use method='auto'"
            )
        outputs = problem.outputs[0][0].numel()
        if not fits or (auto and outputs > MOST_OUTPUTS):
            return None
        exact = problem.precise
        chunks = sum(-(-len(x) // CHUNK) for x, _ in exact.batches)
        passes = chunks * (1 if kind == "fisher" else outputs)
        effort.expect(passes, 1 / chunks)
        if effort.affordable(0, 1) < passes:
            return None
        if effort.budget.seconds is not None:  # what a few examples cost
            few, began = exact.of(np.arange(min(CHUNK, exact.n))), effort.seconds
            compute(few, kind, effort.spend)
            if effort.affordable((effort.seconds - began) / few.n, 0) < exact.n:
                return None
        values = compute(exact, kind, effort.spend)
        size = ROUNDING * float(np.abs(values).max(initial=0.0))
        return values, lost(exact, lambda part: compute(part, kind, lambda: None)) + size

    def _folded(
        self, problem: Problem, effort: Effort, compute: Compute, fold: Fold, labels: Any = ()
    ) -> Measured:
        """Return fold(diagonal): exactly, or as E fold(g ⊙ A g) over signs g."""
        rows = self._by_rows(problem, effort, compute)
        if rows is not None:
            return settled(fold(rows[0]), fold(rows[1]), ROWS, labels=labels)
        known = whole(problem, self.matrix, effort, self.method)
        if known is not None:
            scale = float(np.abs(known.diagonal).sum())
            error = np.max(rounding(problem.precise, self.matrix).trace(fold, scale))
            return settled(fold(known.diagonal), float(error), known.how, labels=labels)
        return self._estimate(problem, effort, fold, labels)

    def _estimate(self, problem: Problem, effort: Effort, fold: Fold, labels: Any) -> Measured:
        matrix, noise = scaled(problem, self.matrix)
        effort.expect(100)

        def probe(i: int) -> Vector:
            g = effort.signs("diagonal", i, problem.size)
            return np.asarray(fold((g * (matrix @ g)).numpy()))

        def wish(mean: Vector, error: Vector) -> tuple[float, float]:
            return float(norm(error)), self.tolerance * float(norm(mean))

        drawn = sample(probe, effort, wish, self.max_products)
        values = noise.unit * drawn.mean
        error = noise.unit * drawn.stderr + noise.trace(fold, float(np.abs(values).max()))
        method = drawn.said(f"Hutchinson, {len(drawn.rows)} probes")
        return drawn.measured(values, error, method, labels=labels)


@spec
class Trace(_OfDiagonal):
    """Tr A: exact through per-example gradients where possible, otherwise by Hutch++.

    With Q an orthonormal basis of the range of a sketch and g of independent signs,

        Tr A = Tr QᵀAQ + E gᵀ(I − QQᵀ) A (I − QQᵀ) g
    """

    tolerance: Tolerance = 0.03
    about: ClassVar[About] = About(
        "Tr",
        "the trace: the sum of all eigenvalues",
        "Tr ∇²L; for networks linear in each parameter alone, (1/n) Σ_i Tr J_iᵀ (∂²ℓ_i/∂f²) J_i",
        "exact: one backward pass for each output; otherwise 40 to 400 products",
        "positive and negative curvature cancel in it. ReLU kinks are not seen",
        exact=f"{EXACT}, for GGN, Fisher, Gram, and a Hessian linear in each parameter alone; "
        "otherwise a standard error",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        return self._folded(problem, effort, exact_traces, lambda diagonal: float(diagonal.sum()))

    def _estimate(self, problem: Problem, effort: Effort, fold: Fold, labels: Any) -> Measured:
        (matrix, noise), tolerance = scaled(problem, self.matrix), self.tolerance
        value, drawn = in_two_parts(matrix, effort, "trace", _inner, tolerance, self.max_products)
        value *= noise.unit
        error = noise.unit * float(drawn.stderr[0]) + float(noise.trace(fold, abs(value)))
        method = drawn.said(f"Hutch++, {len(drawn.rows)} probes")
        return drawn.measured(value, error, noise.said(method, tolerance * abs(value)))


def _linear(problem: Problem, effort: Effort) -> bool:
    """Return whether the network is linear in each parameter alone; half a budget may find out."""
    known, fits = problem.known, effort.pace(SHARE)
    if "linear" not in known and linear_in_each_parameter(problem, effort.seed, fits):
        known["linear"] = True
    return "linear" in known


def _inner(v: Tensor, Av: Tensor) -> float:
    """Return ⟨v, Av⟩, summed over columns."""
    return float(v @ Av if v.ndim == 1 else (v * Av).sum())


@spec
class LayerTrace(_OfDiagonal):
    """The trace of every layer's diagonal block, exactly or by Hutchinson's estimator.

    With g of independent signs, E g_lᵀ (A g)_l = Tr A_ll, so one probe serves all layers.
    """

    about: ClassVar[About] = About(
        "Tr by layer",
        "the trace of each layer's diagonal block; they add up to the trace",
        "Tr ∂²L/∂θ_l² for every layer l",
        "as the trace",
        "a layer's share depends on how the scale is spread over layers",
        exact="as the trace",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; the tolerance is relative to the norm of all layers' traces."""
        layers = problem.layers

        def fold(diagonal: Vector) -> Vector:
            return np.array([float(diagonal[part].sum()) for part in layers.values()])

        return self._folded(problem, effort, exact_traces, fold, tuple(layers))


@spec
class Diagonal(_OfDiagonal):
    """Every A_jj: exactly from per-example gradients, or as E g_j (A g)_j over signs g.

    If the network is linear in each parameter alone, the Hessian's diagonal is the Gauss–Newton
    one. The error of an estimate is the standard error of each entry. A budget too small for all
    examples makes it an estimate: a part of them would say nothing about a parameter that only
    other examples use.
    """

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
        """Measure; an estimate stops when its RMS error is small compared with the norm.

        Details have each layer's smallest and largest entry.
        """
        found = self._folded(problem, effort, exact_diagonal, lambda diagonal: diagonal)
        values = np.asarray(found.value)
        parts = {name: values[part] for name, part in problem.layers.items()}
        ranges = {name: (float(part.min()), float(part.max())) for name, part in parts.items()}
        return replace(found, details={**found.details, "layers": ranges})


@spec
class Frobenius:
    """‖A‖_F = (Σ λ_i²)^½, from its square.

    With Q and g as for the trace, ‖A‖_F² = ‖AQ‖_F² + E ‖A(I − QQᵀ)g‖². To first order the error
    of ‖A‖_F is the error of ‖A‖_F² divided by 2‖A‖_F.
    """

    matrix: Kind = "hessian"
    method: Literal["auto", "dense", "probes"] = "auto"
    tolerance: Tolerance = 0.03
    max_products: Limit = 400
    about: ClassVar[About] = About(
        "‖·‖_F",
        "the Frobenius norm: the root of the sum of squared eigenvalues",
        "(Σ_i λ_i²)^½",
        "40 to 400 products",
        "dominated by the few largest eigenvalues",
        exact=f"{EXACT}; otherwise a standard error",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        known = whole(problem, self.matrix, effort, self.method)
        if known is not None:
            norm = math.hypot(*known.eigen[0])
            return settled(norm, rounding(problem.precise, self.matrix).size(norm), known.how)
        matrix, noise = scaled(problem, self.matrix)
        square, drawn = in_two_parts(
            matrix, effort, "frobenius", _square, 2 * self.tolerance, self.max_products,
            width=2 * SKETCH,
        )  # fmt: skip
        root, error = math.sqrt(square), float(drawn.stderr[0])
        norm, error = noise.unit * root, noise.unit * (error / (2 * root) if root else error)
        method = noise.said(drawn.said(f"{len(drawn.rows)} probes"), self.tolerance * norm)
        return drawn.measured(norm, error + noise.size(norm), method)


def _square(v: Tensor, Av: Tensor) -> float:
    return float(Av.square().sum())
