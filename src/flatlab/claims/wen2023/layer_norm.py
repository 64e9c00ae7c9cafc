"""Appendix A.4: the floor with simplified LayerNorm, and its construction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from torch import Tensor

from ...data import from_arrays, sphere
from ...models import TwoLayer
from ...theory.bounds import layer_norm_floor
from ...theory.constructions import layer_norm_memorising
from ...theory.predicates import interpolates
from ...theory.solution import Solution
from ..contract import Line, Trial, at_least, below, claim, equal, near_zero, printed, true
from ..instances import lowest, point_norms, random_networks


@claim(
    "wen2023.lemA.12",
    "Appendix A.4.1, Lemma A.12",
    "inequality",
    "‖∇f(x)‖² ≥ min(1, (2/ε)‖x'‖|f(x)|) for every network with simplified LayerNorm and every x; "
    "so Tr ∇²L ≥ (2/n) Σ min(1, (2/ε)‖x'_i‖|y_i|) at interpolation.",
    errata=("E17",),
)
def lemma_a12(trial: Trial) -> Iterator[Line]:
    data = sphere(d=5, n=10, seed=trial.seed, n_test=0)
    size = point_norms(data.x_train)
    for epsilon, regime in ((1e-3, "‖h‖ > ε"), (1e3, "‖h‖ ≤ ε")):
        arch = TwoLayer(width=6, norm="layer", ln_epsilon=epsilon)
        least, inside = np.inf, True
        for each in random_networks(
            arch, data, trial.rng(f"A.12:{epsilon}"), trial.size(200, 2000)
        ):
            h = np.linalg.norm(each.hidden()[0], axis=1)
            alive = h > 0
            inside &= bool(np.all((h > epsilon)[alive] == (epsilon < 1)))
            floor = np.minimum(1, 2 / epsilon * size * np.abs(each.outputs()))
            ratios = (each.gradients() ** 2).sum(1)[floor > 0] / floor[floor > 0]
            least = min(least, float(ratios.min(initial=np.inf)))
        yield true(f"all random networks are in the regime {regime}", inside)
        yield at_least(f"least ‖∇f‖² over its floor there, {regime}", least, 1)
        one = from_arrays(data.x_train[:1], [1.0])
        starts = random_networks(arch, one, trial.rng("A.12:start"), 20)
        alive = [each for each in starts if each.outputs()[0] != 0][:4]
        found = min(lowest(each, partial(_over_floor, epsilon), 150) for each in alive)
        yield at_least(f"least found by descending the ratio, {regime}", found, 1)
        yield below(f"and how near 1 it comes, {regime}", found, 1.01)


def _over_floor(epsilon: float, squared: Tensor, f: Tensor, x: Tensor) -> Tensor:
    return squared / (2 / epsilon * (x @ x + 1).sqrt() * f.abs()).clamp(max=1.0)


@claim(
    "wen2023.thm5.1.construction",
    "Appendix A.4.1, proof of Theorem 5.1",
    "construction",
    "The case with u = 2ε belongs to ‖x'‖|y| > ε/2, and a point with y = 0 needs no neuron: so the "
    "network is at the floor in all three cases.",
    as_printed="The threshold is ε, and a point with y = 0 has a neuron of height 2ε.",
    errata=("E10", "E11"),
)
def cases(trial: Trial) -> Iterator[Line]:
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
    full = layer_norm_memorising(from_arrays(x, 3.0 / size), ln_epsilon=1.0)
    params = {**full.params, "W2": full.params["W2"] * np.array([0.0, 1.0, 1.0])}
    wrong = Solution(full.arch, params, data)
    yield printed(equal("trace with one zero label of three", wrong.trace, floor))


@claim(
    "wen2023.footnote5",
    "Appendix A.4.1, footnote 5",
    "identity",
    "Where one neuron alone is active and above ε, ∇_{W1} f = 0: h/‖h‖ does not change.",
)
def footnote_5(trial: Trial) -> Iterator[Line]:
    data = sphere(d=5, n=6, seed=trial.seed, n_test=0)
    made = layer_norm_memorising(from_arrays(data.x_train, np.ones(6)), ln_epsilon=0.01)
    first = made.gradients()[:, : made.params["W1"].size + 6]
    yield near_zero("largest derivative by W1 and b1 at 6 training points", np.abs(first).max())
    yield equal("and the squared gradient by W2", np.sum(made.gradients() ** 2) / 6, 1)
