"""Section 3 and Appendix A.1: how SAM is related to λ_max; the figures, decided by training."""

from __future__ import annotations

import copy

import numpy as np
import torch
from scipy.optimize import brentq, minimize_scalar

from ...losses import Loss
from ...measures.sam_sharpness import SamSharpness
from ...models import TwoLayer
from ...optim import SAM
from ...problem import Problem
from ...theory.solution import Array
from ..contract import Trial, by_experiment, claim, not_checkable, printed
from ..instances import Quadratic, random_data, random_network, reading
from ..lines import Lines, above, at_least, at_most, below, equal, near_zero, slope


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
        shift = brentq(excess, least, high * (1 + 1e-9), xtol=1e-15, rtol=1e-14)
        inside = c / (low + shift - values)
    epsilon = vectors @ inside
    return float(g @ epsilon + epsilon @ H @ epsilon / 2), epsilon


def bound(g: Array, H: Array, rho: float) -> float:
    """Return ρ‖g‖ + ½ρ² max(λ_max, 0)."""
    return float(rho * np.linalg.norm(g) + rho**2 / 2 * max(np.linalg.eigvalsh(H)[-1], 0.0))


@claim("kaur2022.eq1", "Appendix A.1, eq. (1)", "definition",
       "SAM's problem is min_w max_{‖ε‖≤ρ} L(w + ε) + γ‖w‖²; for L = ½h(w − c)² the minimiser is c "
       "itself while 2γ|c| ≤ hρ, and sign(c)h(|c| + ρ)/(h + 2γ) beyond")  # fmt: skip
def objective(trial: Trial) -> Lines:
    rng = trial.rng("eq1")
    worst, inside, count = 0.0, 0, 40
    for _ in range(count):
        h, c, rho, decay = rng.uniform(0.5, 2), rng.normal(), rng.uniform(0.1, 1), rng.uniform(0, 1)
        steps = np.linspace(-rho, rho, 201)

        def value(
            w: float, h: float = h, c: float = c, decay: float = decay, steps: Array = steps
        ) -> float:
            return float(np.max(h / 2 * (w + steps - c) ** 2) + decay * w**2)

        found = minimize_scalar(value, bounds=(-10, 10), options={"xatol": 1e-10}).x
        held = 2 * decay * abs(c) <= h * rho
        inside += held
        right = c if held else np.sign(c) * h * (abs(c) + rho) / (h + 2 * decay)
        worst = max(worst, abs(found - right))
    yield near_zero(f"largest error of the minimiser over {count} random (h, c, ρ, γ)", worst, 1e-6)
    yield at_least("of these, with the minimiser held at c", inside, 5)
    yield at_least("and with it moved", count - inside, 5)


@claim("kaur2022.sec3.3.local_min", "Section 3.3", "identity",
       "For a quadratic L with ∇L = 0 and λ_max ≥ 0, max_{‖ε‖≤ρ} L(w + ε) = L(w) + "
       "½ρ²λ_max")  # fmt: skip
def at_a_minimum(trial: Trial) -> Lines:
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
    yield near_zero(f"{count} random H ⪰ 0, p=10: |rise/(½ρ²λ_max) − 1| by ascent", worst, 1e-6)
    yield at_most("largest share of it at 1,000 random points each", highest, 1.0)


@claim("kaur2022.A1.bound", "Appendix A.1 and Section 3.3", "inequality",
       "In the quadratic model max_{‖ε‖≤ρ} L(w + ε) ≤ L(w) + ρ‖∇L‖ + ½ρ² max(λ_max(∇²L), 0)",
       as_printed="the same with λ_max in place of max(λ_max, 0), by way of ε̂ᵀ∇L ε̂ ≤ λ_max, "
       "where ∇²L is meant", errata=("K1", "K2"))  # fmt: skip
