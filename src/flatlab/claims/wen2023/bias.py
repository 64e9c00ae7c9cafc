"""Appendix A.3: networks with bias and D layers, and labels that depend on few coordinates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data import Dataset, circle, from_arrays, sphere
from ...models import Deep
from ...theory.bounds import bias_floor
from ...theory.constructions import circle_as_printed, circle_steps, finite_labels, memorising
from ...theory.geometry import separate
from ...theory.predicates import interpolates, is_extreme
from ...theory.solution import Array, Solution
from ..contract import (
    Line,
    Trial,
    above,
    at_least,
    below,
    claim,
    equal,
    frequency,
    near_zero,
    printed,
    shown,
    slope,
    true,
)
from ..instances import lowest, point_norms, random_networks

LABELS = np.array([1.0, -2.0, 0.5, 1.5, -1.0])


@claim(
    "wen2023.A3.1.gradient_formula",
    "Appendix A.3.1, first display",
    "identity",
    "‖∇f‖² = Σ_{j<D} ‖W_D A_{D−1} ⋯ W_{j+1} A_j‖² ‖a_{j−1}‖² + ‖a_{D−1}‖² for D layers, a_0 = x'.",
)
def gradient_formula(trial: Trial) -> Iterator[Line]:
    data = sphere(d=4, n=5, seed=trial.seed, n_test=0)
    for depth in (2, 3, 4, 5):
        worst = 0.0
        arch = Deep(depth=depth, width=5)
        for each in random_networks(arch, data, trial.rng(f"A.3.1:{depth}"), 50):
            formula = np.array([_chain(each, i) for i in range(data.n)])
            found = (each.gradients() ** 2).sum(1)
            alive = formula > 0
            worst = max(worst, float(np.abs(found[alive] / formula[alive] - 1).max(initial=0)))
            worst = max(worst, float(found[~alive].max(initial=0)))
        yield near_zero(f"largest relative difference to autograd, D = {depth}", worst, 1e-10)


def _chain(solution: Solution, i: int) -> float:
    """Return the right-hand side of the formula at training point i."""
    depth = int(max(name[1:] for name in solution.params if name.startswith("W")))
    sizes = [point_norms(solution.data.x_train)[i], *(
        float(np.linalg.norm(a[i])) for a in solution.hidden()
    )]  # fmt: skip
    total = sizes[-1] ** 2
    row = solution.params[f"W{depth}"]
    for layer in range(depth - 1, 0, -1):
        row = row * (solution.hidden()[layer - 1][i] > 0)
        total += float(row @ row) * sizes[layer - 1] ** 2
        if layer > 1:
            row = row @ solution.params[f"W{layer}"]
    return float(total)


@claim(
    "wen2023.A3.1.floor",
    "Appendix A.3.1",
    "inequality",
    "‖∇f(x)‖² ≥ D |f(x)|^{2(D−1)/D} ‖x'‖^{2/D} for every network with D layers and every x.",
)
def deep_floor(trial: Trial) -> Iterator[Line]:
    data = sphere(d=4, n=8, seed=trial.seed, n_test=0)
    size = point_norms(data.x_train)
    for depth in (2, 3, 4):
        arch = Deep(depth=depth, width=4)
        least = np.inf
        for each in random_networks(arch, data, trial.rng(f"floor:{depth}"), trial.size(150, 2000)):
            f = np.abs(each.outputs())
            floor = depth * f ** (2 * (depth - 1) / depth) * size ** (2 / depth)
            ratios = (each.gradients() ** 2).sum(1)[floor > 0] / floor[floor > 0]
            least = min(least, float(ratios.min(initial=np.inf)))
        yield at_least(f"least ratio over random networks × 8 points, D = {depth}", least, 1)
    one = from_arrays(data.x_train[:1], [1.0])
    start = _positive(Deep(depth=3, width=3), one, trial)
    found = lowest(
        start,
        lambda squared, f, x: squared / (3 * f.abs() ** (4 / 3) * (x @ x + 1) ** (1 / 3)),
        400,
    )
    yield at_least("least found by descending the ratio, D = 3", found, 1)
    yield below("and how near 1 it comes", found, 1.02)


def _positive(arch: Deep, data: Dataset, trial: Trial) -> Solution:
    """Return a network whose neurons are all active, as a start for the descent."""
    rng = trial.rng("positive")
    params = {name: rng.uniform(0.2, 1, s) for name, s in arch.shapes(data.d).items()}
    params["b1"] += 5.0
    return Solution(arch, params, data)


def _pentagon(radius: float, seed: int) -> Dataset:
    """Return 30 points of one norm whose first two coordinates are corners of a pentagon."""
    from ...randomness import generator

    rng = generator(seed, "claim:pentagon")
    corner = np.resize(np.arange(5), 30)
    v = radius * np.stack([np.cos(2 * np.pi * corner / 5), np.sin(2 * np.pi * corner / 5)], 1)
    rest = rng.normal(size=(30, 3))
    rest *= np.sqrt(3) / np.linalg.norm(rest, axis=1, keepdims=True)
    x = np.hstack([v, rest])
    made = from_arrays(x, LABELS[corner], x, LABELS[corner])
    return Dataset(
        made.x_train, made.y_train, made.x_test, made.y_test, "pentagon", 0, made.spec, (0, 1)
    )


@claim(
    "wen2023.propA.1",
    "Appendix A.3.2, Proposition A.1, eq. (16)",
    "construction",
    "If the label depends on coordinates that are extreme points and ‖x‖ = R, the network with "
    "rows r_j w_j/ε and r_j² = |y_j|√(R²+1) is a flattest minimum with error 0.",
    as_printed="Rows r_j v_j/ε with r_j² = |y_j|(R²+1).",
    errata=("E7",),
)
def proposition_a1(trial: Trial) -> Iterator[Line]:
    for radius in (0.5, 1.0, 2.0):
        data = _pentagon(radius, trial.seed)
        made, floor = finite_labels(data), bias_floor(data)
        where = f"pentagon of radius {radius}, n = 30"
        yield true(f"it interpolates, {where}", interpolates(made))
        yield equal(f"trace, {where}", made.trace, floor)
        yield near_zero(f"test loss, {where}", made.test_loss())
        scale = (float(np.sum(data.x_train[0] ** 2)) + 1) ** 0.25  # r printed over r
        params = {"W1": made.params["W1"] * scale, "b1": made.params["b1"] * scale,
                  "W2": made.params["W2"] / scale}  # fmt: skip
        yield printed(
            equal(f"trace with the printed r, {where}", made.with_params(**params).trace, floor)
        )
        if radius != 1:
            yield printed(
                near_zero(f"training loss with v_j for w_j, {where}", _with_corners(made).loss())
            )


def _with_corners(made: Solution) -> Solution:
    """Return the network with v_j = ‖v‖ w_j instead of w_j in the first layer only."""
    values = np.unique(made.data.x_train[:, :2], axis=0)
    size = np.linalg.norm(values, axis=1)
    return made.with_params(W1=made.params["W1"] * size[:, None])


@claim(
    "wen2023.propA.2",
    "Appendix A.3.2, Proposition A.2, eq. (17)",
    "construction",
    "On the circle with Lipschitz labels a network of width 3n is flattest and has an error that "
    "vanishes with n.",
    as_printed="A network of width n, eq. (17), is flattest with error O(δ²).",
    errata=("E9",),
    note="The corrected network is ours: two more neurons in every gap, inactive on the training "
    "set. Whether width n suffices is left open here.",
)
def proposition_a2(trial: Trial) -> Iterator[Line]:
    sizes, losses = (6, 12, 25, 50), []
    for n in sizes:
        data = _even_circle(n)
        made = circle_steps(data, edge=0.002)
        ratio = made.trace / bias_floor(data)
        yield equal(f"trace over its floor, n = {n} even points", ratio, 1, rel=1e-7)
        losses.append(made.test_loss())
    yield true("it interpolates, n = 50", interpolates(made, 1e-7))
    yield shown("its test loss, n = 50", losses[-1])
    yield below("test loss at n = 50 over that at n = 6", losses[-1] / losses[0], 0.1)
    yield slope("exponent of the test loss in n", sizes, losses, near=-1.7, within=0.5)
    data = circle(n=200, seed=trial.seed)
    wrong = circle_as_printed(data)
    active = float((wrong.hidden()[0] > 0).sum(1).mean())
    yield shown("neurons active at a training point in the printed network, n = 200", active)
    yield printed(near_zero("its training loss", wrong.loss()))
    yield printed(equal("its trace against the floor", wrong.trace, bias_floor(data)))


def _even_circle(n: int) -> Dataset:
    angles = 2 * np.pi * (np.arange(n) + 0.3) / n
    fine = 2 * np.pi * (np.arange(20_000) + 0.5) / 20_000

    def points(a: Array) -> Array:
        return np.stack([np.cos(a), np.sin(a)], 1)

    return from_arrays(points(angles), np.cos(angles), points(fine), np.cos(fine))


@claim(
    "wen2023.propA.2.coupon",
    "Appendix A.3.2, proof of Proposition A.2",
    "probabilistic",
    "With N = ⌈2π/δ⌉ arcs and n = N log(N/δ) uniform points every arc is hit with probability at "
    "least 1 − δ.",
    as_printed="n ≥ N log δ, which is negative.",
    errata=("E9",),
)
def coupons(trial: Trial) -> Iterator[Line]:
    delta, trials = 0.05, trial.size(2000, 20000)
    N = int(np.ceil(2 * np.pi / delta))
    n = int(np.ceil(N * np.log(N / delta)))
    rng = trial.rng("coupon")
    missed = sum(len(np.unique(rng.integers(0, N, n))) < N for _ in range(trials))
    yield frequency(
        f"draws that miss an arc, δ = 0.05, n = {n}, {trials} draws", missed, trials, at_most=delta
    )
    yield printed(at_least("N log δ, a number of points", N * np.log(delta), 1))


@claim(
    "wen2023.thm4.1.directions",
    "Appendix A.3.1",
    "inequality",
    "For extreme points a unit w_i with w_i·x_i > w_i·x_j for all j ≠ i exists; any ε below the "
    "smallest margin makes the network memorise.",
)
def directions(trial: Trial) -> Iterator[Line]:
    rng = trial.rng("directions")
    x = rng.normal(size=(20, 6))
    x = x[is_extreme(x)]
    found = separate(x)
    yield above(
        "smallest margin of the extreme of 20 Gaussian points, d = 6", found.margins.min(), 0
    )
    data = from_arrays(x, rng.choice([-1.0, 1.0], len(x)))
    for share in (0.99, 0.1, 1e-3):
        made = memorising(data, epsilon=share * float(found.margins.min()))
        yield equal(f"trace over its floor, ε = {share:g} of it", made.trace / bias_floor(data), 1)
