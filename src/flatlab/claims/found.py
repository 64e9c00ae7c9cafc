"""Facts that are not in the sources, found while checking them, and needed for the checks."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ..data import complete, from_arrays, xor
from ..models.chains import TwoLayer
from ..theory.bounds import batch_norm_xor, layer_norm_floor, no_bias_floor
from ..theory.columns import Neurons
from ..theory.constructions import no_bias_memorising, xor_batch_norm
from ..theory.flattest import flattest
from ..theory.interpolators import random_interpolators
from ..theory.solution import Solution
from .contract import Trial, claim
from .instances import first_layer_times, with_idle
from .lines import Lines, above, at_least, below, equal, near_zero, shown, slope, true


@claim("flatlab.x1.bn_flatter_nongeneralising",
       "beside Theorem 3.2 and Figure 2 of Wen, Li & Ma (2023)", "construction",
       "Without Condition 1, on a few n ≈ 3d xor points, there are networks with simplified "
       "BatchNorm that interpolate, are flatter than the xor network, and do not generalise.",
       note="The network is explicit, so its trace and error are facts. That nothing is flatter "
       "still is not shown: the search for neurons is heuristic.")  # fmt: skip
def flatter_without_generalising(trial: Trial) -> Lines:
    sizes = [(20, 60, 15), *trial.size([], [(30, 100, 80)])]
    search = partial(flattest, family="sim-bn", seed=trial.seed, budget_seconds=120)
    for d, n, rounds in sizes:
        for draw in range(trial.size(2, 3)):
            data = xor(d=d, n=n, seed=3 * trial.seed + draw)
            flat = search(data, max_rounds=rounds, width=n)
            made, reference = flat.solution, batch_norm_xor(data)
            where = f"d = {d}, n = {n}, draw {draw + 1}"
            misfit = np.max(np.abs(made.outputs() - data.y_train))
            yield near_zero(f"largest |f − y| of a width-{n} network, {where}", misfit, 1e-8)
            yield below("its trace, against the limit of the xor network", made.trace, reference)
            yield shown("lower bound if the search missed no neuron", flat.dual_bound)
            yield above(f"its error on {len(data.x_test):,} test points", made.error(), 0.05)
            yield near_zero("that of the xor network", xor_batch_norm(data).error())


@claim("flatlab.x2.ln_all_interpolators_near_flattest",
       "beside Theorem 5.1 and Figure 6 of Wen, Li & Ma (2023)", "identity",
       "With simplified LayerNorm every interpolating network with ‖h(x_i)‖ > ε comes as near to "
       "the floor 2 as one likes by scaling its first layer by K, Tr = 2 + c/K², whatever the "
       "labels; so without a constraint on that norm all interpolating networks are nearly "
       "flattest.")  # fmt: skip
def layer_norm_all_flat(trial: Trial) -> Lines:
    rng = trial.rng("labels")
    inputs = xor(d=6, n=16, seed=trial.seed, distinct=True, n_test=0).x_train
    data = from_arrays(inputs, rng.choice([-1.0, 1.0], 16))
    arch = TwoLayer(width=40, norm="layer", ln_epsilon=1e-3)
    scales = (1.0, 10.0, 100.0, 1000.0)
    yield equal("the floor of the trace, ε = 0.001", layer_norm_floor(data, arch.ln_epsilon), 2)
    for index, made in enumerate(random_interpolators(arch, data, rng, trial.size(3, 20))):
        least = np.min(np.linalg.norm(made.hidden()[0], axis=1)) / arch.ln_epsilon
        yield above(f"least ‖h‖/ε of random network {index + 1}, random labels, n = 16", least, 1)
        scaled = [first_layer_times(K, made) for K in scales]
        misfit = max(np.max(np.abs(s.outputs() - data.y_train)) for s in scaled)
        yield near_zero("its largest |f − y| at K = 1, 10, 100, 1000", misfit, 1e-9)
        c = scaled[0].trace - 2
        yield above("c = Tr − 2 at K = 1", c, 0)
        for K, each in zip(scales[1:], scaled[1:], strict=True):
            yield equal(f"Tr at K = {K:g}", each.trace, 2 + c / K**2)


@claim("flatlab.x3.nobias_memoriser", "beside Theorem 3.1 of Wen, Li & Ma (2023)", "construction",
       "For n ≤ d points the flattest networks without bias include a memorising one with Tr = "
       "4√d, off all kinks: below the sample size of Theorem 3.1 a flattest minimum need not "
       "generalise. Neurons that fire at one training point only disappear between n = d and n = "
       "4d.")  # fmt: skip
def no_bias_memoriser(trial: Trial) -> Lines:
    data = xor(d=30, n=20, seed=trial.seed)
    made = no_bias_memorising(data)
    yield near_zero("largest |f − y|, d = 30, n = 20", made.outputs() - data.y_train, 1e-9)
    yield equal("its trace over 4√d", made.trace / (4 * math.sqrt(30)), 1)
    yield equal("the floor without bias over 4√d", no_bias_floor(data) / (4 * math.sqrt(30)), 1)
    h = data.x_train @ made.params["W1"].T
    yield above("its distance from a kink, |w_j·x_i|", np.min(np.abs(h)) / np.max(np.abs(h)), 0.1)
    yield true("neuron i fires at x_i alone", np.array_equal(h > 0, np.eye(20, dtype=bool)))
    yield above("its error on 10,000 test points", made.error(), 0.4)
    d, counts = trial.size((15, (15, 30, 60)), (30, (45, 60, 75, 120)))
    shares = []
    for n in counts:
        points = xor(d=d, n=n, seed=trial.seed, n_test=0, distinct=True)
        shares.append(len(Neurons(points, "no-bias").alone()) / n)
    yield at_least(f"share of points with an own neuron, d = {d}, n = {counts[0]}", shares[0], 0.9)
    for n, share in zip(counts[1:-1], shares[1:-1], strict=True):
        yield shown(f"the same for n = {n}", share)
    yield near_zero(f"the same for n = {counts[-1]}", shares[-1], 0.1)


@claim("flatlab.x4.scalar_gamma",
       "beside Section 2 and Theorem 3.2 of Wen, Li & Ma (2023)", "identity",
       "If γ of simplified BatchNorm were one scalar, as Section 2 prints it, the trace would tend "
       "to 2(1/γ² + γ²m) ≥ 4√m for every interpolating network of m live neurons, whatever the "
       "labels: every one could be made equally flat, and Theorem 3.2 would be false. γ must be a "
       "vector.", errata=("E16",))  # fmt: skip
def scalar_gamma(trial: Trial) -> Lines:
    data = complete(d=4, s=3, seed=trial.seed, n_test=0)
    rng = trial.rng("labels")
    noise = from_arrays(data.x_train, rng.choice([-1.0, 1.0], 12))
    archs = [TwoLayer(width=width, norm="batch") for width in (16, 32, 64, 128)]
    random = [random_interpolators(arch, noise, rng, 1)[0] for arch in archs]
    xor_network = xor_batch_norm(data, width=16)
    padded = with_idle(xor_network, rng.normal(size=(12, data.d)), b1=1.0, gamma=1.0)
    for name, made in (("random labels", random[0]), ("the xor network", padded)):
        m = _live(made)
        gammas = np.append(10 ** rng.uniform(-1, 1, trial.size(10, 100)), m**-0.25)
        values = np.array([_scalar_trace(made, float(gamma)) for gamma in gammas])
        off = values / (2 * (1 / gammas**2 + gammas**2 * m)) - 1
        yield near_zero(f"trace/(2(1/γ² + γ²m)) − 1 at K = 1e6, {name}, m = {m}, n = 12", off, 1e-6)
        yield at_least("the least of them over 4√m", min(values) / (4 * math.sqrt(m)), 1)
        yield equal("that at γ² = 1/√m", values[-1] / (4 * math.sqrt(m)), 1, rel=1e-6)
    live = [_live(made) for made in random]
    least = [_scalar_trace(made, m**-0.25) for made, m in zip(random, live, strict=True)]
    yield slope("exponent of that trace in m, widths 16 to 128", live, least, near=0.5, within=0.05)


def _live(solution: Solution) -> int:
    return int(np.sum(np.any(solution.hidden()[0] > 0, 0)))


def _scalar_trace(solution: Solution, gamma: float) -> float:
    """Return the trace with all γ_j tied to one γ, W2 changed so that f is the same, at K = 1e6.

    The derivative in a shared γ is the sum of the derivatives in the γ_j.
    """
    params = solution.params
    tied, W2 = np.full_like(params["gamma"], gamma), params["W2"] * params["gamma"] / gamma
    gradients = first_layer_times(1e6, solution).with_params(gamma=tied, W2=W2).gradients()
    width = len(params["W2"])
    shared = np.sum(gradients[:, -width:], 1)
    return float(2 * np.mean(np.sum(gradients[:, :-width] ** 2, 1) + shared**2))
