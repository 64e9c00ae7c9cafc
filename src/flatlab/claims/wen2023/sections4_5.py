"""Sections 4 and 5: with bias or LayerNorm a flattest minimum may memorise or generalise."""

from __future__ import annotations

import numpy as np

from ...data import ball, circle, cube, from_arrays, sphere, xor
from ...models import Deep, TwoLayer
from ...theory.bounds import bias_floor, layer_norm_floor
from ...theory.constructions import (
    four_neurons,
    layer_norm_four_neurons,
    layer_norm_memorising,
    memorising,
)
from ...theory.geometry import on_circle
from ...theory.interpolators import flattened, random_interpolators
from ...theory.predicates import is_extreme, is_memorising
from ...theory.sights import part_of_cube
from ...theory.solution import Array, Solution
from ..contract import Trial, claim, printed
from ..instances import cube_errors, lowest, nearest_kink, point_norms, random_networks
from ..lines import Lines, above, at_least, below, equal, estimate, near_zero, shown, slope, true


@claim("wen2023.def4.1", "Section 4.1, Definition 4.1", "definition",
       "A finite set is a set of extreme points if no point lies in the convex hull of the others; "
       "subsets of the cube and of a sphere are, points of a ball need not be.",
       errata=("E27",))  # fmt: skip
def extreme_points(trial: Trial) -> Lines:
    square = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0, 0.5], [1, 0]])
    yield equal("extreme of a square, a point inside, one on an edge", is_extreme(square).sum(), 4)
    x = cube(5)[trial.rng("def4.1").permutation(32)[:20]]
    yield equal("extreme of 20 points of the cube, d = 5", is_extreme(x).sum(), 20)
    gaps = x @ x.T / np.sqrt(5)
    np.fill_diagonal(gaps, -np.inf)
    yield at_least("margin of w_i = x_i/√d there", np.sqrt(5) - gaps.max(), 2 / np.sqrt(5))
    seeds = range(trial.seed, trial.seed + trial.size(3, 20))
    balls = [ball(d=10, n=100, seed=seed, n_test=0).x_train for seed in seeds]
    fewest = min(int(is_extreme(points).sum()) for points in balls)
    yield shown("fewest extreme of 100 points of a ball, d = 10", fewest)
    few = int(is_extreme(ball(d=3, n=60, seed=trial.seed, n_test=0).x_train).sum())
    yield below("extreme of 60 points of a ball, d = 3: not all", few, 60)


@claim("wen2023.def4.2", "Section 4.1, Definition 4.2", "definition",
       "A network memorises if it interpolates and in every hidden layer each training point "
       "activates exactly one neuron, different points different ones.")  # fmt: skip
def memorising_networks(trial: Trial) -> Lines:
    data = xor(d=12, n=16, seed=trial.seed, n_test=0, distinct=True)
    made = memorising(data, depth=3)
    yield true("the construction of Theorem 4.1, D = 3, memorises", is_memorising(made))
    yield true("the xor network does not", not is_memorising(four_neurons(data)))
    W2 = made.params["W2"].copy()
    W2[0, 1] = W2[0, 0]  # point 1 now activates two neurons of the second layer
    yield true("nor does it with one weight more", not is_memorising(made.with_params(W2=W2)))


@claim("wen2023.thm4.1", "Section 4.1, Theorem 4.1 and A.3.1", "construction",
       "For extreme points and labels that are not zero, a width-n network with D layers and a "
       "bias in the first memorises and has the least Tr ∇²L of all interpolating ones, (2/n) Σ "
       "D|y_i|^{2(D−1)/D} ‖x'_i‖^{2/D}.",
       as_printed="The same for any labels, with r_i = u_i = 1 where y_i = 0.",
       errata=("E11",))  # fmt: skip
