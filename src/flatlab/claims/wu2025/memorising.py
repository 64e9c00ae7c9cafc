"""Theorem 4: flat minima that do not generalise, and the lecture's memorising network."""

from __future__ import annotations

import math

import numpy as np

from ...data import Dataset, cube, from_arrays, xor
from ...models import TwoLayer
from ...theory.bounds import bias_floor
from ...theory.constructions import four_neurons, lecture_memorising, memorising
from ...theory.predicates import interpolates, is_memorising
from ...theory.sights import part_of_cube
from ...theory.solution import Array, Solution
from ..contract import Trial, claim, printed
from ..instances import lowest, point_norms, random_interpolator, random_network, random_networks
from ..lines import (
    Lines,
    above,
    at_least,
    at_most,
    equal,
    frequency,
    near_zero,
    shown,
    slope,
    true,
)


@claim("wu2025.thm4_flat_no_generalise", "Theorem 4 (flat minima)", "construction",
       "With bias and m ≥ n there is a flattest interpolating network on xor that is zero off the "
       "training set", errata=("W17",),
       note="Flattest because it is at the floor of step 2, which holds for every interpolating "
       "network. The slide introduces it as a change of the input distribution; it is the bias "
       "that makes the difference (`wen2023.thm3.1`).")  # fmt: skip
def flat_and_useless(trial: Trial) -> Lines:
    d, n = 8, 40
    data = part_of_cube(trial.rng("thm4"), d, n)
    made = memorising(data, width=n + trial.size(0, 5))
    what = f"d = {d}, n = {n} distinct points, width {len(made.params['W2'])}"
    yield near_zero(f"{what}: largest |f − y|", made.outputs() - data.y_train, 1e-9)
    yield equal("Tr G over the floor 2√(d+1)", made.trace / 2 / (2 * math.sqrt(d + 1)), 1)
    H = np.trace(made.hessian("half_mse"))
    yield equal("the trace of the Hessian over the floor", H / (2 * math.sqrt(d + 1)), 1, rel=1e-8)
    unseen = _unseen(data)
    yield near_zero(f"largest |f| on the other {len(unseen)} points", made.outputs(unseen), 0.0)
    yield equal("error on the cube, f = 0 counted as wrong", made.error(), 1 - n / 2**d)
    rival = four_neurons(data)
    yield equal("Tr G of a network that generalises, over the floor",
                rival.trace / 2 / (2 * math.sqrt(d + 1)), 1)  # fmt: skip
    yield near_zero("its error", rival.error())


def _unseen(data: Dataset) -> Array:
    """Return the points of the cube that are not in the training set."""
    seen = {tuple(x) for x in data.x_train}
    return np.array([x for x in cube(data.d) if tuple(x) not in seen])


@claim("wu2025.def1_memorising", "Definition 1", "definition",
       "A memorising solution interpolates, and every training point activates exactly one neuron, "
       "different points different ones")  # fmt: skip
def definition(trial: Trial) -> Lines:
    rng = trial.rng("def1")
    data = part_of_cube(rng, 8, 20)
    made = memorising(data)
    yield true("one neuron for each point: memorises", is_memorising(made))
    yield true("the lecture's network, mended: memorises",
               is_memorising(lecture_memorising(data, mended=True)))  # fmt: skip
    generalising = four_neurons(data)
    yield true("one neuron for each quadrant: interpolates", interpolates(generalising))
    yield true("but does not memorise", not is_memorising(generalising))
    other = random_interpolator(rng, TwoLayer(width=30), data)
    yield true("random features: interpolate, but do not memorise",
               interpolates(other) and not is_memorising(other))  # fmt: skip
    halved = made.with_params(W2=made.params["W2"] / 2)
    yield true("half the output layer: does not interpolate, so does not memorise",
               not is_memorising(halved))  # fmt: skip
    twice = {name: np.concatenate([made.params[name]] * 2) for name in ("W1", "b1", "W2")}
    twice["W2"] = twice["W2"] / 2
    doubled = Solution(TwoLayer(width=2 * data.n), twice, data)
    yield true("every neuron twice: interpolates, but does not memorise",
               interpolates(doubled) and not is_memorising(doubled))  # fmt: skip


@claim("wu2025.memoriser", "Proof of Theorem 4, step 1", "construction",
       "w_j = x_j/‖x_j‖, b_j = −√d/2, a_j = 2y_j/√d memorises only nearly orthogonal inputs, and "
       "has ‖∇f(x_i)‖² = 4(d+1)/d + d/4, above the floor 2√(d+1). With the same directions, higher "
       "thresholds and balanced layers it memorises and is at the floor",
       as_printed="It memorises with probability 1 − δ, is 0 off the training set, errs by 1 − "
       "n/2^d, and is flattest as it stands", errata=("W2", "W4"),
       note="`flatlab construct lecture-memorising` stores the printed network, "
       "`lecture-memorising:mended=true` the mended one.")  # fmt: skip
