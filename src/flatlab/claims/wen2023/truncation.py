"""Appendix A.2.3: the truncated loss, and the part that truncation removes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data import sphere
from ...data.dataset import Array
from ...losses import Loss
from ...measures.path_norm import PathNorm
from ...models.chains import TwoLayer
from ...theory.solution import Solution
from ..contract import Line, Trial, above, at_least, at_most, claim, near_zero, printed
from ..instances import reading
from ._no_bias_networks import gaussian, seed_of, teacher_of, uneven_network


@claim(
    "wen2023.eq15", "Appendix A.2.3, eq. (15)", "definition",
    "ℓ_c(z) = z² for |z| ≤ c, −z² + 4c|z| − 2c² for c ≤ |z| ≤ 2c and 2c² beyond is once "
    "continuously differentiable, 2-smooth, and 0 ≤ ℓ_c ≤ min(z², 2c²)",
)  # fmt: skip
def eq15(trial: Trial) -> Iterator[Line]:
    """Evaluate the truncated loss of `flatlab.losses` on grids around its joints."""
    grid = np.linspace(-3, 3, trial.size(20_001, 200_001))
    for c in (0.3, 1.7):
        z = c * grid
        loss = Loss(name="truncated_mse", cutoff=c)
        value, first, _ = loss.values(z, np.zeros_like(z))
        size = np.abs(z)
        middle = (size >= c) & (size <= 2 * c)
        expected = np.where(size < c, z**2, np.where(middle, -(z**2) + 4 * c * size - 2 * c**2,
                                                     2 * c**2))  # fmt: skip
        name = f"c = {c}, {len(z)} points of [−3c, 3c]"
        yield near_zero(f"largest error of the loss against the formula, {name}",
                        np.abs(value - expected).max(), 1e-12)  # fmt: skip
        yield at_least("least value", value.min(), 0.0)
        excess = value - np.minimum(z**2, 2 * c**2)
        yield at_most("largest excess over min(z², 2c²)", excess.max(), 0.0)
        step = z[1] - z[0]
        yield at_most("largest |ℓ'(z) − ℓ'(w)|/|z − w| of neighbours",
                      np.abs(np.diff(first)).max() / step, 2.0, slack=1e-8)  # fmt: skip
        slopes = (value[2:] - value[:-2]) / (2 * step)
        yield near_zero("largest difference of ℓ' and the central difference, over the step",
                        np.abs(slopes - first[1:-1]).max() / step, 1.0)  # fmt: skip
        gap = (z**2 - value - 2 * (size - c) ** 2)[middle]
        yield near_zero("z² − ℓ_c = 2(|z| − c)² between c and 2c: largest error",
                        np.abs(gap).max(), 1e-12)  # fmt: skip


@claim(
    "wen2023.thmA.1.truncation", "Proof of Theorem A.1", "inequality",
    "E(f − y)² 1[|f − y| ≥ c] ≤ 4 E f² 1[|f| ≥ c/2] + 4 E y² 1[|y| ≥ c/2]",
    as_printed="E(f − y)² 1[|f − y| ≥ c] ≤ 2 E f² 1[|f| ≥ c] + 2 E y² 1[|y| ≥ c]",
    errata=("E23",),
)  # fmt: skip
def truncation(trial: Trial) -> Iterator[Line]:
    """Both inequalities on random numbers, a chosen pair, and two networks."""
    rng = trial.rng("truncation")

    def sides(f: Array, y: Array, c: float, share: float, factor: float) -> tuple[Array, Array]:
        left = (f - y) ** 2 * (np.abs(f - y) >= c)
        kept = [v**2 * (np.abs(v) >= share * c) for v in (f, y)]
        return left, factor * (kept[0] + kept[1])

    f, y = np.exp(rng.normal(size=(2, 100_000))) * rng.choice([-1.0, 1.0], (2, 100_000))
    left, right = sides(f, y, 1.7, 0.5, 4.0)
    yield at_most("largest left side/right side, 100,000 random pairs, c = 1.7",
                  np.max(left[left > 0] / right[left > 0]), 1.0)  # fmt: skip
    f, y = np.meshgrid(np.linspace(-5.1, 5.1, 601), np.linspace(-5.1, 5.1, 601))
    left, right = sides(f, y, 1.7, 0.5, 4.0)
    yield at_most("the same on a grid of 361,201 pairs through the thresholds",
                  np.max(left[left > 0] / right[left > 0]), 1.0)  # fmt: skip
    pair = sides(np.array([1.02]), np.array([-1.02]), 1.7, 1.0, 2.0)
    yield printed(at_most("left side at f = 0.6c, y = −0.6c, c = 1.7", pair[0][0], pair[1][0]))
    data = gaussian(rng, 1, 5, 20_000)
    network, teacher = uneven_network(rng, data, 6, 0.3), teacher_of(data)
    c = 2 * float(np.abs(teacher.outputs(data.x_test)).max())
    for name, f, cutoff in (
        ("a random network", network.outputs(data.x_test), 1.7),
        ("minus the true network", -teacher.outputs(data.x_test), 0.9 * c),
    ):
        left, right = sides(f, data.y_test, cutoff, 0.5, 4.0)
        yield at_most(f"mean over 20,000 inputs, f {name}", left.mean(), right.mean())
    left, right = sides(f, data.y_test, cutoff, 1.0, 2.0)
    yield printed(at_most("mean with f minus the true network", left.mean(), right.mean()))


@claim(
    "wen2023.thmA.1.fbound", "Proof of Theorem A.1", "inequality",
    "|f(x)| ≤ Σ_j |a_j|‖w_j‖‖x‖ for every network without bias",
)  # fmt: skip
def fbound(trial: Trial) -> Iterator[Line]:
    """The ratio of both sides over random networks and over one aligned with an input."""
    rng = trial.rng("fbound")
    data = sphere(8, 200, seed_of(rng), n_test=0)
    sizes = np.linalg.norm(data.x_train, axis=1)
    ratios = []
    for _ in range(trial.size(200, 2000)):
        network = uneven_network(rng, data, int(rng.integers(1, 10)))
        path = reading(PathNorm(), network)
        ratios.append(float(np.max(np.abs(network.outputs()) / (path * sizes))))
    yield at_most(f"largest |f|/(Σ|a_j|‖w_j‖‖x‖), {len(ratios)} random networks, 200 inputs, d = 8",
                  max(ratios), 1.0)  # fmt: skip
    top = data.x_train[0]
    W1 = rng.normal(size=(5, 8))
    for _ in range(200):
        W1 = W1 + 0.1 * top * np.linalg.norm(W1, axis=1, keepdims=True)
        network = Solution(TwoLayer(width=5, bias=False), {"W1": W1, "W2": np.ones(5)}, data)
        W1 = W1 / np.linalg.norm(W1, axis=1, keepdims=True)
    best = abs(network.outputs()[0]) / (reading(PathNorm(), network) * sizes[0])
    yield at_most("the same after turning all neurons towards one input", best, 1.0)
    yield above("so the bound is sharp", best, 0.9999)