def theorem_4_1(trial: Trial) -> Lines:
    base = sphere(d=4, n=6, seed=trial.seed, n_test=0)
    rng = trial.rng("thm4.1")
    labels = rng.uniform(0.5, 2, 6) * rng.choice([-1.0, 1.0], 6)
    data = from_arrays(base.x_train, labels)
    for depth in (2, 3, 4, 5):
        made, floor = memorising(data, depth), bias_floor(data, depth)
        yield equal(f"memorising trace over its floor, D = {depth}, n = 6", made.trace / floor, 1)
        yield true(f"it memorises, D = {depth}", is_memorising(made))
    kink = nearest_kink(memorising(data, width=10))
    yield above("least |w_j·x_i + b_j| with four dead neurons: no point is on a kink", kink, 0)
    drawn = ball(d=6, n=20, seed=trial.seed, n_test=0)
    extreme = is_extreme(drawn.x_train)
    inside = from_arrays(drawn.x_train[extreme], drawn.y_train[extreme])
    ratio = memorising(inside).trace / bias_floor(inside)
    yield equal("the same, extreme of 20 points of a ball, d = 6, by linear programs", ratio, 1)
    for depth in (2, 3):
        arch = TwoLayer(width=12) if depth == 2 else Deep(depth=depth, width=12)
        found = random_interpolators(arch, data, trial.rng(f"thm4.1:{depth}"), trial.size(30, 300))
        ratios = [each.trace / bias_floor(data, depth) for each in found]
        what = f"least trace over floor of {len(ratios)} interpolating networks, D = {depth}"
        yield at_least(what, min(ratios), 1)
    starts = random_interpolators(TwoLayer(width=24), data, trial.rng("thm4.1:down"), 3)
    flat = flattened(starts, trial.size(150, 1000))
    best = min(each.trace for each in flat) / bias_floor(data)
    yield at_least("least trace over floor found by descending it from 3 starts, D = 2", best, 1)
    for depth in (2, 3, 4, 5):
        what = f"‖∇f(x_i)‖² where y_i = 0, against the floor 0, D = {depth}"
        yield printed(equal(what, _at_zero_label(base.x_train, depth), 0))


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


@claim("wen2023.prop4.1", "Section 4.1, Proposition 4.1", "construction",
       "On distinct xor points the width-n memorising network is flattest, and its zero-one error "
       "is 1 − #distinct/2^d: every unseen point is wrong. For n i.i.d. draws its mean is (1 − "
       "2^{−d})^n.",
       as_printed="The error is max{1 − n/2^d, 0} for n samples.", errata=("E12",))  # fmt: skip
def proposition_4_1(trial: Trial) -> Lines:
    rng = trial.rng("prop4.1")
    made = memorising(part_of_cube(rng, 6, 20))
    yield equal("trace over 4√(d+1), d = 6, 20 distinct points", made.trace / (4 * np.sqrt(7)), 1)
    yield equal("zero-one error on the whole cube, against 1 − 20/64", made.error(), 1 - 20 / 64)
    draws = trial.size(4000, 40000)
    errors = 1 - np.array([len(np.unique(rng.integers(0, 16, 16))) / 16 for _ in range(draws)])
    yield estimate("mean error, d = 4, n = 16, against (1 − 1/16)^16", errors, (15 / 16) ** 16)
    yield printed(estimate("mean error, d = 4, n = 16, against 1 − 16/16", errors, 0.0))


@claim("wen2023.prop4.2", "Section 4.1, Proposition 4.2", "construction",
       "For xor data and width at least 4 there is a flattest interpolating network with zero "
       "error; three neurons are the fewest that classify the four xor points at all.",
       as_printed="The same for width n and any number n of samples.", errata=("E13",),
       note="That no network of width 1 or 2 classifies xor is shown by search here; it is two "
       "lines to prove by adding affine functions.")  # fmt: skip
def proposition_4_2(trial: Trial) -> Lines:
    data = xor(d=6, n=24, seed=trial.seed)
    made = four_neurons(data)
    yield equal("trace of eq. (5) over 4√(d+1), d = 6", made.trace / (4 * np.sqrt(7)), 1)
    yield near_zero("its largest error on the cube", cube_errors(made))
    wide = four_neurons(data, width=7)
    yield equal("trace of width 7 over 4√(d+1)", wide.trace / (4 * np.sqrt(7)), 1)
    yield above("its least |w_j·x_i + b_j|: no point is on a kink", nearest_kink(wide), 0)
    best = {width: _best_accuracy(trial, width) for width in (1, 2, 3)}
    yield equal("best accuracy found on the four xor points, width 3", best[3], 1)
    for width in (1, 2):
        yield printed(equal(f"the same, width {width}", best[width], 1))


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


@claim("wen2023.scenario2.worst", "Section 4", "identity",
       "No interpolating network has a larger zero-one error than the memorising one: it is wrong "
       "on every unseen point. In squared error others are worse.")  # fmt: skip