def upper_bound(trial: Trial) -> Lines:
    """Solve the inner problem exactly for random gradients and Hessians of any sign."""
    rng, p = trial.rng("A1"), 6
    count, ratios, negative, feasible, stationary = trial.size(1000, 10_000), [], 0, 0.0, 0.0
    for _ in range(count):
        g, A = rng.normal(size=p), rng.normal(size=(p, p))
        H = (A + A.T) / 2 + rng.normal() * 2 * np.eye(p)  # its spectrum is shifted up or down
        rho = float(np.exp(rng.normal()))
        rise, epsilon = largest_rise(g, H, rho)
        feasible = max(feasible, float(np.linalg.norm(epsilon)) / rho)
        slope_ = g + H @ epsilon  # is a multiple of ε at a maximum on the sphere
        along = epsilon * (slope_ @ epsilon) / (epsilon @ epsilon)
        stationary = max(stationary, float(np.linalg.norm(slope_ - along)))
        ratios.append(rise / bound(g, H, rho))
        negative += bool(np.linalg.eigvalsh(H)[-1] < 0)
    yield near_zero("the exact maximiser: largest ‖ε‖/ρ − 1", max(feasible - 1, 0), 1e-9)
    yield near_zero("and largest tangential slope there", stationary, 1e-6)
    what = f"largest maximum/bound, {count:,} random (g, H, ρ), p=6, {negative} with λ_max < 0"
    yield at_most(what, max(ratios), 1.0)
    root = rng.normal(size=(p, p))
    H = root @ root.T
    _, vectors = np.linalg.eigh(H)
    g = 2 * vectors[:, -1]
    yield equal("maximum/bound for g along the top eigenvector of H ⪰ 0: tight",
                largest_rise(g, H, 0.5)[0] / bound(g, H, 0.5), 1.0)  # fmt: skip
    climb, g = SamSharpness(rho=0.5, steps=3000, restarts=3), g + 0.1
    found = reading(climb, Quadratic(g, H), trial.seed) / largest_rise(g, H, 0.5)[0]
    yield equal("flatlab's ascent in the ball over the exact maximum", found, 1.0, rel=1e-6)
    one, minus = np.array([1.0]), np.array([[-1.0]])
    rise = largest_rise(one, minus, 2.0)[0]
    yield at_most("g = 1, H = −1, ρ = 2: the maximum", rise, bound(one, minus, 2.0))
    yield printed(at_most("g = 1, H = −1, ρ = 2: the maximum, against ρ‖g‖ + ½ρ²λ_max", rise, 0.0))


trained_bound = by_experiment("kaur2022.A1.trained", "Appendix A.1 and Section 3.3",
    "At trained networks the loss rises within ρ = 0.05 by at most ρ‖∇L‖ + ½ρ² max(λ_max, 0)",
    "kaur2022/measures",
    note="The bound is of second order, so the loss may exceed it. The rise is the largest that "
    "ascent finds: a ratio above 1 refutes, one below 1 does not prove.")  # fmt: skip


@claim("kaur2022.sam_first_order", "Section 3.3", "rate",
       "SAM penalises a proxy of ρ‖∇L‖: the gradient it descends, ∇L(θ + ρ∇L/‖∇L‖), is that of L + "
       "ρ‖∇L‖ up to an error of order ρ²")  # fmt: skip
def first_order(trial: Trial) -> Lines:
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
    yield slope("tanh, p=60, n=12: exponent of the error", radii, second, near=2.0, within=0.1)
    ratio = [error / rho**2 for rho, error in zip(radii, second, strict=True)]
    yield at_most("error/ρ², largest over least", max(ratio) / min(ratio), 2.0)
    yield slope("exponent without the term ρ∇‖∇L‖", radii, first, near=1.0, within=0.1)


_ANALOGUE = "The paper trains VGG11 on CIFAR-10; the preset lab is a small analogue of the shape."

