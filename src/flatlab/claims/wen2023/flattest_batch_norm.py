"""Section 3: with simplified BatchNorm the flattest minima generalise, under Condition 1."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data import complete, cube, xor
from ...errors import UserError
from ...models.chains import TwoLayer
from ...theory import bounds
from ...theory.constructions import xor_batch_norm
from ...theory.flattest import flattest
from ...theory.interpolators import flattened, random_interpolators
from ...theory.predicates import satisfies_condition_1
from ...theory.solution import Array, Solution
from ..contract import (
    Line,
    Trial,
    above,
    at_least,
    at_most,
    below,
    claim,
    equal,
    near_zero,
    not_checkable,
    printed,
    true,
)


@claim(
    "wen2023.cond1",
    "Section 3.1, Condition 1",
    "construction",
    "The training set is {±1}² × S with y = x1·x2, where the differences of S ⊂ {±1}^{d−2} span "
    "all d − 2 dimensions; so n = 4|S| ≥ 4(d − 1).",
)
def condition_1(trial: Trial) -> Iterator[Line]:
    for d, s in ((6, 5), (6, 12), (12, 15)):
        data = complete(d=d, s=s, seed=trial.seed, n_test=0)
        rest = np.unique(data.x_train[:, 2:], axis=0)
        yield equal(f"rank of S − S, d = {d}, |S| = {s}", _rank_of_differences(rest), d - 2)
        rows = {tuple(row) for row in data.x_train}
        wanted = {(*corner, *row) for corner in cube(2) for row in rest}
        yield true("the training set is {±1}² × S", rows == wanted and data.n == 4 * s)
        yield true("and flatlab's own question says so", satisfies_condition_1(data))
        yield near_zero("y − x1·x2", np.max(np.abs(data.y_train - np.prod(data.x_train[:, :2], 1))))
        quadrants = np.unique(data.x_train[:, :2], axis=0, return_counts=True)[1]
        yield equal("points in the emptiest and in the fullest quadrant",
                    quadrants.min(), quadrants.max())  # fmt: skip
    ones = np.ones((1, 8))
    smallest = np.vstack([ones, 1 - 2 * np.eye(8)])
    yield equal("rank of S − S for S = {1} ∪ {1 − 2e_k}, d = 10", _rank_of_differences(smallest), 8)
    yield equal("the same without one of its points", _rank_of_differences(smallest[:-1]), 7)
    try:
        complete(d=10, s=8)
        refused = False
    except UserError:
        refused = True
    yield true("fewer than d − 1 points are refused, d = 10", refused)


@claim(
    "wen2023.thm3.2",
    "Section 3.1, Theorem 3.2",
    "inequality",
    "Under Condition 1, with simplified BatchNorm, for every ε there is κ > 0 such that every "
    "interpolating network with Tr ≤ κ + inf = κ + 8 has |f − x1·x2| ≤ ε on the cube, and every "
    "neuron with γ_i W2_i ≠ 0 has ‖W1_i[3:d]‖ ≤ ε‖W1_i‖.",
    as_printed="‖W1_i[3:d]‖ ≤ ε‖W1_i‖ for all neurons i.",
    errata=("E14",),
    note="κ(ε) is not given; networks are followed as their trace falls to 8. Networks of width "
    "m ≤ 2 cannot interpolate.",
)
def theorem_3_2(trial: Trial) -> Iterator[Line]:
    data = complete(d=6, s=5, seed=trial.seed, n_test=0)
    arch, rng = TwoLayer(width=30, norm="batch"), trial.rng("3.2")
    made = random_interpolators(arch, data, rng, 20)
    starts = random_interpolators(arch, data, rng, trial.size(1, 5), rescale=False)
    descended = flattened(starts, trial.size(60, 400))
    yield at_least(
        "least trace of 20 random interpolating networks and of a descent among them, d = 6, n = "
        "20", min(s.trace for s in made + descended), 8,
    )  # fmt: skip
    excess, error, share = [], [], []
    for rounds in trial.size((2, 30), (2, 6, 12, 24, 40, 80, 160)):
        flat = flattest(
            data, "sim-bn", seed=trial.seed, budget_seconds=60, max_rounds=rounds, hints=False
        )
        excess.append(flat.limit - 8)
        error.append(_cube_error(flat.solution))
        share.append(_irrelevant_share(flat.solution))
    yield at_least(
        "least limit of the trace that a search from random neurons finds", min(excess) + 8, 8
    )
    yield near_zero("its excess over 8", min(excess), 1e-4)
    yield near_zero("its largest |f − x1·x2| on the cube", error[-1], 1e-2)
    yield near_zero("its largest ‖W1_i[3:d]‖/‖W1_i‖ over neurons with γ_i W2_i ≠ 0", share[-1], 0.1)
    yield above("these two at the start of the search: |f − x1·x2|", error[0], error[-1])
    yield above("and ‖W1_i[3:d]‖/‖W1_i‖", share[0], share[-1])
    idle = xor_batch_norm(data, scale=100, width=5)
    W1, b1 = idle.params["W1"].copy(), idle.params["b1"].copy()
    W1[4, 2:], b1[4] = 100, 1
    idle = idle.with_params(W1=W1, b1=b1)
    yield equal(
        "trace of the xor network with a fifth neuron on x3..xd with γ = W2 = 0, over its trace "
        "with four, K = 100", idle.trace / xor_batch_norm(data, scale=100).trace, 1,
    )  # fmt: skip
    ratios = np.linalg.norm(W1[:, 2:], axis=1) / np.linalg.norm(W1, axis=1)
    yield near_zero(
        "its largest ‖W1_i[3:d]‖/‖W1_i‖ over neurons with γ_i W2_i ≠ 0", ratios[:4].max()
    )
    yield printed(at_most("the same over all neurons", ratios.max(), 0.01))


@claim(
    "wen2023.thm3.2.remark_gradient",
    "Section 3.1, after Theorem 3.2",
    "identity",
    "With simplified BatchNorm the gradient of f with respect to (W1, b1) is not zero but vanishes "
    "as their norm grows: scaling them by K leaves f alone and divides that gradient by K, so that "
    "the trace is 8 + c/K² along the xor network.",
)
def remark_gradient(trial: Trial) -> Iterator[Line]:
    data = complete(d=6, s=5, seed=trial.seed, n_test=0)
    scales = (1.0, 10.0, 100.0, 1000.0)
    traces = np.array([xor_batch_norm(data, scale=K).trace for K in scales])
    c = traces[0] - 8
    yield above("c = Tr − 8 of the xor network at K = 1, d = 6, n = 20", c, 0)
    for K, trace in zip(scales[1:], traces[1:], strict=True):
        yield equal(f"Tr at K = {K:g}", trace, 8 + c / K**2, rel=1e-10)
    arch = TwoLayer(width=30, norm="batch")
    for index, made in enumerate(random_interpolators(arch, data, trial.rng("remark"), 3)):
        first = made.params["W1"].size + made.params["b1"].size
        sizes = []
        for K in scales:
            scaled = made.with_params(W1=K * made.params["W1"], b1=K * made.params["b1"])
            yield near_zero(
                f"change of f at K = {K:g}, random interpolating network {index + 1}",
                np.max(np.abs(scaled.outputs() - made.outputs())), 1e-8,
            )  # fmt: skip
            sizes.append(np.min(np.linalg.norm(scaled.gradients()[:, :first], axis=1)))
        yield above("its least ‖∇_(W1,b1) f(x_i)‖ at K = 1000", sizes[-1], 0)
        yield equal(
            "that times K over its value at K = 1", sizes[-1] * 1000 / sizes[0], 1, rel=1e-8
        )


@claim(
    "wen2023.thm3.2.condition_technical",
    "Section 3.1, after Theorem 3.2",
    "construction",
    "Hypothesis: Condition 1 is mainly technical, the flattest networks with simplified BatchNorm "
    "find xor without it. At d = 30, n = 100, the setting of Figure 2, it is false: an explicit "
    "interpolating network is flatter than the xor network and errs on many test points.",
    expected="refuted",
    note="The counterexample is at the sizes stated; with more data, n = 200, the search finds "
    "nothing flatter than the xor network.",
)
def condition_technical(trial: Trial) -> Iterator[Line]:
    data = xor(d=30, n=100, seed=trial.seed)
    flat = flattest(
        data,
        "sim-bn",
        seed=trial.seed,
        budget_seconds=120,
        max_rounds=trial.size(25, 50),
        hints=False,
    )
    yield near_zero(
        f"largest |f − y| on the training set, d = 30, n = 100, width {flat.neurons}",
        np.max(np.abs(flat.solution.outputs() - data.y_train)), 1e-8,
    )  # fmt: skip
    yield below("its trace, against the limit 4Σ_q√p_q of the xor network",
                flat.trace, bounds.batch_norm_xor(data))  # fmt: skip
    yield above("its error on 10,000 test points; that of the xor network is 0",
                flat.solution.error(), 0.01)  # fmt: skip
    more = xor(d=30, n=200, seed=trial.seed)
    flat = flattest(more, "sim-bn", seed=trial.seed, budget_seconds=120, max_rounds=5)
    yield equal("n = 200: least limit found over that of the xor network",
                flat.limit / bounds.batch_norm_xor(more), 1)  # fmt: skip
    yield near_zero("n = 200: its test error", flat.solution.error())


theorem_3_2_proof = not_checkable(
    "wen2023.thm3.2.proof",
    "Appendix A.1.1",
    "text",
    "Theorem 3.2 is a direct consequence of Lemmas A.2 and A.3.",
    "A step of logic; the two lemmas have checks of their own.",
)


def _rank_of_differences(points: Array) -> int:
    return int(np.linalg.matrix_rank((points[:, None] - points[None]).reshape(-1, points.shape[1])))


def _cube_error(solution: Solution) -> float:
    x = cube(solution.data.d)
    return float(np.max(np.abs(solution.outputs(x) - x[:, 0] * x[:, 1])))


def _irrelevant_share(solution: Solution) -> float:
    W1 = solution.params["W1"]
    product = np.abs(solution.params["W2"] * solution.params["gamma"])
    share = np.linalg.norm(W1[:, 2:], axis=1) / np.linalg.norm(W1, axis=1)
    return float(np.max(share[product > 1e-4 * product.max()]))