def worst(trial: Trial) -> Lines:
    data = part_of_cube(trial.rng("worst"), 4, 6)
    whole, made = data.x_test, memorising(data)
    yield equal("zero-one error on the cube, d = 4, n = 6: the unseen", made.error(), 10 / 16)
    unseen = ~(whole[:, None] == data.x_train[None]).all(-1).any(1)
    mse = made.test_loss(whole[unseen], data.y_test[unseen])
    yield equal("squared error on unseen points", mse, 1)
    others = random_interpolators(TwoLayer(width=12), data, trial.rng("worse"), 40)
    found = [each.test_loss(whole[unseen], data.y_test[unseen]) for each in others]
    yield above("largest of 40 random interpolating networks", max(found), mse)


@claim("wen2023.fig3", "Section 4.1, Figure 3", "construction",
       "On the circle the region where the memorising network is not zero shrinks like "
       "√ε.")  # fmt: skip
def figure_3(trial: Trial) -> Lines:
    x = on_circle(2 * np.pi * np.arange(12) / 12)
    data = from_arrays(x, np.resize([1.0, -1.0], 12))
    ring = on_circle(2 * np.pi * (np.arange(200_000) + 0.5) / 200_000)
    epsilons = [0.02, 0.01, 0.005, 0.002, 0.001]
    share = [float(np.mean(memorising(data, epsilon=e).outputs(ring) != 0)) for e in epsilons]
    yield shown("share of the circle with f ≠ 0 at ε = 0.001, n = 12", share[-1])
    yield slope("exponent of that share in ε", epsilons, share, near=0.5, within=0.01)
    arcs = 12 * 2 * np.arccos(1 - 0.001) / (2 * np.pi)
    yield equal("that share against 12 arcs of angle 2 arccos(1 − ε)", share[-1], arcs, rel=1e-3)
    yield true("uniform draws are extreme", is_extreme(circle(n=40, seed=trial.seed).x_train).all())


@claim("wen2023.lem4.1", "Section 4.1, Lemma 4.1, eq. (1)", "identity",
       "Where f interpolates and is twice differentiable, Tr ∇²L = (2/n) Σ ‖∇f(x_i)‖²; elsewhere "
       "they differ by (2/n) Σ (f − y) Tr ∇²f.", errata=("E29",), note="On a kink of a ReLU the "
       "trace is a convention (relu'(0) = 0): see wen2023.A2.4.construction.")  # fmt: skip
def lemma_4_1(trial: Trial) -> Lines:
    data = xor(d=5, n=8, seed=trial.seed, n_test=0)
    kinds: dict[str, TwoLayer] = {
        "bias": TwoLayer(width=10),
        "no bias": TwoLayer(width=10, bias=False),
        "Sim-LN": TwoLayer(width=10, norm="layer"),
        "Sim-BN": TwoLayer(width=10, norm="batch"),
        "softplus": TwoLayer(width=10, activation="softplus"),
    }
    for name, arch in kinds.items():
        found = random_interpolators(arch, data, trial.rng(f"lem4.1:{name}"), 4)
        off = [np.trace(each.hessian()) / each.trace - 1 for each in found]
        yield near_zero(f"largest relative difference, {name}, 4 networks", off, 1e-8)
    for each in random_networks(kinds["softplus"], data, trial.rng("off"), 3):
        residual = each.outputs() - data.y_train
        curvature = np.array([_model_trace(each, i) for i in range(data.n)])
        both = each.trace + 2 * np.mean(residual * curvature)
        yield equal("softplus, f ≠ y: Tr ∇²L with Tr ∇²f", np.trace(each.hessian()), both, rel=1e-8)


def _model_trace(solution: Solution, i: int) -> float:
    """Return Tr ∇²f(x_i), from the Hessians of (f − y)² for two labels."""
    x, f = solution.data.x_train[[i]], solution.outputs()[i]
    at = Solution(solution.arch, solution.params, from_arrays(x, [f]))
    off = Solution(solution.arch, solution.params, from_arrays(x, [f - 0.5]))
    return float(np.trace(off.hessian()) - np.trace(at.hessian()))


