"""Section 4.1: the trace at interpolation, its floor with bias, and the networks that attain it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data import cube, from_arrays, sphere, xor
from ...models import TwoLayer
from ...theory.constructions import four_neurons, memorising
from ...theory.interpolators import random_interpolators
from ...theory.solution import Solution
from ..contract import (
    Line,
    Trial,
    at_least,
    below,
    claim,
    equal,
    near_zero,
    printed,
)
from ..instances import lowest, point_norms, random_networks


@claim(
    "wen2023.lem4.1",
    "Section 4.1, Lemma 4.1, eq. (1)",
    "identity",
    "Where f interpolates and is twice differentiable, Tr ∇²L = (2/n) Σ ‖∇f(x_i)‖²; elsewhere they "
    "differ by (2/n) Σ (f − y) Tr ∇²f.",
    errata=("E29",),
    note="On a kink of a ReLU the trace is a convention (relu'(0) = 0): see "
    "wen2023.A2.4.construction.",
)
def lemma_4_1(trial: Trial) -> Iterator[Line]:
    data = xor(d=5, n=8, seed=trial.seed, n_test=0)
    kinds: dict[str, TwoLayer] = {
        "bias": TwoLayer(width=10),
        "no bias": TwoLayer(width=10, bias=False),
        "Sim-LN": TwoLayer(width=10, norm="layer"),
        "Sim-BN": TwoLayer(width=10, norm="batch"),
        "softplus": TwoLayer(width=10, activation="softplus"),
    }
    for name, arch in kinds.items():
        worst_ = 0.0
        for each in random_interpolators(arch, data, trial.rng(f"lem4.1:{name}"), 4):
            worst_ = max(worst_, abs(np.trace(each.hessian()) / each.trace - 1))
        yield near_zero(
            f"largest relative difference, {name}, 4 interpolating networks", worst_, 1e-8
        )
    for each in random_networks(kinds["softplus"], data, trial.rng("off"), 3):
        residual = each.outputs() - data.y_train
        curvature = np.array([_model_trace(each, i) for i in range(data.n)])
        yield equal(
            "softplus, not interpolating: Tr ∇²L with the term in Tr ∇²f",
            np.trace(each.hessian()),
            each.trace + 2 * np.mean(residual * curvature),
            rel=1e-8,
        )


def _model_trace(solution: Solution, i: int) -> float:
    """Return Tr ∇²f(x_i), from the Hessians of (f − y)² for two labels."""
    x, f = solution.data.x_train[[i]], solution.outputs()[i]
    at = Solution(solution.arch, solution.params, from_arrays(x, [f]))
    off = Solution(solution.arch, solution.params, from_arrays(x, [f - 0.5]))
    return float(np.trace(off.hessian()) - np.trace(at.hessian()))


@claim(
    "wen2023.eq2",
    "Section 4.1, eq. (2)",
    "identity",
    "‖∇f(x)‖² = ‖W2 ⊙ 1[W1'x' > 0]‖² ‖x'‖² + ‖relu(W1'x')‖² for two layers with bias.",
)
def eq2(trial: Trial) -> Iterator[Line]:
    data = sphere(d=7, n=10, seed=trial.seed, n_test=0)
    worst_ = 0.0
    for each in random_networks(TwoLayer(width=9), data, trial.rng("eq2"), 100):
        h = each.hidden()[0]
        formula = ((h > 0) * each.params["W2"] ** 2).sum(1) * point_norms(data.x_train) ** 2
        formula += (h**2).sum(1)
        autograd = (each.gradients() ** 2).sum(1)
        alive = formula > 0
        ratios = autograd[alive] / formula[alive]
        worst_ = max(
            worst_, float(np.abs(ratios - 1).max(initial=0)), float(autograd[~alive].sum())
        )
    yield near_zero(
        "largest relative difference to autograd, 100 networks × 10 points", worst_, 1e-12
    )


@claim(
    "wen2023.eq3",
    "Section 4.1, eq. (3)",
    "inequality",
    "‖∇f(x)‖² ≥ 2‖x'‖|f(x)| for every network with bias and every x.",
    errata=("E17",),
)
def eq3(trial: Trial) -> Iterator[Line]:
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


@claim(
    "wen2023.eq4",
    "Section 4.1, eq. (4)",
    "identity",
    "Equality in (3) asks for W2 ⊙ 1[W1'x'_i > 0] = sign(y_i) relu(W1'x'_i)/‖x'_i‖.",
    as_printed="The same without sign(y_i).",
    errata=("E17",),
)
def eq4(trial: Trial) -> Iterator[Line]:
    data = xor(d=10, n=30, seed=trial.seed, n_test=0, distinct=True)
    made = memorising(data)
    h = made.hidden()[0]
    left = (h > 0) * made.params["W2"]
    right = h / np.sqrt(11)
    with_sign = np.abs(left - np.sign(data.y_train)[:, None] * right).max()
    without = np.abs(left - right).max(1)
    yield near_zero("largest deviation at the memorising network, d = 10", with_sign, 1e-12)
    yield printed(
        near_zero("largest deviation where y = −1", without[data.y_train < 0].max(), 1e-12)
    )
    yield equal("which is 2/√‖x'‖", without[data.y_train < 0].max(), 2 / 11**0.25)


@claim(
    "wen2023.eq5",
    "Section 4.1, eq. (5)",
    "construction",
    "The four-neuron network with r = (d+1)^{1/4} is x1·x2 on the cube, one neuron active at each "
    "point, and Tr ∇²L = 2(r² + (d+1)/r²) = 4√(d+1), the least possible.",
    as_printed="r = (d² + 1)^{1/4}.",
    errata=("E1",),
)
def eq5(trial: Trial) -> Iterator[Line]:
    whole = cube(6)
    small = four_neurons(xor(d=6, n=20, seed=trial.seed, n_test=0))
    yield near_zero(
        "largest |f − x1x2| on the cube, d = 6",
        np.abs(small.outputs(whole) - whole[:, 0] * whole[:, 1]).max(),
    )
    place = (2.5 - whole[:, 0] - whole[:, 1] / 2).astype(int) - 1
    wanted = 7**0.25 * np.eye(4)[place]
    yield near_zero(
        "largest error of the activations r e_{5/2−x1−x2/2}",
        np.abs(small.hidden(whole)[0] - wanted).max(),
    )
    for d in (6, 10, 30):
        data = xor(d=d, n=40, seed=trial.seed, n_test=0)
        yield equal(
            f"trace, d = {d}, against 4√(d+1)", four_neurons(data).trace, 4 * np.sqrt(d + 1)
        )
        wrong = four_neurons(data, r=(d**2 + 1) ** 0.25)
        yield printed(equal(f"trace, d = {d}, against 4√(d+1)", wrong.trace, 4 * np.sqrt(d + 1)))
    data = xor(d=30, n=40, seed=trial.seed, n_test=0)
    grid = np.linspace(1.2, 6, 60)
    traces = [four_neurons(data, r=r).trace for r in grid]
    yield equal(
        "r of least trace on a grid, d = 30, against 31^{1/4}",
        grid[int(np.argmin(traces))],
        31**0.25,
        rel=0.03,
    )
