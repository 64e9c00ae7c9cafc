"""Section 5: simplified LayerNorm, where a flattest minimum may memorise or generalise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data import cube, from_arrays, sphere, xor
from ...models import TwoLayer
from ...theory.bounds import layer_norm_floor
from ...theory.constructions import layer_norm_four_neurons, layer_norm_memorising
from ...theory.interpolators import flattened, random_interpolators
from ...theory.predicates import is_memorising
from ..contract import Line, Trial, at_least, claim, equal, near_zero, true


@claim(
    "wen2023.thm5.1",
    "Section 5, Theorem 5.1",
    "construction",
    "For extreme points, labels that are not zero and small ε a width-n network with simplified "
    "LayerNorm memorises and has the least Tr ∇²L, (2/n) Σ min(1, (2/ε)‖x'_i‖|y_i|).",
    note="How it goes wrong as printed for larger ε and zero labels: wen2023.thm5.1.construction.",
)
def theorem_5_1(trial: Trial) -> Iterator[Line]:
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
        yield at_least(
            f"least trace over floor of {len(found)} interpolating networks, 2 of them descended, "
            f"ε = {epsilon:g}",
            least, 1,
        )  # fmt: skip


@claim(
    "wen2023.prop5.1",
    "Section 5, Proposition 5.1",
    "construction",
    "With simplified LayerNorm the memorising network on distinct xor points has Tr ∇²L = 2, the "
    "least possible, and the zero-one error 1 − n/2^d.",
    errata=("E12",),
)
def proposition_5_1(trial: Trial) -> Iterator[Line]:
    whole = cube(6)
    x = whole[trial.rng("prop5.1").permutation(64)[:20]]
    data = from_arrays(x, x[:, 0] * x[:, 1], whole, whole[:, 0] * whole[:, 1])
    made = layer_norm_memorising(data, ln_epsilon=0.01)
    yield equal("trace, d = 6, n = 20, ε = 0.01", made.trace, 2)
    yield equal("the floor", layer_norm_floor(data, 0.01), 2)
    yield true("it memorises", is_memorising(made))
    yield equal("zero-one error on the cube, against 1 − 20/64", made.error(), 1 - 20 / 64)


@claim(
    "wen2023.prop5.2",
    "Section 5, Proposition 5.2 and eq. (18)",
    "construction",
    "With simplified LayerNorm and width at least 4 there is a flattest minimum that is x1·x2 on "
    "the whole cube.",
    errata=("E13", "E17"),
)
def proposition_5_2(trial: Trial) -> Iterator[Line]:
    whole = cube(6)
    data = xor(d=6, n=24, seed=trial.seed, n_test=0)
    made = layer_norm_four_neurons(data, ln_epsilon=0.01)
    yield equal("trace, d = 6, ε = 0.01", made.trace, 2)
    error = np.abs(made.outputs(whole) - whole[:, 0] * whole[:, 1]).max()
    yield near_zero("largest |f − x1x2| on the cube", error)
