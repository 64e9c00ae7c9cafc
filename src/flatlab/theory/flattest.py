"""The flattest interpolating two-layer network, found directly instead of by training.

By `columns`, the least trace over all interpolating networks of a family, of any width, is

    min Σ_u cost(u)|c_u|  subject to  Σ_u c_u σ(u·x_i) = y_i for all i,

a linear programme over all neurons u. Its dual is max Σ_i λ_i y_i subject to
|Σ_i λ_i σ(u·x_i)| ≤ cost(u) for all u. It is solved by column generation over a growing pool of
neurons: solve over the pool, search for neurons that violate the dual constraint by gradient ascent
from many starts, add them, repeat. While the pool is small the duals of the linear programme are
arbitrary, so the first solves are lassos, ½‖y − f‖² + ½ρ²(Σ cost|c|)² with ρ falling; the last is
the linear programme, whose basic solution has at most n neurons. The result is a network, so its
trace is an upper bound, whatever the search missed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import numpy as np
from threadpoolctl import threadpool_limits

from ..data import Dataset
from ..errors import FlatlabError, UserError, unknown, whole_number
from .bounds import batch_norm_xor, bias_floor, no_bias_floor
from .columns import Family, Neurons
from .pool import CLOSED, Pool
from .solution import Solution


@dataclass(frozen=True)
class Flattest:
    """The flattest interpolating network that was found.

    Attributes:
        solution: The network.
        trace: Its trace, by autograd. A training point exactly on a kink, w·x = 0, counts with
            relu'(0) = 0; `on_kinks` says how many there are.
        limit: Σ cost|c|. For "sim-bn" the limit of the trace as the first layer is scaled up;
            otherwise the trace itself, or with `kinks` false its value with the points on kinks
            counted as active.
        dual_bound: A lower bound on the trace of every network of the family, valid if the search
            missed no neuron: the largest Σλ_i y_i / (largest reduced cost found) over the duals λ
            searched, or the proved floor if that is larger.
        proven: Whether `limit` equals a floor that is proved for all networks of the family.
        complete: In words, how certain it is that nothing is flatter.
        reference: The proved floor ("no-bias", "bias") or the limit of the xor network ("sim-bn" on
            xor data); None where unknown.
        on_kinks: Pairs of a neuron and a training point with w·x = 0 exactly.
    """

    solution: Solution
    trace: float
    limit: float
    dual_bound: float
    proven: bool
    complete: str
    reference: float | None
    neurons: int
    on_kinks: int
    rounds: int
    seconds: float


def flattest(
    data: Dataset,
    family: Family,
    *,
    width: int | None = None,
    seed: int = 0,
    budget_seconds: float = 15.0,
    max_rounds: int | None = None,
    kinks: bool = True,
    hints: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Flattest:
    """Search for the interpolating network of least trace.

    Args:
        data: The training set, interpolated exactly.
        family: "no-bias", σ(w·x); "bias", σ(w·x + b); "sim-bn", with bias and simplified
            BatchNorm.
        width: Width of the returned network, padded with zero neurons; by default as many as are
            needed, at most n.
        seed: Seed of the random starts.
        budget_seconds: Time after which the search stops. Only this makes a result depend on the
            speed of the machine.
        max_rounds: Rounds after which it stops.
        kinks: If False, training points on a kink count as active, so the trace is not below its
            limits from smooth points.
        hints: Whether the neurons ±x_a ± x_b, and those that fire at one training point only, are
            in the pool from the start.
        progress: Called with a line after every round.
    """
    if family not in get_args(Family):
        raise unknown("family", str(family), get_args(Family))
    if not (math.isfinite(budget_seconds) and budget_seconds > 0):
        raise UserError(f"budget_seconds must be > 0 and finite, got {budget_seconds!r}")
    width = None if width is None else whole_number("width", width, least=1)
    max_rounds = None if max_rounds is None else whole_number("max_rounds", max_rounds, least=0)
    seed = whole_number("seed", seed)
    data.require_points("flattest")
    _check_consistent(data)
    began = time.perf_counter()
    search = Pool(Neurons(data, family, kinks), seed, hints)
    floor = {"no-bias": no_bias_floor, "bias": bias_floor}.get(family)
    proved = floor(data) if floor is not None else None

    def stop() -> bool:
        spent = time.perf_counter() - began > budget_seconds
        return spent or (max_rounds is not None and search.rounds >= max_rounds)

    with threadpool_limits(1):  # many small products: more threads would only wait
        search.run(stop, proved, progress or (lambda line: None))
    return _result(search, data, width, proved, time.perf_counter() - began)


def _result(
    search: Pool, data: Dataset, width: int | None, proved: float | None, seconds: float
) -> Flattest:
    family = search.family.family
    directions, coefficients = search.exact()
    limit = float(np.sum(search.family.cost(directions) * np.abs(coefficients)))
    solution = search.family.network(directions, coefficients, width)
    misfit = float(np.max(np.abs(solution.outputs() - data.y_train)))
    trace = solution.trace
    # Points behind a kink by less than rounding were counted as active.
    h = search.family.points @ directions.T
    near = bool(np.any((h <= 0) & (h > -1e-7 * np.max(h, 0))))
    as_solved = math.isclose(trace, limit, rel_tol=1e-6) or (near and trace < limit)
    as_solved = as_solved and limit <= search.objective * (1 + 1e-6)
    if misfit > 1e-8 or not as_solved:
        raise FlatlabError(
            f"the network does not do what was solved for: max|f - y| = {misfit:.1e}, trace "
            f"{trace!r} instead of {search.objective!r}; the training set is too badly conditioned"
        )
    bound = min(max(search.bound(), proved or 0.0), limit)
    proven = proved is not None and limit <= proved * (1 + CLOSED)
    if proven:
        complete = "proven: at the floor, none can be flatter (relu' = 0 on kinks)"
    elif limit - bound <= CLOSED * limit:
        complete = "closed: no neuron found would lower the trace; the search for them is heuristic"
    else:
        complete = "open: the search was stopped; a flatter network may exist"
    reference = proved
    if family == "sim-bn":
        try:
            reference = batch_norm_xor(data)
        except UserError:
            reference = None
    return Flattest(
        solution, trace, limit, bound, proven, complete, reference, len(coefficients),
        int(np.sum(h == 0)), search.rounds, seconds,
    )  # fmt: skip


def _check_consistent(data: Dataset) -> None:
    _, first, place = np.unique(data.x_train, axis=0, return_index=True, return_inverse=True)
    if not np.array_equal(data.y_train[first][place.ravel()], data.y_train):
        raise UserError("no network interpolates: equal training inputs have different labels")
    if not np.any(data.y_train):
        raise UserError("every label is zero: the zero network is the flattest, with trace 0")
