"""Section 2: what λ_max measures, and that rescaling can make it arbitrarily large."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from ...measures.average_sharpness import AverageSharpness
from ...measures.keskar import Keskar
from ...measures.sam_sharpness import SamSharpness
from ...models import TwoLayer
from ...theory.solution import Array
from ..contract import Line, Trial, above, at_least, at_most, claim, equal, near_zero, slope
from ..instances import Quadratic, measured, random_data, random_interpolator, reading


@claim(
    "kaur2022.dinh",
    "Sections 1 and 2",
    "rate",
    "For a ReLU network (αθ1, θ2/α) is the same function for every α > 0, while λ_max of the loss "
    "grows like α² as α → ∞",
)
def rescaling(trial: Trial) -> Iterator[Line]:
    """Rescale an interpolating network without bias."""
    rng = trial.rng("dinh")
    data = random_data(rng, 8, 5)
    net = random_interpolator(rng, TwoLayer(width=12, bias=False), data)
    far = rng.normal(size=(200, 5))
    alphas = (10.0, 30.0, 100.0, 300.0)
    nets = [net.with_params(W1=a * net.params["W1"], W2=net.params["W2"] / a) for a in alphas]
    change = max(float(np.max(np.abs(one.outputs(far) - net.outputs(far)))) for one in nets)
    size = float(np.max(np.abs(net.outputs(far))))
    yield near_zero(
        "n=8, d=5, m=12: largest relative change of f at 200 points, α = 10 … 300",
        change / size,
        1e-12,
    )
    top = [float(np.linalg.eigvalsh(one.hessian())[-1]) for one in nets]
    yield slope("exponent of λ_max over α = 10, 30, 100, 300", alphas, top, near=2.0, within=0.01)


@claim(
    "kaur2022.lmax_vs_trace",
    "Section 2, Metrics for flatness",
    "identity",
    "At a minimum λ_max is the worst rise of the loss and the trace the expected one: "
    "2 max_{‖ε‖≤ρ} ΔL/ρ² → λ_max with an error of order ρ, 2 E ΔL/ρ² → Tr ∇²L for ε ~ N(0, ρ²I)",
)
def worst_and_expected(trial: Trial) -> Iterator[Line]:
    """Measure both rises on a tanh network and compare them with its dense Hessian."""
    rng = trial.rng("lmax-vs-trace")
    data = random_data(rng, 8, 3)
    net = random_interpolator(rng, TwoLayer(width=12, activation="tanh"), data)
    values = np.linalg.eigvalsh(net.hessian())
    top, trace = float(values[-1]), float(values.sum())
    radii, errors = (0.03, 0.01, 0.003, 0.001), []
    for rho in radii:
        worst = SamSharpness(rho=rho, steps=100, restarts=3)
        errors.append(abs(2 * reading(worst, net, trial.seed) / rho**2 / top - 1))
    yield near_zero("tanh, p=60, n=8: |2 max ΔL/ρ²/λ_max − 1| at ρ = 0.001", errors[-1], 0.002)
    yield at_most(
        "that error over ρ, largest over ρ = 0.03 … 0.001",
        max(error / rho for rho, error in zip(radii, errors, strict=True)),
        1.0,
    )
    sigma = 0.001
    average = AverageSharpness(sigma=sigma, tolerance=0.04, max_products=2000)
    mean = measured(average, net, trial.seed)
    yield at_most(
        "|E ΔL − ½ρ² Tr| at ρ = 0.001, in standard errors",
        abs(float(mean.value) - sigma**2 * trace / 2) / float(mean.stderr),
        4.5,
    )
    yield above("Tr over λ_max: the two measures differ", trace / top, 1.05)


@claim(
    "kaur2022.keskar_equiv",
    "Section 2, λ_max as a metric for flatness",
    "inequality",
    "In the quadratic model at a minimum the largest rise in a ball of radius ε is ½ε²λ_max, but "
    "in the box |ε_i| ≤ ε, which Keskar et al. take, it is anything from ½ε²λ_max to p times that",
    note="Equivalent to a scaled λ_max in the ball; in the box only within a factor p.",
)
def box_and_ball(trial: Trial) -> Iterator[Line]:
    """Enumerate the corners of the box, where a convex function is largest."""
    rng, p = trial.rng("keskar"), 10
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=p)))

    def factor(H: Array) -> float:
        """Return the largest ½εᵀHε on the unit box over ½λ_max."""
        rise = np.einsum("ki,ij,kj->k", corners, H, corners, optimize=True)
        return float(rise.max() / np.linalg.eigvalsh(H)[-1])

    count = trial.size(200, 2000)
    found = [factor(_random_psd(rng, p)) for _ in range(count)]
    yield at_least(f"least factor over {count} random H, p=10, ranks 1 to 10", min(found), 1.0)
    yield at_most("largest factor, at most p", max(found), p)
    axis, diagonal = np.zeros((p, p)), np.full((p, p), 1 / p)
    axis[0, 0] = 1.0
    yield equal("factor of H = e1 e1ᵀ, the least", factor(axis), 1.0)
    yield equal("factor of H = 11ᵀ/p with the same λ_max, the largest", factor(diagonal), p)
    H, epsilon = _random_psd(rng, p), 1e-3
    model = Quadratic(np.zeros(p), H)
    search = Keskar(epsilon=epsilon, restarts=40, iterations=30)
    exact = epsilon**2 / 2 * factor(H) * float(np.linalg.eigvalsh(H)[-1])
    yield equal(
        "flatlab's Keskar sharpness of one H over the largest corner",
        reading(search, model, trial.seed) / 100 / exact,
        1.0,
        rel=1e-6,
    )
    ball = SamSharpness(rho=epsilon, steps=2000, restarts=3)
    yield equal(
        "its sharpness in the ball over ½ε²λ_max",
        2 * reading(ball, model, trial.seed) / epsilon**2 / float(np.linalg.eigvalsh(H)[-1]),
        1.0,
        rel=1e-6,
    )


def _random_psd(rng: np.random.Generator, p: int) -> Array:
    root = rng.normal(size=(p, int(rng.integers(1, p + 1))))
    return np.asarray(root @ root.T)
