"""Section 3: without bias the flattest minima generalise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from ...data import xor
from ...models.chains import TwoLayer
from ...theory import bounds
from ...theory.constructions import no_bias_xor
from ...theory.flattest import flattest
from ...theory.interpolators import flattened, random_interpolators
from ...theory.predicates import path_norm
from ...theory.rademacher import path_norm_ball
from ..contract import (
    Line,
    Trial,
    above,
    at_least,
    at_most,
    claim,
    equal,
    near_zero,
    not_checkable,
    printed,
    shown,
    slope,
)


@claim(
    "wen2023.thm3.1",
    "Section 3.1, Theorem 3.1",
    "rate",
    "For n = Ω(d log(d/δ)), with probability 1 − δ every network without bias of least trace among "
    "those that interpolate n xor points has E(f − y)² ≤ Õ(d/n).",
    note="The statement has no constants, so only the shape can be checked. The floor 4√d is "
    "reached with training points on kinks; the search here is over points off the kinks too.",
)
def theorem_3_1(trial: Trial) -> Iterator[Line]:
    data = xor(d=6, n=12, seed=trial.seed, distinct=True, n_test=0)
    floor, arch, rng = bounds.no_bias_floor(data), TwoLayer(width=24, bias=False), trial.rng("3.1")
    traces = [s.trace for s in random_interpolators(arch, data, rng, 50)]
    yield at_least(
        "least trace over the floor (2/n)Σ2‖x_i‖|y_i|, 50 random interpolating networks, d = 6, "
        "n = 12", min(traces) / floor, 1,
    )  # fmt: skip
    starts = random_interpolators(arch, data, rng, trial.size(1, 10), rescale=False)
    found = min(s.trace for s in flattened(starts, trial.size(60, 300)))
    yield at_least("the same after descending the trace among them", found / floor, 1)
    yield equal(
        "trace of the xor network over 4√d, its training points on kinks, d = 6, n = 12",
        no_bias_xor(data, 0.0).trace / (4 * math.sqrt(6)), 1,
    )  # fmt: skip
    yield above(
        "the same with its kinks moved by 1e-7: the trace jumps",
        no_bias_xor(data, 1e-7).trace / (4 * math.sqrt(6)), 1.2,
    )  # fmt: skip
    scaled: dict[int, list[float]] = {1: [], 2: [], 4: [], 8: []}
    gaps = []
    for d, times, draw in itertools.product((6, 8), scaled, range(trial.size(1, 4))):
        data = xor(d=d, n=times * d, seed=4 * trial.seed + draw, exact_test=True)
        flat = flattest(
            data, "no-bias", kinks=False, seed=trial.seed, budget_seconds=60,
            max_rounds=trial.size(12, 40),
        )  # fmt: skip
        scaled[times].append(flat.solution.test_loss() * times)
        gaps.append(flat.limit / flat.dual_bound - 1)
    yield shown(
        "largest relative gap of the trace to its lower bound, flattest networks off the kinks, "
        f"{len(gaps)} training sets, d = 6, 8, n = d to 8d", max(gaps),
    )  # fmt: skip
    for times in (1, 2):
        yield shown(f"their largest E(f − y)²·n/d, n = {times}d, too few", max(scaled[times]))
    yield shown("the same for n = 4d", max(scaled[4]))
    yield at_most("the same for n = 8d is no larger", max(scaled[8]), max(scaled[4]))
    yield at_most("and at most 1", max(scaled[8]), 1)


@claim(
    "wen2023.thm3.1.markov",
    "Section 3.1, after Theorem 3.1",
    "identity",
    "For y = ±1, Pr[y f(x) ≤ 0] ≤ E(f − y)², because y f ≤ 0 implies (f − y)² ≥ 1.",
    as_printed="Pr[f(x)y > 0] ≤ Õ(d/n), the probability of a right answer.",
    errata=("E5",),
)
def markov(trial: Trial) -> Iterator[Line]:
    rng, count = trial.rng("markov"), trial.size(100_000, 1_000_000)
    y = rng.choice([-1.0, 1.0], count)
    f = y * rng.normal(size=count) * 10 ** rng.uniform(-3, 1, count)
    wrong = y * f <= 0
    yield at_least(
        f"least (f − y)² where y f ≤ 0, of {count:,} random pairs", np.min((f - y)[wrong] ** 2), 1
    )
    scales = 10 ** rng.uniform(-2, 1, (200, 1))
    outputs = rng.choice([-1.0, 0.0, 1.0], (200, 500)) * scales + rng.normal(size=(200, 1))
    labels = rng.choice([-1.0, 1.0], (200, 500))
    error, loss = np.mean(labels * outputs <= 0, 1), np.mean((outputs - labels) ** 2, 1)
    yield at_most("largest error rate over loss, 200 random classifiers", np.max(error / loss), 1)
    data = xor(d=8, n=32, seed=trial.seed, exact_test=True)
    perfect = no_bias_xor(data)
    right = np.mean(perfect.outputs(data.x_test) * data.y_test > 0)
    yield near_zero("loss of the xor network on the cube, d = 8", perfect.test_loss())
    yield printed(at_most("its Pr[f y > 0] against that loss, Õ(d/n) by Theorem 3.1", right, 1e-9))


@claim(
    "wen2023.lem3.1",
    "Section 3.1, Lemma 3.1",
    "rate",
    "The flattest interpolating networks without bias have path norm Σ_j ‖w_j‖|a_j| ≤ C with C "
    "independent of d, and the networks of path norm at most C have R_S ≤ Õ(√(d/n)).",
    note="R_S is a lower estimate: a supremum over neurons, found by ascent. One network at the "
    "floor is measured, not all, and it is easily found: the neurons ±x_a ± x_b are in the pool "
    "from the start. Networks off the kinks need a long search: --thorough.",
)
def lemma_3_1(trial: Trial) -> Iterator[Line]:
    dims = (6, 8, 12, 16)
    sizes = [
        path_norm(flattest(xor(d=d, n=4 * d, seed=trial.seed, n_test=0), "no-bias").solution)
        for d in dims
    ]
    yield at_most(
        "largest path norm of a network at the floor 4√d for d = 12, 16 against d = 6, 8, n = 4d",
        max(sizes[2:]), max(sizes[:2]),
    )  # fmt: skip
    if trial.thorough:
        flat = [
            flattest(
                xor(d=d, n=4 * d, seed=trial.seed, n_test=0), "no-bias", kinks=False,
                seed=trial.seed, budget_seconds=120, max_rounds=50,
            )
            for d in dims
        ]  # fmt: skip
        yield shown(
            "largest relative gap of the trace to its lower bound, flattest networks off the kinks",
            max(found.limit / found.dual_bound - 1 for found in flat),
        )
        yield slope(
            "slope in d of their path norm, d = 6 to 16, n = 4d", dims,
            [path_norm(found.solution) for found in flat], at_most=0.1,
        )  # fmt: skip
    data = xor(d=10, n=40, seed=trial.seed, n_test=0)
    for epsilon in (0.0, 0.1):
        formula = 2 * math.sqrt(2) * math.sqrt(1 + epsilon**2) / (1 - epsilon)
        yield equal(
            f"path norm of the xor network with ε = {epsilon}, 2√2·√(1+ε²)/(1−ε)",
            path_norm(no_bias_xor(data, epsilon)), formula,
        )  # fmt: skip
    rng, counts = trial.rng("R_S"), (20, 40, 80, 160, 320)
    draws = trial.size(20, 200)
    values = [
        path_norm_ball(xor(d=10, n=n, seed=trial.seed, n_test=0).x_train, draws=draws, rng=rng)
        for n in counts
    ]
    yield slope(
        f"slope of R_S in n, d = 10, n = 20 to 320, {draws} sign vectors", counts,
        [v.value for v in values], at_most=-0.4,
    )  # fmt: skip
    ratios = [
        path_norm_ball(
            xor(d=d, n=8 * d, seed=trial.seed, n_test=0).x_train, draws=draws, rng=rng
        ).value / math.sqrt(1 / 8)
        for d in (5, 10, 20, 40)
    ]  # fmt: skip
    yield slope(
        "slope in d of R_S/√(d/n), d = 5 to 40, n = 8d", (5, 10, 20, 40), ratios, near=0,
        within=0.15,
    )  # fmt: skip


claim_ntk = not_checkable(
    "wen2023.claim.ntk_d2",
    "Section 3.1, citing Wei et al. (2019)",
    "rate",
    "Learning xor with the neural tangent kernel needs Ω(d²) samples.",
    "A lower bound over all n that is cited, not proved, in the source.",
)
