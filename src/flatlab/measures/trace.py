"""The trace of a curvature matrix, of all parameters and layer by layer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..problem import Problem
from ..problem.batches import chosen, joined
from ..problem.certificate import linear_in_each_parameter
from ..problem.examples import exact_traces
from ..problem.ghost import CHUNK
from ..problem.selection import layer_of
from ..specs import spec
from .contract import About, Measured, Vector
from .effort import Effort
from .eigenvalues import Kind, Limit, Tolerance
from .probes import Survey, dense_within, orthogonal_to, sample, sketch, survey

Method = Literal["auto", "exact", "dense", "probes"]

# Exact traces need one backward pass for each output of an example, dense ones one product for each
# parameter. Up to these numbers they are preferred to an estimate.
MOST_OUTPUTS = 64
MOST_PARAMETERS = 48
# Size of the first groups of examples under a budget; later groups grow.
FIRST, MOST = 2, 2 * CHUNK


def route(problem: Problem, matrix: str, method: str, effort: Effort) -> str:
    """Return how a trace (or a diagonal) is found: "exact", "dense" or "probes".

    "exact" uses per-example gradients. It works for the Gauss–Newton, Fisher and Gram matrices, and
    for the Hessian if the network is linear in each parameter alone, because then Tr ∇²L = Tr GGN.
    """
    if method in ("dense", "probes"):
        return method
    outputs = problem.outputs[0][0].numel()
    mixed = problem.mode == "train" and problem.has_batchnorm
    fits = not mixed and (matrix != "hessian" or linear_in_each_parameter(problem, effort.seed))
    if method == "exact":
        if not fits:
            raise UserError(
                "the exact trace needs a network that is linear in each parameter alone (ReLU, "
                "max-pooling, fixed statistics), measured outside mode='train': use method='auto'"
            )
        return "exact"
    if fits and outputs <= MOST_OUTPUTS:
        return "exact"
    return "dense" if problem.size <= MOST_PARAMETERS else "probes"


def by_examples(
    problem: Problem, matrix: str, effort: Effort, fold: Callable[[dict[str, float]], Vector]
) -> Survey:
    """Average `fold` of the traces of the parameters' blocks over the examples.

    It takes all examples or, under a budget, as many as that allows, in random order.
    """
    kind = "ggn" if matrix == "hessian" else matrix

    def mean_of(rows: NDArray[np.int64]) -> Vector:
        return fold(exact_traces(_part(problem, rows), kind, effort.spend))

    if effort.limited:
        return survey(mean_of, problem.n, effort, FIRST, MOST)
    expect_passes(problem, kind, effort)
    whole = fold(exact_traces(problem, kind, effort.spend))
    return Survey(whole, 0.0 * whole, problem.n, problem.n, 1)


def expect_passes(problem: Problem, kind: str, effort: Effort) -> None:
    """Announce one backward pass for each output and each chunk of examples."""
    passes = 1 if kind == "fisher" else problem.outputs[0][0].numel()
    pieces = sum(-(-len(x) // CHUNK) for x, _ in problem.batches)
    effort.expect(passes * pieces, 1 / pieces)


def _part(problem: Problem, rows: NDArray[np.int64]) -> Problem:
    """Return the problem on some of its examples."""
    made = copy.copy(problem)
    made.__dict__.pop("outputs", None)  # cached, of all examples
    made.batches, made.n = joined(chosen(problem.batches, rows), None), len(rows)
    return made


@spec
class Trace:
    """Tr A: exact through per-example gradients where possible, otherwise by Hutch++.

    With Q an orthonormal basis of the range of a sketch and g of independent signs,

        Tr A = Tr QᵀAQ + E gᵀ(I − QQᵀ) A (I − QQᵀ) g
    """

    matrix: Kind = "hessian"
    method: Method = "auto"
    tolerance: Tolerance = 0.03
    max_products: Limit = 400
    about: ClassVar[About] = About(
        "Tr",
        "the trace: the sum of all eigenvalues",
        "Tr ∇²L; for networks linear in each parameter alone, (1/n) Σ_i Tr J_iᵀ (∂²ℓ_i/∂f²) J_i",
        "exact: one backward pass for each output; otherwise 30 to 400 products",
        "positive and negative curvature cancel in it. ReLU kinks are not seen",
        exact="yes for GGN, Fisher, Gram, and a Hessian linear in each parameter alone; "
        "otherwise a standard error",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        way = route(problem, self.matrix, self.method, effort)
        if way == "exact":
            found = by_examples(
                problem, self.matrix, effort, lambda traces: np.array([sum(traces.values())])
            )
            return found.measured()
        matrix = problem.matrix(self.matrix)
        dense = dense_within(matrix, effort) if way == "dense" else None
        if dense is not None:
            return Measured(float(dense.trace()), 0.0, True, "exact, dense")
        effort.expect(60)
        Q, AQ = sketch(matrix, effort)
        large = float((Q * AQ).sum())

        def probe(i: int) -> np.ndarray:
            v = orthogonal_to(Q, effort.signs("trace", i, problem.size))
            return np.array([float(v @ (matrix @ v))])

        drawn = sample(
            probe,
            effort,
            lambda mean, error: float(error[0]) <= self.tolerance * abs(large + float(mean[0])),
            self.max_products,
        )
        return Measured(
            large + float(drawn.mean[0]), float(drawn.stderr[0]), False,
            f"Hutch++, {len(drawn.rows)} probes", drawn.dof, drawn.complete,
        )  # fmt: skip


@spec
class LayerTrace:
    """The trace of every layer's diagonal block, exactly or by Hutchinson's estimator.

    With g of independent signs, E g_lᵀ (A g)_l = Tr A_ll, so one probe serves all layers.
    """

    matrix: Kind = "hessian"
    method: Method = "auto"
    tolerance: Tolerance = 0.1
    max_products: Limit = 400
    about: ClassVar[About] = About(
        "Tr by layer",
        "the trace of each layer's diagonal block; they add up to the trace",
        "Tr ∂²L/∂θ_l² for every layer l",
        "as the trace",
        "a layer's share depends on how the scale is spread over layers",
        exact="as the trace",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure; the tolerance is relative to the largest layer."""
        layers = problem.layers

        def by_layer(traces: dict[str, float]) -> Vector:
            totals = dict.fromkeys(layers, 0.0)
            for name, value in traces.items():
                totals[name if name in totals else layer_of(name)] += value
            return np.array(list(totals.values()))

        way = route(problem, self.matrix, self.method, effort)
        if way == "exact":
            found = by_examples(problem, self.matrix, effort, by_layer)
            return found.measured(tuple(layers))
        matrix = problem.matrix(self.matrix)
        dense = dense_within(matrix, effort) if way == "dense" else None
        if dense is not None:
            diagonal = dense.diagonal()
            values = np.array([float(diagonal[part].sum()) for part in layers.values()])
            return Measured(values, 0.0 * values, True, "exact, dense", labels=tuple(layers))
        effort.expect(100)

        def probe(i: int) -> np.ndarray:
            g = effort.signs("layers", i, problem.size)
            product = g * (matrix @ g)
            return np.array([float(product[part].sum()) for part in layers.values()])

        drawn = sample(
            probe,
            effort,
            lambda mean, error: bool(error.max() <= self.tolerance * np.abs(mean).max()),
            self.max_products,
        )
        return Measured(
            drawn.mean, drawn.stderr, False, f"Hutchinson, {len(drawn.rows)} probes",
            drawn.dof, drawn.complete, tuple(layers),
        )  # fmt: skip