FIGURES = tuple(
    by_experiment(f"kaur2022.{figure}", where, says, note=_ANALOGUE)
    for figure, where, says in (
        ("fig1", "Figure 1 and Section 3.1",
         "A larger learning rate gives a smaller λ_max at small and at large batch size, and a "
         "better test accuracy at the small one only; at the large one λ_max ≈ 2/η"),
        ("fig2", "Figure 2 and Section 3.1 (iv)",
         "Runs of small and large batch size with the same λ_max have different test accuracies, "
         "the better ones at the small batch size"),
        ("fig3", "Figure 3",
         "As the batch size grows, the gain in accuracy from a large learning rate gradually "
         "vanishes, while λ_max still falls with the learning rate"),
        ("fig4", "Figure 4 and Section 3.2",
         "At a fixed ratio α = B/η of batch size and learning rate the test accuracy is similar, "
         "while λ_max is larger at small B"),
        ("fig5", "Figure 5",
         "At a fixed α = B/η = 20,000, which is 100/0.005 and 500/0.025, the larger learning "
         "rate has the smaller λ_max throughout training"),
        ("fig6", "Figure 6 and Section 3.3",
         "A larger radius ρ of SAM gives a smaller λ_max at every batch size, and a better test "
         "accuracy at small batch size only (η = 0.005)"),
        ("fig7", "Figure 7 and Section 3.3",
         "As Figure 6 at the large learning rate η = 0.05"),
        ("fig8", "Figure 8 and Section 3.4",
         "More dropout gives a smaller λ_max, measured with dropout off, while the test accuracy "
         "is best near p = 0.2 (small batch size)"),
        ("fig9", "Figure 9 and Section 3.4",
         "As Figure 8 at the large batch size"),
    )
)  # fmt: skip
fig10 = by_experiment("kaur2022.fig10", "Figure 10 and Section 3.5",
    "BatchNorm changes the test accuracy at a given learning rate and hardly λ_max; with it λ_max "
    "is lower at small learning rates (small batch size)", note=_ANALOGUE,
    as_printed="λ_max of normalized networks is 'lower higher' at small learning rates; by the "
    "next sentence it is lower", errata=("K3",))  # fmt: skip
fig11 = by_experiment("kaur2022.fig11", "Figure 11 and Section 3.5",
    "As Figure 10 at the large batch size, where λ_max is about 2/η with and without BatchNorm",
    note=_ANALOGUE)  # fmt: skip


@claim("kaur2022.fig10.between", "Section 3.5 (i)", "identity",
       "Where successive iterates straddle a valley, λ_max is to be taken between them, as the "
       "largest over eight even points: for L = ½λx² − ¼x⁴ and 2 < ηλ < 3 descent alternates "
       "between ±√(λ − 2/η), where L'' = 6/η − 2λ < 2/η, and the eight points find λ − (3/49)(λ − "
       "2/η) > 2/η")  # fmt: skip
def between_iterates(trial: Trial) -> Lines:
    lr = 0.1
    curvature = float(trial.rng("between").uniform(2.1, 2.8)) / lr

    def second(x: float) -> float:
        return curvature - 3 * x**2

    x = 1e-3
    for _ in range(5000):
        x -= lr * (curvature * x - x**3)
    after = x - lr * (curvature * x - x**3)
    yield equal(f"η = 0.1, λ = {curvature:.3f}: |x|", abs(x), np.sqrt(curvature - 2 / lr))
    yield equal("x and the next iterate are opposite: their ratio", after / x, -1.0)
    yield equal("L'' at the iterates", second(x), 6 / lr - 2 * curvature, rel=1e-8)
    yield below("which is below 2/η = 20", second(x), 2 / lr)
    largest = max(second(point) for point in np.linspace(x, after, 8))
    yield equal("largest L'' at eight even points between", largest,
                curvature - 3 / 49 * (curvature - 2 / lr), rel=1e-8)  # fmt: skip
    yield above("which is above 2/η", largest, 2 / lr)


granziol = not_checkable("kaur2022.granziol", "Section 2, Known issues", "empirical",
    "L2 regularisation can lead to minima of larger λ_max that generalise well",
    "An observation cited from Granziol (2020), whose set-up is not in the source.")  # fmt: skip
zhang = not_checkable("kaur2022.zhang", "Section 2, Known issues", "empirical",
    "The correlation of the Hessian's norm with generalisation breaks down from SGD to Adam",
    "An observation cited from Zhang et al. (2021), whose set-up is not in the "
    "source.")  # fmt: skip
