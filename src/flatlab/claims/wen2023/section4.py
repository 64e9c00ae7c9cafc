"""Section 4: networks with bias, where a flattest minimum may memorise or generalise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data import ball, circle, cube, from_arrays, sphere, xor
from ...models import Deep, TwoLayer
from ...theory.bounds import bias_floor
from ...theory.constructions import four_neurons, memorising
from ...theory.interpolators import flattened, random_interpolators
from ...theory.predicates import is_extreme, is_memorising
from ...theory.solution import Array, Solution
from ..contract import (
    Line,
    Trial,
    above,
    at_least,
    below,
    claim,
    equal,
    estimate,
    near_zero,
    printed,
    shown,
    slope,
    true,
)
from ..instances import point_norms


@claim(
    "wen2023.def4.1",
    "Section 4.1, Definition 4.1",
    "definition",
    "A finite set is a set of extreme points if no point lies in the convex hull of the others; "
    "subsets of the cube and of a sphere are, points of a ball need not be.",
    errata=("E27",),
)
def extreme_points(trial: Trial) -> Iterator[Line]:
    square = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0, 0.5], [1, 0]])
    yield equal(
        "extreme points of a square, one inside and one on an edge", is_extreme(square).sum(), 4
    )
    x = cube(5)[trial.rng("def4.1").permutation(32)[:20]]
    yield equal("extreme of 20 points of the cube, d = 5", is_extreme(x).sum(), 20)
    gaps = x @ x.T / np.sqrt(5)
    np.fill_diagonal(gaps, -np.inf)
    yield at_least(
        "margin of w_i = x_i/√d there, against 2/√d", np.sqrt(5) - gaps.max(), 2 / np.sqrt(5)
    )
    counts = [
        int(is_extreme(ball(d=10, n=100, seed=trial.seed + s, n_test=0).x_train).sum())
        for s in range(trial.size(3, 20))
    ]
    yield shown("fewest extreme of 100 points of a ball, d = 10", min(counts))
    few = int(is_extreme(ball(d=3, n=60, seed=trial.seed, n_test=0).x_train).sum())
    yield below("extreme of 60 points of a ball, d = 3: not all", few, 60)


@claim(
    "wen2023.def4.2",
    "Section 4.1, Definition 4.2",
    "definition",
    "A network memorises if it interpolates and in every hidden layer each training point "
    "activates exactly one neuron, different points different ones.",
)
def memorising_networks(trial: Trial) -> Iterator[Line]:
    data = xor(d=12, n=16, seed=trial.seed, n_test=0, distinct=True)
    made = memorising(data, depth=3)
    yield true("the construction of Theorem 4.1, D = 3, memorises", is_memorising(made))
    yield true("the xor network does not", not is_memorising(four_neurons(data)))
    W2 = made.params["W2"].copy()
    W2[0, 1] = W2[0, 0]  # point 1 now activates two neurons of the second layer
    yield true("nor does it with one weight more", not is_memorising(made.with_params(W2=W2)))


@claim(
    "wen2023.thm4.1",
    "Section 4.1, Theorem 4.1 and A.3.1",
    "construction",
    "For extreme points and labels that are not zero, a width-n network with D layers and a bias "
    "in the first memorises and has the least Tr ∇²L of all interpolating ones, "
    "(2/n) Σ D|y_i|^{2(D−1)/D} ‖x'_i‖^{2/D}.",
    as_printed="The same for any labels, with r_i = u_i = 1 where y_i = 0.",
    errata=("E11",),
)
def theorem_4_1(trial: Trial) -> Iterator[Line]:
    base = sphere(d=4, n=6, seed=trial.seed, n_test=0)
    rng = trial.rng("thm4.1")
    labels = rng.uniform(0.5, 2, 6) * rng.choice([-1.0, 1.0], 6)
    data = from_arrays(base.x_train, labels)
    for depth in (2, 3, 4, 5):
        made, floor = memorising(data, depth), bias_floor(data, depth)
        yield equal(
            f"trace of the memorising network over its floor, D = {depth}, n = 6",
            made.trace / floor,
            1,
        )
        yield true(f"it memorises, D = {depth}", is_memorising(made))
    drawn = ball(d=6, n=20, seed=trial.seed, n_test=0)
    extreme = is_extreme(drawn.x_train)
    inside = from_arrays(drawn.x_train[extreme], drawn.y_train[extreme])
    yield equal(
        "the same on the extreme of 20 points of a ball, d = 6, directions by linear programs",
        memorising(inside).trace / bias_floor(inside),
        1,
    )
    for depth in (2, 3):
        arch = TwoLayer(width=12) if depth == 2 else Deep(depth=depth, width=12)
        found = random_interpolators(arch, data, trial.rng(f"thm4.1:{depth}"), trial.size(30, 300))
        ratios = [each.trace / bias_floor(data, depth) for each in found]
        yield at_least(
            f"least trace over floor of {len(ratios)} interpolating networks, D = {depth}",
            min(ratios),
            1,
        )
    starts = random_interpolators(TwoLayer(width=24), data, trial.rng("thm4.1:down"), 3)
    flat = flattened(starts, trial.size(150, 1000))
    best = min(each.trace for each in flat) / bias_floor(data)
    yield at_least("least trace over floor found by descending it from 3 starts, D = 2", best, 1)
    for depth in (2, 3, 4, 5):
        yield printed(
            equal(
                f"‖∇f(x_i)‖² of the printed network where y_i = 0, against the floor 0, D = "
                f"{depth}",
                _at_zero_label(base.x_train, depth),
                0,
            )
        )


def _at_zero_label(x: Array, depth: int) -> float:
    """Return ‖∇f(x_0)‖² of the printed network for y_0 = 0: u = r = 1 and a last weight of 0."""
    ones = from_arrays(x, np.ones(len(x)))
    made = memorising(ones, depth)
    params = {name: value.copy() for name, value in made.params.items()}
    size = point_norms(x)[0]
    r = size ** (1 / depth)
    for name in ("W1", "b1"):
        params[name][0] /= r ** (depth - 1)
    for layer in range(2, depth):
        params[f"W{layer}"][0, 0] *= r
    params[f"W{depth}"][0] = 0.0
    return float(np.sum(Solution(made.arch, params, ones).gradients(x[:1]) ** 2))


@claim(
    "wen2023.prop4.1",
    "Section 4.1, Proposition 4.1",
    "construction",
    "On distinct xor points the width-n memorising network is flattest, and its zero-one error is "
    "1 − #distinct/2^d: every unseen point is wrong. For n i.i.d. draws its mean is (1 − "
    "2^{−d})^n.",
    as_printed="The error is max{1 − n/2^d, 0} for n samples.",
    errata=("E12",),
)
def proposition_4_1(trial: Trial) -> Iterator[Line]:
    whole = cube(6)
    rng = trial.rng("prop4.1")
    x = whole[rng.permutation(64)[:20]]
    data = from_arrays(x, x[:, 0] * x[:, 1], whole, whole[:, 0] * whole[:, 1])
    made = memorising(data)
    yield equal("trace over 4√(d+1), d = 6, 20 distinct points", made.trace / (4 * np.sqrt(7)), 1)
    yield equal("zero-one error on the whole cube, against 1 − 20/64", made.error(), 1 - 20 / 64)
    errors = 1 - np.array(
        [len(np.unique(rng.integers(0, 16, 16))) / 16 for _ in range(trial.size(4000, 40000))]
    )
    yield estimate(
        "mean error of i.i.d. draws, d = 4, n = 16, against (1 − 1/16)^16", errors, (15 / 16) ** 16
    )
    yield printed(
        estimate("mean error of i.i.d. draws, d = 4, n = 16, against 1 − 16/16", errors, 0.0)
    )


@claim(
    "wen2023.prop4.2",
    "Section 4.1, Proposition 4.2",
    "construction",
    "For xor data and width at least 4 there is a flattest interpolating network with zero error; "
    "three neurons are the fewest that classify the four xor points at all.",
    as_printed="The same for width n and any number n of samples.",
    errata=("E13",),
    note="That no network of width 1 or 2 classifies xor is shown by search here; it is two lines "
    "to prove by adding affine functions.",
)
def proposition_4_2(trial: Trial) -> Iterator[Line]:
    data = xor(d=6, n=24, seed=trial.seed)
    made = four_neurons(data)
    whole = cube(6)
    yield equal("trace of eq. (5) over 4√(d+1), d = 6", made.trace / (4 * np.sqrt(7)), 1)
    yield near_zero(
        "its largest error on the cube",
        np.abs(made.outputs(whole) - whole[:, 0] * whole[:, 1]).max(),
    )
    best = {width: _best_accuracy(trial, width) for width in (1, 2, 3)}
    yield equal("best accuracy found on the four xor points, width 3", best[3], 1)
    for width in (1, 2):
        yield printed(
            equal(f"best accuracy found on the four xor points, width {width}", best[width], 1)
        )


def _best_accuracy(trial: Trial, width: int) -> float:
    """Return the best accuracy on the xor points over random sign patterns of affine neurons."""
    rng = trial.rng("xor-width", width)
    x = cube(2)
    y = x[:, 0] * x[:, 1]
    tries = trial.size(40_000, 400_000)
    h = np.maximum(np.einsum("tkd,nd->tkn", rng.normal(size=(tries, width, 2)), x)
                   + rng.normal(size=(tries, width, 1)), 0)  # fmt: skip
    f = np.einsum("tk,tkn->tn", rng.normal(size=(tries, width)), h)
    return float(np.mean(f * y > 0, axis=1).max())


@claim(
    "wen2023.scenario2.worst",
    "Section 4",
    "identity",
    "No interpolating network has a larger zero-one error than the memorising one: it is wrong on "
    "every unseen point. In squared error others are worse.",
)
def worst(trial: Trial) -> Iterator[Line]:
    whole = cube(4)
    x = whole[trial.rng("worst").permutation(16)[:6]]
    data = from_arrays(x, x[:, 0] * x[:, 1], whole, whole[:, 0] * whole[:, 1])
    made = memorising(data)
    yield equal(
        "zero-one error on the cube, d = 4, n = 6: all unseen points", made.error(), 10 / 16
    )
    unseen = ~(whole[:, None] == x[None]).all(-1).any(1)
    mse = made.test_loss(whole[unseen], data.y_test[unseen])
    yield equal("squared error on unseen points", mse, 1)
    others = random_interpolators(TwoLayer(width=12), data, trial.rng("worse"), 40)
    found = [each.test_loss(whole[unseen], data.y_test[unseen]) for each in others]
    yield above("largest of 40 random interpolating networks", max(found), mse)


@claim(
    "wen2023.fig3",
    "Section 4.1, Figure 3",
    "construction",
    "On the circle the region where the memorising network is not zero shrinks like √ε.",
)
def figure_3(trial: Trial) -> Iterator[Line]:
    angles = 2 * np.pi * np.arange(12) / 12
    x = np.stack([np.cos(angles), np.sin(angles)], 1)
    data = from_arrays(x, np.resize([1.0, -1.0], 12))
    fine = 2 * np.pi * (np.arange(200_000) + 0.5) / 200_000
    ring = np.stack([np.cos(fine), np.sin(fine)], 1)
    epsilons = [0.02, 0.01, 0.005, 0.002, 0.001]
    share = [float(np.mean(memorising(data, epsilon=e).outputs(ring) != 0)) for e in epsilons]
    yield shown("share of the circle with f ≠ 0 at ε = 0.001, n = 12", share[-1])
    yield slope(
        "exponent of that share in ε from 0.02 to 0.001", epsilons, share, near=0.5, within=0.01
    )
    arcs = 12 * 2 * np.arccos(1 - 0.001) / (2 * np.pi)
    yield equal(
        "the share at ε = 0.001 against 12 arcs of angle 2 arccos(1 − ε)", share[-1], arcs, rel=1e-3
    )
    yield true(
        "uniform draws on the circle are extreme",
        is_extreme(circle(n=40, seed=trial.seed).x_train).all(),
    )