@claim("wen2023.eq2", "Section 4.1, eq. (2)", "identity",
       "‖∇f(x)‖² = ‖W2 ⊙ 1[W1'x' > 0]‖² ‖x'‖² + ‖relu(W1'x')‖² for two layers with "
       "bias.")  # fmt: skip
def eq2(trial: Trial) -> Lines:
    data = sphere(d=7, n=10, seed=trial.seed, n_test=0)
    worst_ = 0.0
    for each in random_networks(TwoLayer(width=9), data, trial.rng("eq2"), 100):
        h = each.hidden()[0]
        formula = ((h > 0) * each.params["W2"] ** 2).sum(1) * point_norms(data.x_train) ** 2
        formula += (h**2).sum(1)
        autograd = (each.gradients() ** 2).sum(1)
        alive = formula > 0
        ratios = autograd[alive] / formula[alive]
        worst_ = max(worst_, np.abs(ratios - 1).max(initial=0), autograd[~alive].sum())
    yield near_zero("largest relative difference to autograd, 100 networks", worst_, 1e-12)


@claim("wen2023.eq3", "Section 4.1, eq. (3)", "inequality",
       "‖∇f(x)‖² ≥ 2‖x'‖|f(x)| for every network with bias and every x.",
       errata=("E17",))  # fmt: skip
def eq3(trial: Trial) -> Lines:
    data = sphere(d=7, n=10, seed=trial.seed, n_test=0)
    least = np.inf
    for each in random_networks(TwoLayer(width=5), data, trial.rng("eq3"), trial.size(400, 4000)):
        floor = 2 * point_norms(data.x_train) * np.abs(each.outputs())
        ratios = (each.gradients() ** 2).sum(1)[floor > 0] / floor[floor > 0]
        least = min(least, float(ratios.min(initial=np.inf)))
    yield at_least("least ‖∇f‖²/(2‖x'‖|f|) over random networks × 10 points", least, 1)
    one = from_arrays(data.x_train[:1], [1.0])
    starts = random_networks(TwoLayer(width=4), one, trial.rng("eq3:start"), 20)
    alive = [each for each in starts if each.outputs()[0] != 0][:4]
    found = min(
        lowest(each, lambda squared, f, x: squared / (2 * (x @ x + 1).sqrt() * f.abs()))
        for each in alive
    )
    yield at_least("least found by descending the ratio", found, 1)
    yield below("and how near 1 it comes", found, 1.01)


@claim("wen2023.eq4", "Section 4.1, eq. (4)", "identity",
       "Equality in (3) asks for W2 ⊙ 1[W1'x'_i > 0] = sign(y_i) relu(W1'x'_i)/‖x'_i‖.",
       as_printed="The same without sign(y_i).", errata=("E17",))  # fmt: skip
def eq4(trial: Trial) -> Lines:
    data = xor(d=10, n=30, seed=trial.seed, n_test=0, distinct=True)
    made = memorising(data)
    h = made.hidden()[0]
    left = (h > 0) * made.params["W2"]
    right = h / np.sqrt(11)
    with_sign = np.abs(left - np.sign(data.y_train)[:, None] * right).max()
    without = np.abs(left - right).max(1)
    yield near_zero("largest deviation at the memorising network, d = 10", with_sign, 1e-12)
    yield printed(near_zero("the same where y = −1", without[data.y_train < 0].max(), 1e-12))
    yield equal("which is 2/√‖x'‖", without[data.y_train < 0].max(), 2 / 11**0.25)


@claim("wen2023.eq5", "Section 4.1, eq. (5)", "construction",
       "The four-neuron network with r = (d+1)^{1/4} is x1·x2 on the cube, one neuron active at "
       "each point, and Tr ∇²L = 2(r² + (d+1)/r²) = 4√(d+1), the least possible.",
       as_printed="r = (d² + 1)^{1/4}.", errata=("E1",))  # fmt: skip
