"""Appendices A.3 and A.4: networks with bias and D layers, and simplified LayerNorm."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
from torch import Tensor

from ...data import Dataset, circle, from_arrays, sphere
from ...models import Deep, TwoLayer
from ...theory.bounds import bias_floor, layer_norm_floor
from ...theory.constructions import (
    circle_as_printed,
    circle_steps,
    finite_labels,
    layer_norm_memorising,
    memorising,
)
from ...theory.geometry import on_circle, separate
from ...theory.predicates import interpolates, is_extreme
from ...theory.solution import Array, Solution
from ..contract import Trial, claim, printed
from ..instances import first_layer_times, lowest, nearest_kink, point_norms, random_networks
from ..lines import Lines, above, at_least, below, equal, frequency, near_zero, shown, slope, true

LABELS = np.array([1.0, -2.0, 0.5, 1.5, -1.0])


@claim("wen2023.A3.1.gradient_formula", "Appendix A.3.1, first display", "identity",
       "‖∇f‖² = Σ_{j<D} ‖W_D A_{D−1} ⋯ W_{j+1} A_j‖² ‖a_{j−1}‖² + ‖a_{D−1}‖² for D layers, a_0 = "
       "x'.")  # fmt: skip
def gradient_formula(trial: Trial) -> Lines:
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
    hidden = [a[i] for a in solution.hidden()]
    sizes = [point_norms(solution.data.x_train)[i], *map(np.linalg.norm, hidden)]
    total = sizes[-1] ** 2
    row = solution.params[f"W{depth}"]
    for layer in range(depth - 1, 0, -1):
        row = row * (hidden[layer - 1] > 0)
        total += float(row @ row) * sizes[layer - 1] ** 2
        if layer > 1:
            row = row @ solution.params[f"W{layer}"]
    return float(total)


@claim("wen2023.A3.1.floor", "Appendix A.3.1", "inequality",
       "‖∇f(x)‖² ≥ D |f(x)|^{2(D−1)/D} ‖x'‖^{2/D} for every network with D layers and every "
       "x.")  # fmt: skip
def deep_floor(trial: Trial) -> Lines:
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
    arch, rng = Deep(depth=3, width=3), trial.rng("positive")
    params = {name: rng.uniform(0.2, 1, s) for name, s in arch.shapes(data.d).items()}
    params["b1"] += 5.0  # all neurons are active at the start of the descent
    start = Solution(arch, params, from_arrays(data.x_train[:1], [1.0]))

    def ratio(squared: Tensor, f: Tensor, x: Tensor) -> Tensor:
        return squared / (3 * f.abs() ** (4 / 3) * (x @ x + 1) ** (1 / 3))

    found = lowest(start, ratio, 400)
    yield at_least("least found by descending the ratio, D = 3", found, 1)
    yield below("and how near 1 it comes", found, 1.02)


def _pentagon(radius: float, seed: int) -> Dataset:
    """Return 30 points of one norm whose first two coordinates are corners of a pentagon."""
    rng = Trial(seed).rng("pentagon")
    corner = np.resize(np.arange(5), 30)
    v = radius * on_circle(2 * np.pi * corner / 5)
    rest = rng.normal(size=(30, 3))
    rest *= np.sqrt(3) / np.linalg.norm(rest, axis=1, keepdims=True)
    x = np.hstack([v, rest])
    made = from_arrays(x, LABELS[corner], x, LABELS[corner])
    return dataclasses.replace(made, name="pentagon", relevant=(0, 1))


@claim("wen2023.propA.1", "Appendix A.3.2, Proposition A.1, eq. (16)", "construction",
       "If the label depends on coordinates that are extreme points and ‖x‖ = R, the network with "
       "rows r_j w_j/ε and r_j² = |y_j|√(R²+1) is a flattest minimum with error 0.",
       as_printed="Rows r_j v_j/ε with r_j² = |y_j|(R²+1).", errata=("E7",))  # fmt: skip
def proposition_a1(trial: Trial) -> Lines:
    for radius in (0.5, 1.0, 2.0):
        data = _pentagon(radius, trial.seed)
        made, floor = finite_labels(data), bias_floor(data)
        where = f"pentagon of radius {radius}, n = 30"
        yield true(f"it interpolates, {where}", interpolates(made))
        yield equal(f"trace, {where}", made.trace, floor)
        yield near_zero(f"test loss, {where}", made.test_loss())
        scale = (float(np.sum(data.x_train[0] ** 2)) + 1) ** 0.25  # r printed over r
        wrong = first_layer_times(scale, made).with_params(W2=made.params["W2"] / scale)
        yield printed(equal(f"trace with the printed r, {where}", wrong.trace, floor))
        if radius != 1:
            size = np.linalg.norm(np.unique(data.x_train[:, :2], axis=0), axis=1)  # v_j = ‖v_j‖ w_j
            wrong = made.with_params(W1=made.params["W1"] * size[:, None])
            yield printed(near_zero(f"training loss with v_j for w_j, {where}", wrong.loss()))


@claim("wen2023.propA.2", "Appendix A.3.2, Proposition A.2, eq. (17)", "construction",
       "On the circle with Lipschitz labels a network of width 3n is flattest and has an error "
       "that vanishes with n.",
       as_printed="A network of width n, eq. (17), is flattest with error O(δ²).", errata=("E9",),
       note="The corrected network is ours: two more neurons in every gap, inactive on the "
       "training set. Whether width n suffices is left open here.")  # fmt: skip
def proposition_a2(trial: Trial) -> Lines:
    sizes, losses = (6, 12, 25, 50), []
    fine = 2 * np.pi * (np.arange(20_000) + 0.5) / 20_000
    for n in sizes:
        even = 2 * np.pi * (np.arange(n) + 0.3) / n
        data = from_arrays(on_circle(even), np.cos(even), on_circle(fine), np.cos(fine))
        made = circle_steps(data, edge=0.002)
        ratio = made.trace / bias_floor(data)
        yield equal(f"trace over its floor, n = {n} even points", ratio, 1, rel=1e-7)
        losses.append(made.test_loss())
    yield true("it interpolates, n = 50", interpolates(made, 1e-7))
    yield near_zero("largest |f − mean of the neighbours| in the gaps", _inside_gaps(made), 1e-9)
    yield shown("its test loss, n = 50", losses[-1])
    yield below("test loss at n = 50 over that at n = 6", losses[-1] / losses[0], 0.1)
    yield slope("exponent of the test loss in n", sizes, losses, near=-1.7, within=0.5)
    data = circle(n=200, seed=trial.seed)
    wrong = circle_as_printed(data)
    active = float((wrong.hidden()[0] > 0).sum(1).mean())
    yield shown("neurons active at a training point in the printed network, n = 200", active)
    yield printed(near_zero("its training loss", wrong.loss()))
    yield printed(equal("its trace against the floor", wrong.trace, bias_floor(data)))


def _inside_gaps(solution: Solution) -> Array:
    """Return f minus the mean of the neighbours' labels, at five points of every gap."""
    y, x = solution.data.y_train, solution.data.x_train
    start, gap = np.arctan2(x[:, 1], x[:, 0]), 2 * np.pi / len(y)
    inside = start[:, None] + gap * np.array([0.01, 0.25, 0.5, 0.75, 0.99])
    found = solution.outputs(on_circle(inside.ravel())).reshape(inside.shape)
    return np.asarray(found - (y + np.roll(y, -1))[:, None] / 2)