def memoriser(trial: Trial) -> Lines:
    d, n = 30, 100
    data = xor(d=d, n=n, seed=trial.seed, n_test=4000, distinct=True)
    for made, judge, name in (
        (lecture_memorising(data), printed, "the printed network"),
        (lecture_memorising(data, mended=True), lambda line: line, "mended"),
    ):
        on = made.hidden()[0] > 0
        what = f"d = {d}, n = {n}, {name}"
        several = int(np.sum(on.sum(1) > 1))
        yield judge(near_zero(f"{what}: points that activate several neurons", several, 0.5))
        yield judge(near_zero("mean squared training error", made.loss(), 1e-12))
        share = float(np.mean(made.outputs(data.x_test) != 0))
        yield judge(near_zero("share of 4,000 random points with f ≠ 0", share, 1e-3))
        yield judge(equal("error on them", made.error(), 1 - n / 2**d, rel=1e-3))
    for d in (30, 100, 400):
        few = xor(d=d, n=trial.size(4, 20), seed=trial.seed, n_test=0, distinct=True)
        alone = [_own_share(lecture_memorising(few), i) for i in range(few.n)]
        formula, floor = 4 * (d + 1) / d + d / 4, 2 * math.sqrt(d + 1)
        yield equal(f"d = {d}: own neuron's share of ‖∇f(x_i)‖²", np.mean(alone), formula)
        yield printed(equal(f"d = {d}: that", np.mean(alone), floor))
    mended = lecture_memorising(data, mended=True)
    yield equal("mended, d = 30: Tr G over the floor", mended.trace / bias_floor(data), 1)
    orthogonal = xor(d=400, n=n, seed=trial.seed, n_test=0)
    off = lecture_memorising(orthogonal).outputs() - orthogonal.y_train
    yield near_zero("d = 400, n = 100, the printed network: largest |f − y|", off, 1e-9)
    ratios = {d: (4 * (d + 1) / d + d / 4) / (2 * math.sqrt(d + 1)) for d in range(2, 401)}
    yield at_least("least of (4(d+1)/d + d/4)/2√(d+1) over d ≤ 400", min(ratios.values()), 1)
    yield equal("the d at which it is least", min(ratios, key=ratios.__getitem__), 17, rel=0)


def _own_share(made: Solution, i: int) -> float:
    """Return ‖∇f(x_i)‖² of neuron i alone."""
    height = float(made.hidden()[0][i, i])
    return height**2 + float(made.params["W2"][i]) ** 2 * (made.data.d + 1)


@claim("wu2025.memoriser.incoherence", "Proof of Theorem 4, step 1", "probabilistic",
       "With probability 1 − δ, n random points of the cube have |x̂_i·x̂_j| ≤ 2√(log(n/δ)/d) for "
       "all i ≠ j",
       as_printed="sup over all i and j of |x̂_i·x̂_j| ≤ log(n/δ)/n", errata=("W3",),
       note="By Hoeffding's inequality and a union bound over n²/2 pairs.")  # fmt: skip
def incoherence(trial: Trial) -> Lines:
    rng, n, delta, draws = trial.rng("incoherence"), 100, 0.1, trial.size(200, 2000)
    dimensions, medians = (30, 100, 300, 1000), []
    for d in dimensions:
        largest = np.array([_overlap(rng, n, d) for _ in range(draws)])
        bound, wrong = 2 * math.sqrt(math.log(n / delta) / d), math.log(n / delta) / n
        what = f"d = {d}, n = {n}: share of {draws} draws with max_{{i≠j}} |x̂_i·x̂_j|"
        hits = int(np.sum(largest > bound))
        yield frequency(f"{what} > {bound:.3f}", hits, draws, at_most=delta)
        if d <= 300:
            held = int(np.sum(largest <= wrong))
            yield printed(frequency(f"{what} ≤ {wrong:.3f}", held, draws, at_least=1 - delta))
        medians.append(float(np.median(largest)))
        yield shown("their median", medians[-1])
    yield slope("exponent of the median in d", dimensions, medians, near=-0.5, within=0.1)
    x = rng.choice([-1.0, 1.0], (n, 30)) / math.sqrt(30)
    yield printed(at_most("i = j: |x̂_i·x̂_i|", np.max(np.sum(x**2, 1)), math.log(n / delta) / n))


def _overlap(rng: np.random.Generator, n: int, d: int) -> float:
    x = rng.choice([-1.0, 1.0], (n, d))
    overlaps = np.abs(x @ x.T) / d
    np.fill_diagonal(overlaps, 0)
    return float(overlaps.max())


@claim("wu2025.step2_lower_bound", "Proof of Theorem 4, step 2", "inequality",
       "‖∇f(x_i)‖² ≥ 2‖x'_i‖|f(x_i)| with x' = (x, 1), so that Tr G ≥ 2√(d+1) on interpolating "
       "networks of the cube")  # fmt: skip
def lower_bound(trial: Trial) -> Lines:
    rng, least = trial.rng("step2"), math.inf
    x = rng.normal(size=(20, 5))
    data, count = from_arrays(x, np.ones(20)), trial.size(200, 2000)
    for net in random_networks(TwoLayer(width=6), data, rng, count):
        squares, f = np.sum(net.gradients() ** 2, 1), np.abs(net.outputs())
        alive = f > 0
        quotients = squares[alive] / (2 * point_norms(x)[alive] * f[alive])
        least = min(least, float(quotients.min(initial=math.inf)))
    yield at_least(f"least ‖∇f‖²/(2‖x'‖|f|) over {count} random networks", least, 1)
    point = from_arrays(x[:1], np.ones(1))
    found = min(
        lowest(
            random_network(rng, TwoLayer(width=6), point),
            lambda g, f, x: g / (2 * (x.square().sum() + 1).sqrt() * f.abs()),
        )
        for _ in range(8)  # a start whose neurons are dead or cancel may stop above 1
    )
    yield at_least("the same, least of 8 descents", found, 1)
    yield at_most("it comes near 1", found, 1.01)
    cube_data = part_of_cube(rng, 6, 20)
    traces = [
        random_interpolator(rng, TwoLayer(width=60), cube_data).trace / 2
        for _ in range(trial.size(10, 100))
    ]
    floor = 2 * math.sqrt(7)
    yield at_least("interpolating, d = 6, n = 20: least Tr G/2√(d+1)", min(traces) / floor, 1)
    yield above("largest of them", max(traces) / floor, 1.05)