def eq5(trial: Trial) -> Lines:
    whole = cube(6)
    small = four_neurons(xor(d=6, n=20, seed=trial.seed, n_test=0))
    yield near_zero("largest |f − x1x2| on the cube, d = 6", cube_errors(small))
    place = (2.5 - whole[:, 0] - whole[:, 1] / 2).astype(int) - 1
    wanted = 7**0.25 * np.eye(4)[place]
    yield near_zero("error of the activations r e_{5/2−x1−x2/2}", small.hidden(whole)[0] - wanted)
    for d in (6, 10, 30):
        data, what = xor(d=d, n=40, seed=trial.seed, n_test=0), f"trace, d = {d}, against 4√(d+1)"
        yield equal(what, four_neurons(data).trace, 4 * np.sqrt(d + 1))
        wrong = four_neurons(data, r=(d**2 + 1) ** 0.25)
        yield printed(equal(what, wrong.trace, 4 * np.sqrt(d + 1)))
    data = xor(d=30, n=40, seed=trial.seed, n_test=0)
    grid = np.linspace(1.2, 6, 60)
    traces = [four_neurons(data, r=r).trace for r in grid]
    yield equal("r of least trace, d = 30", grid[int(np.argmin(traces))], 31**0.25, rel=0.03)


@claim("wen2023.thm5.1", "Section 5, Theorem 5.1", "construction",
       "For extreme points, labels that are not zero and small ε a width-n network with simplified "
       "LayerNorm memorises and has the least Tr ∇²L, (2/n) Σ min(1, (2/ε)‖x'_i‖|y_i|).",
       note="How it goes wrong as printed for larger ε and zero labels: "
       "wen2023.thm5.1.construction.")  # fmt: skip
def theorem_5_1(trial: Trial) -> Lines:
    rng = trial.rng("thm5.1")
    base = sphere(d=5, n=8, seed=trial.seed, n_test=0)
    data = from_arrays(base.x_train, rng.uniform(0.5, 2, 8) * rng.choice([-1.0, 1.0], 8))
    for epsilon in (1e-3, 0.1, 2.0, 20.0):
        made, floor = layer_norm_memorising(data, epsilon), layer_norm_floor(data, epsilon)
        yield equal(f"trace over its floor, ε = {epsilon:g}, n = 8", made.trace / floor, 1)
        yield true(f"it memorises, ε = {epsilon:g}", is_memorising(made))
    yield equal("the floor for ε ≤ 2 min ‖x'‖|y|", layer_norm_floor(data, 1e-3), 2)
    for epsilon in (1e-3, 2.0):
        arch = TwoLayer(width=16, norm="layer", ln_epsilon=epsilon)
        found = random_interpolators(arch, data, trial.rng("thm5.1:any"), trial.size(30, 300))
        descended = flattened(found[:2], trial.size(100, 1000))
        least = min(each.trace for each in [*found, *descended]) / layer_norm_floor(data, epsilon)
        what = f"least trace over floor of {len(found)} networks, 2 descended, ε = {epsilon:g}"
        yield at_least(what, least, 1)


@claim("wen2023.prop5.1", "Section 5, Proposition 5.1", "construction",
       "With simplified LayerNorm the memorising network on distinct xor points has Tr ∇²L = 2, "
       "the least possible, and the zero-one error 1 − n/2^d.", errata=("E12",))  # fmt: skip
def proposition_5_1(trial: Trial) -> Lines:
    data = part_of_cube(trial.rng("prop5.1"), 6, 20)
    made = layer_norm_memorising(data, ln_epsilon=0.01)
    yield equal("trace, d = 6, n = 20, ε = 0.01", made.trace, 2)
    yield equal("the floor", layer_norm_floor(data, 0.01), 2)
    yield true("it memorises", is_memorising(made))
    yield equal("zero-one error on the cube, against 1 − 20/64", made.error(), 1 - 20 / 64)


@claim("wen2023.prop5.2", "Section 5, Proposition 5.2 and eq. (18)", "construction",
       "With simplified LayerNorm and width at least 4 there is a flattest minimum that is x1·x2 "
       "on the whole cube.", errata=("E13", "E17"))  # fmt: skip
def proposition_5_2(trial: Trial) -> Lines:
    data = xor(d=6, n=24, seed=trial.seed, n_test=0)
    made = layer_norm_four_neurons(data, ln_epsilon=0.01)
    yield equal("trace, d = 6, ε = 0.01", made.trace, 2)
    yield near_zero("largest |f − x1x2| on the cube", cube_errors(made))
    wide = layer_norm_four_neurons(data, ln_epsilon=0.01, width=7)
    yield equal("trace of width 7, three neurons dead", wide.trace, 2)
    yield above("its least |w_j·x_i + b_j|: no point is on a kink", nearest_kink(wide), 0)