@claim("wen2023.propA.2.coupon", "Appendix A.3.2, proof of Proposition A.2", "probabilistic",
       "With N = ⌈2π/δ⌉ arcs and n = N log(N/δ) uniform points every arc is hit with probability "
       "at least 1 − δ.", as_printed="n ≥ N log δ, which is negative.", errata=("E9",))  # fmt: skip
def coupons(trial: Trial) -> Lines:
    delta, trials = 0.05, trial.size(2000, 20000)
    N = int(np.ceil(2 * np.pi / delta))
    n = int(np.ceil(N * np.log(N / delta)))
    rng = trial.rng("coupon")
    missed = sum(len(np.unique(rng.integers(0, N, n))) < N for _ in range(trials))
    yield frequency(f"draws that miss an arc, δ = 0.05, n = {n}", missed, trials, at_most=delta)
    yield printed(at_least("N log δ, a number of points", N * np.log(delta), 1))


@claim("wen2023.thm4.1.directions", "Appendix A.3.1", "inequality",
       "For extreme points a unit w_i with w_i·x_i > w_i·x_j for all j ≠ i exists; any ε below the "
       "smallest margin makes the network memorise.")  # fmt: skip
def directions(trial: Trial) -> Lines:
    rng = trial.rng("directions")
    x = rng.normal(size=(20, 6))
    x = x[is_extreme(x)]
    found = separate(x)
    yield above("least margin of the extreme of 20 Gaussian points, d = 6", found.margins.min(), 0)
    data = from_arrays(x, rng.choice([-1.0, 1.0], len(x)))
    for share in (0.99, 0.1, 1e-3):
        made = memorising(data, epsilon=share * float(found.margins.min()))
        yield equal(f"trace over its floor, ε = {share:g} of it", made.trace / bias_floor(data), 1)


@claim("wen2023.lemA.12", "Appendix A.4.1, Lemma A.12", "inequality",
       "‖∇f(x)‖² ≥ min(1, (2/ε)‖x'‖|f(x)|) for every network with simplified LayerNorm and every "
       "x; so Tr ∇²L ≥ (2/n) Σ min(1, (2/ε)‖x'_i‖|y_i|) at interpolation.",
       errata=("E17",))  # fmt: skip
