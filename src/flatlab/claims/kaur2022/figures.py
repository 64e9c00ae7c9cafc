"""Figures 1 to 11 and cited observations, which training decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..contract import Line, Trial, above, below, by_experiment, claim, equal, not_checkable

_ANALOGUE = "The paper trains VGG11 on CIFAR-10; the experiment is a small analogue of the shape."

fig1 = by_experiment(
    "kaur2022.fig1",
    "Figure 1 and Section 3.1",
    "A larger learning rate gives a smaller λ_max at small and at large batch size, and a better "
    "test accuracy at the small one only; at the large one λ_max ≈ 2/η",
    "kaur2022/fig1",
    note=_ANALOGUE,
)
fig2 = by_experiment(
    "kaur2022.fig2",
    "Figure 2 and Section 3.1 (iv)",
    "Runs of small and large batch size with the same λ_max have different test accuracies, the "
    "better ones at the small batch size",
    "kaur2022/fig2",
    note=_ANALOGUE,
)
fig3 = by_experiment(
    "kaur2022.fig3",
    "Figure 3",
    "As the batch size grows, the gain in accuracy from a large learning rate gradually vanishes, "
    "while λ_max still falls with the learning rate",
    "kaur2022/fig3",
    note=_ANALOGUE,
)
fig4 = by_experiment(
    "kaur2022.fig4",
    "Figure 4 and Section 3.2",
    "At a fixed ratio α = B/η of batch size and learning rate the test accuracy is similar, while "
    "λ_max is larger at small B",
    "kaur2022/fig4",
    note=_ANALOGUE,
)
fig5 = by_experiment(
    "kaur2022.fig5",
    "Figure 5",
    "At a fixed α = B/η = 20,000, which is 100/0.005 and 500/0.025, the larger learning rate has "
    "the smaller λ_max throughout training",
    "kaur2022/fig5",
    note=_ANALOGUE,
)
fig6 = by_experiment(
    "kaur2022.fig6",
    "Figure 6 and Section 3.3",
    "A larger radius ρ of SAM gives a smaller λ_max at every batch size, and a better test "
    "accuracy at small batch size only (η = 0.005)",
    "kaur2022/fig6",
    note=_ANALOGUE,
)
fig7 = by_experiment(
    "kaur2022.fig7",
    "Figure 7 and Section 3.3",
    "As Figure 6 at the large learning rate η = 0.05",
    "kaur2022/fig7",
    note=_ANALOGUE,
)
fig8 = by_experiment(
    "kaur2022.fig8",
    "Figure 8 and Section 3.4",
    "More dropout gives a smaller λ_max, measured with dropout off, while the test accuracy is "
    "best near p = 0.2 (small batch size)",
    "kaur2022/fig8",
    note=_ANALOGUE,
)
fig9 = by_experiment(
    "kaur2022.fig9",
    "Figure 9 and Section 3.4",
    "As Figure 8 at the large batch size",
    "kaur2022/fig9",
    note=_ANALOGUE,
)
fig10 = dataclasses.replace(
    by_experiment(
        "kaur2022.fig10",
        "Figure 10 and Section 3.5",
        "BatchNorm changes the test accuracy at a given learning rate and hardly λ_max; with it "
        "λ_max is lower at small learning rates (small batch size)",
        "kaur2022/fig10",
        note=_ANALOGUE,
    ),
    as_printed="λ_max of normalized networks is 'lower higher' at small learning rates; by the "
    "next sentence it is lower",
    errata=("K3",),
)
fig11 = by_experiment(
    "kaur2022.fig11",
    "Figure 11 and Section 3.5",
    "As Figure 10 at the large batch size, where λ_max is about 2/η with and without BatchNorm",
    "kaur2022/fig11",
    note=_ANALOGUE,
)


@claim(
    "kaur2022.fig10.between",
    "Section 3.5 (i)",
    "identity",
    "Where successive iterates straddle a valley, λ_max is to be taken between them, as the "
    "largest over eight even points: for L = ½λx² − ¼x⁴ and 2 < ηλ < 3 descent alternates between "
    "±√(λ − 2/η), where L'' = 6/η − 2λ < 2/η, and the eight points find λ − (3/49)(λ − 2/η) > 2/η",
)
def between_iterates(trial: Trial) -> Iterator[Line]:
    """Descend until the iterates alternate, and evaluate L'' between two successive ones."""
    lr = 0.1
    curvature = float(trial.rng("between").uniform(2.1, 2.8)) / lr

    def second(x: float) -> float:
        return curvature - 3 * x**2

    x = 1e-3
    for _ in range(5000):
        x -= lr * (curvature * x - x**3)
    after = x - lr * (curvature * x - x**3)
    yield equal(
        f"η = 0.1, λ = {curvature:.3f}: the iterates, |x|", abs(x), np.sqrt(curvature - 2 / lr)
    )
    yield equal("x and the next iterate are opposite: their ratio", after / x, -1.0)
    yield equal("L'' at the iterates", second(x), 6 / lr - 2 * curvature, rel=1e-8)
    yield below("which is below 2/η = 20", second(x), 2 / lr)
    largest = max(second(point) for point in np.linspace(x, after, 8))
    yield equal(
        "largest L'' at eight even points between",
        largest,
        curvature - 3 / 49 * (curvature - 2 / lr),
        rel=1e-8,
    )
    yield above("which is above 2/η", largest, 2 / lr)


granziol = not_checkable(
    "kaur2022.granziol",
    "Section 2, Known issues",
    "empirical",
    "L2 regularisation can lead to minima of larger λ_max that generalise well",
    "An observation cited from Granziol (2020), whose set-up is not in the source.",
)
zhang = not_checkable(
    "kaur2022.zhang",
    "Section 2, Known issues",
    "empirical",
    "The correlation of the Hessian's norm with generalisation breaks down from SGD to Adam",
    "An observation cited from Zhang et al. (2021), whose set-up is not in the source.",
)
