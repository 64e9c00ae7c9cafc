"""Section 3.3 and Appendix A.1: how SAM's objective is related to λ_max."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from scipy.optimize import brentq, minimize_scalar

from ...losses import Loss
from ...measures.sam_sharpness import SamSharpness
from ...models import TwoLayer
from ...optim import SAM
from ...problem import Problem
from ...theory.solution import Array
from ..contract import Line, Trial, at_least, at_most, claim, equal, near_zero, printed, slope
from ..instances import Quadratic, random_data, random_network, reading


def largest_rise(g: Array, H: Array, rho: float) -> tuple[float, Array]:
    """Return the maximum of gᵀε + ½εᵀHε over ‖ε‖ ≤ ρ and its maximiser, from the secular equation.

    If H < 0 and −H⁻¹g lies in the ball, that is the maximiser. Otherwise it is (μI − H)⁻¹g with the
    μ ≥ max(λ_max, 0) that makes its length ρ. g must not be orthogonal to the top eigenvector.
    """
    values, vectors = np.linalg.eigh(H)
    c = vectors.T @ g
    if values[-1] < 0 and np.linalg.norm(c / values) <= rho:
        inside = -c / values
    else:
        low = max(float(values[-1]), 0.0)

        def excess(shift: float) -> float:
            return float(np.linalg.norm(c / (low + shift - values))) - rho

        high = float(np.linalg.norm(g)) / rho
        least = 1e-14 * (high + abs(low))
        inside = c / (
            low + brentq(excess, least, high * (1 + 1e-9), xtol=1e-15, rtol=1e-14) - values
        )
    epsilon = vectors @ inside
    return float(g @ epsilon + epsilon @ H @ epsilon / 2), epsilon


def bound(g: Array, H: Array, rho: float) -> float:
    """Return ρ‖g‖ + ½ρ² max(λ_max, 0)."""
    return float(rho * np.linalg.norm(g) + rho**2 / 2 * max(np.linalg.eigvalsh(H)[-1], 0.0))


def _symmetric(rng: np.random.Generator, p: int) -> Array:
    """Return a random symmetric matrix with its spectrum shifted up or down."""
    A = rng.normal(size=(p, p))
    return np.asarray((A + A.T) / 2 + rng.normal() * 2 * np.eye(p))


@claim(
    "kaur2022.eq1",
    "Appendix A.1, eq. (1)",
    "definition",
    "SAM's problem is min_w max_{‖ε‖≤ρ} L(w + ε) + γ‖w‖²; for L = ½h(w − c)² the minimiser is c "
    "itself while 2γ|c| ≤ hρ, and sign(c)h(|c| + ρ)/(h + 2γ) beyond",
)
def objective(trial: Trial) -> Iterator[Line]:
    """Solve the problem of one weight numerically, the inner maximum over a grid."""
    rng = trial.rng("eq1")
    worst, inside, count = 0.0, 0, 40
    for _ in range(count):
        h, c, rho, decay = rng.uniform(0.5, 2), rng.normal(), rng.uniform(0.1, 1), rng.uniform(0, 1)
        steps = np.linspace(-rho, rho, 201)

        def value(
            w: float, h: float = h, c: float = c, decay: float = decay, steps: Array = steps
        ) -> float:
            return float(np.max(h / 2 * (w + steps - c) ** 2) + decay * w**2)

        found = minimize_scalar(
            value, bounds=(-10, 10), method="bounded", options={"xatol": 1e-10}
        ).x
        held = 2 * decay * abs(c) <= h * rho
        inside += held
        right = c if held else np.sign(c) * h * (abs(c) + rho) / (h + 2 * decay)
        worst = max(worst, abs(found - right))
    yield near_zero(f"largest error of the minimiser over {count} random (h, c, ρ, γ)", worst, 1e-6)
    yield at_least("of these, with the minimiser held at c", inside, 5)
    yield at_least("and with it moved", count - inside, 5)


@claim(
    "kaur2022.sec3.3.local_min",
    "Section 3.3",
    "identity",
    "For a quadratic L with ∇L = 0 and λ_max ≥ 0, max_{‖ε‖≤ρ} L(w + ε) = L(w) + ½ρ²λ_max",
)
def at_a_minimum(trial: Trial) -> Iterator[Line]:
    """Climb in the ball on random quadratics."""
    rng, p, rho, worst = trial.rng("local-min"), 10, 0.3, 0.0
    highest, count = 0.0, trial.size(10, 100)
    for _ in range(count):
        root = rng.normal(size=(p, p))
        H = root @ root.T
        top = float(np.linalg.eigvalsh(H)[-1])
        climb = SamSharpness(rho=rho, steps=5000, restarts=3)
        rise = reading(climb, Quadratic(np.zeros(p), H), trial.seed)
        worst = max(worst, abs(2 * rise / rho**2 / top - 1))
        points = rng.normal(size=(1000, p))
        points *= rho / np.linalg.norm(points, axis=1, keepdims=True)
        rises = np.einsum("ki,ij,kj->k", points, H, points) / 2
        highest = max(highest, float(rises.max() / (rho**2 * top / 2)))
    yield near_zero(
        f"{count} random H ⪰ 0, p=10: largest |found/(½ρ²λ_max) − 1| by ascent", worst, 1e-6
    )
    yield at_most("largest share of it at 1,000 random points each", highest, 1.0)


@claim(
    "kaur2022.A1.bound",
    "Appendix A.1 and Section 3.3",
    "inequality",
    "In the quadratic model max_{‖ε‖≤ρ} L(w + ε) ≤ L(w) + ρ‖∇L‖ + ½ρ² max(λ_max(∇²L), 0)",
    as_printed="the same with λ_max in place of max(λ_max, 0), by way of ε̂ᵀ∇L ε̂ ≤ λ_max, where ∇²L "
    "is meant",
    errata=("K1", "K2"),
)
def upper_bound(trial: Trial) -> Iterator[Line]:
    """Solve the inner problem exactly for random gradients and Hessians of any sign."""
    rng, p = trial.rng("A1"), 6
    count, ratios, negative, feasible, stationary = trial.size(1000, 10_000), [], 0, 0.0, 0.0
    for _ in range(count):
        g, H, rho = rng.normal(size=p), _symmetric(rng, p), float(np.exp(rng.normal()))
        rise, epsilon = largest_rise(g, H, rho)
        feasible = max(feasible, float(np.linalg.norm(epsilon)) / rho)
        slope_ = g + H @ epsilon  # is a multiple of ε at a maximum on the sphere
        along = epsilon * (slope_ @ epsilon) / (epsilon @ epsilon)
        stationary = max(stationary, float(np.linalg.norm(slope_ - along)))
        ratios.append(rise / bound(g, H, rho))
        negative += bool(np.linalg.eigvalsh(H)[-1] < 0)
    yield near_zero(
        "the exact maximiser: largest ‖ε‖/ρ − 1, none outside", max(feasible - 1, 0), 1e-9
    )
    yield near_zero("and largest tangential slope there", stationary, 1e-6)
    yield at_most(
        f"largest maximum/bound, {count:,} random (g, H, ρ), p=6, {negative} with λ_max < 0",
        max(ratios),
        1.0,
    )
    root = rng.normal(size=(p, p))
    H = root @ root.T
    _, vectors = np.linalg.eigh(H)
    g = 2 * vectors[:, -1]
    yield equal(
        "maximum/bound for g along the top eigenvector of H ⪰ 0: tight",
        largest_rise(g, H, 0.5)[0] / bound(g, H, 0.5),
        1.0,
    )
    climb = SamSharpness(rho=0.5, steps=3000, restarts=3)
    yield equal(
        "flatlab's ascent in the ball over the exact maximum",
        reading(climb, Quadratic(g + 0.1, H), trial.seed) / largest_rise(g + 0.1, H, 0.5)[0],
        1.0,
        rel=1e-6,
    )
    one, minus = np.array([1.0]), np.array([[-1.0]])
    rise = largest_rise(one, minus, 2.0)[0]
    yield at_most("g = 1, H = −1, ρ = 2: the maximum", rise, bound(one, minus, 2.0))
    yield printed(at_most("g = 1, H = −1, ρ = 2: the maximum, against ρ‖g‖ + ½ρ²λ_max", rise, 0.0))


@claim(
    "kaur2022.sam_first_order",
    "Section 3.3",
    "rate",
    "SAM penalises a proxy of ρ‖∇L‖: the gradient it descends, ∇L(θ + ρ∇L/‖∇L‖), is that of "
    "L + ρ‖∇L‖ up to an error of order ρ²",
)
def first_order(trial: Trial) -> Iterator[Line]:
    """Take one step of SAM at many radii and compare it with ∇L + ρ ∇²L ∇L/‖∇L‖."""
    rng = trial.rng("sam-first-order")
    data = random_data(rng, 12, 3)
    net = random_network(rng, TwoLayer(width=12, activation="tanh"), data)
    problem = Problem(net.module, "mse", data)
    _, gradient = problem.value_and_gradient()
    turned = problem.matrix("hessian") @ gradient / gradient.norm()
    x, y = torch.tensor(data.x_train), torch.tensor(data.y_train)

    def descended(rho: float) -> torch.Tensor:
        """Return what one step of SAM with learning rate 1 subtracts from θ."""
        model = copy.deepcopy(net.module)
        optimizer = SAM(model.parameters(), lr=1.0, rho=rho)

        def closure() -> torch.Tensor:
            loss = Loss("mse").torch(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        return problem.theta - after

    radii = (0.1, 0.03, 0.01, 0.003, 0.001)
    second = [float((descended(rho) - gradient - rho * turned).norm()) for rho in radii]
    first = [float((descended(rho) - gradient).norm()) for rho in radii]
    yield slope(
        "tanh, p=60, n=12: exponent of the error over ρ = 0.1 … 0.001",
        radii,
        second,
        near=2.0,
        within=0.1,
    )
    ratio = [error / rho**2 for rho, error in zip(radii, second, strict=True)]
    yield at_most("error/ρ², largest over least", max(ratio) / min(ratio), 2.0)
    yield slope("exponent without the term ρ∇‖∇L‖", radii, first, near=1.0, within=0.1)