def lemma_a12(trial: Trial) -> Lines:
    data = sphere(d=5, n=10, seed=trial.seed, n_test=0)
    size = point_norms(data.x_train)
    for epsilon, regime in ((1e-3, "‖h‖ > ε"), (1e3, "‖h‖ ≤ ε")):
        arch = TwoLayer(width=6, norm="layer", ln_epsilon=epsilon)
        least, count = np.inf, trial.size(200, 2000)
        drawn = random_networks(arch, data, trial.rng(f"A.12:{epsilon}"), 2 * count)
        inside = [each for each in drawn if _is_inside(each, epsilon)][:count]
        for each in inside:
            floor = np.minimum(1, 2 / epsilon * size * np.abs(each.outputs()))
            ratios = (each.gradients() ** 2).sum(1)[floor > 0] / floor[floor > 0]
            least = min(least, float(ratios.min(initial=np.inf)))
        yield equal(f"random networks in the regime {regime} at all points", len(inside), count)
        yield at_least(f"least ‖∇f‖² over its floor there, {regime}", least, 1)
        one = from_arrays(data.x_train[:1], [1.0])
        starts = random_networks(arch, one, trial.rng("A.12:start"), 20)
        found, alive = np.inf, (each for each in starts if each.outputs()[0] != 0)
        for tried, start in enumerate(alive):
            if tried >= 4 and found < 1.01:  # a descent may end where all neurons are dead
                break
            found = min(found, lowest(start, partial(_over_floor, epsilon), 150))
        yield at_least(f"least found by descending the ratio, {regime}", found, 1)
        yield below(f"and how near 1 it comes, {regime}", found, 1.01)


def _is_inside(solution: Solution, epsilon: float) -> bool:
    """Return whether ‖h‖ is above a small ε, or below a large one, at all points that are not 0.

    A network whose only live neurons barely fire at a point has a small ‖h‖ there.
    """
    h = np.linalg.norm(solution.hidden()[0], axis=1)
    return bool(np.all((h > epsilon)[h > 0] == (epsilon < 1)))


def _over_floor(epsilon: float, squared: Tensor, f: Tensor, x: Tensor) -> Tensor:
    return squared / (2 / epsilon * (x @ x + 1).sqrt() * f.abs()).clamp(max=1.0)


@claim("wen2023.thm5.1.construction", "Appendix A.4.1, proof of Theorem 5.1", "construction",
       "The case with u = 2ε belongs to ‖x'‖|y| > ε/2, and a point with y = 0 needs no neuron: so "
       "the network is at the floor in all three cases.",
       as_printed="The threshold is ε, and a point with y = 0 has a neuron of height 2ε.",
       errata=("E10", "E11"))  # fmt: skip
def cases(trial: Trial) -> Lines:
    x = sphere(d=4, n=3, seed=trial.seed, n_test=0).x_train
    size = point_norms(x)
    for q in (0.2, 0.45, 0.55, 0.8, 0.99, 3.0):
        data = from_arrays(x, q / size)
        made = layer_norm_memorising(data, ln_epsilon=1.0)
        yield true(f"it interpolates, ε = 1, ‖x'‖|y| = {q}", interpolates(made))
        yield equal(f"trace, ‖x'‖|y| = {q}", made.trace, layer_norm_floor(data, 1.0))
        if 0.5 < q <= 1:
            wrong = layer_norm_memorising(data, ln_epsilon=1.0, threshold=1.0)
            yield printed(equal(f"trace, ‖x'‖|y| = {q}", wrong.trace, layer_norm_floor(data, 1.0)))
    data = from_arrays(x, np.array([0.0, 3.0, 3.0]) / size)
    made = layer_norm_memorising(data, ln_epsilon=1.0, zero_labels=True)
    floor = layer_norm_floor(data, 1.0)
    yield equal("trace with one zero label of three", made.trace, floor)
    yield above("its least |w_j·x_i + b_j|: no point is on a kink", nearest_kink(made), 0)
    full = layer_norm_memorising(from_arrays(x, 3.0 / size), ln_epsilon=1.0)
    params = {**full.params, "W2": full.params["W2"] * np.array([0.0, 1.0, 1.0])}
    wrong = Solution(full.arch, params, data)
    yield printed(equal("trace with one zero label of three", wrong.trace, floor))


@claim("wen2023.footnote5", "Appendix A.4.1, footnote 5", "identity",
       "Where one neuron alone is active and above ε, ∇_{W1} f = 0: h/‖h‖ does not "
       "change.")  # fmt: skip
def footnote_5(trial: Trial) -> Lines:
    data = sphere(d=5, n=6, seed=trial.seed, n_test=0)
    made = layer_norm_memorising(from_arrays(data.x_train, np.ones(6)), ln_epsilon=0.01)
    first = made.gradients()[:, : made.params["W1"].size + 6]
    yield near_zero("largest derivative by W1 and b1 at 6 training points", first)
    yield equal("and the squared gradient by W2", np.sum(made.gradients() ** 2) / 6, 1)
