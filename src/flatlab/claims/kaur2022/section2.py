"""Section 2: what λ_max measures, and which minima gradient descent can stay at."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from ...data import xor
from ...measures.average_sharpness import AverageSharpness
from ...measures.eigenvalues import LambdaMax
from ...measures.keskar import Keskar
from ...measures.sam_sharpness import SamSharpness
from ...models import TwoLayer
from ...problem import Problem
from ...theory.solution import Array, Solution
from ..contract import Trial, claim
from ..instances import Quadratic, measured, random_data, random_interpolator, reading
from ..lines import Lines, above, at_least, at_most, below, equal, estimate, near_zero, slope

SETTLED = 0.05
"""Gradient descent that escaped from a minimum goes on until ‖∇L‖ is at most this."""


@claim("kaur2022.dinh", "Sections 1 and 2", "rate",
       "For a ReLU network (αθ1, θ2/α) is the same function for every α > 0, while λ_max of the "
       "loss grows like α² as α → ∞")  # fmt: skip
def rescaling(trial: Trial) -> Lines:
    rng = trial.rng("dinh")
    data = random_data(rng, 8, 5)
    net = random_interpolator(rng, TwoLayer(width=12, bias=False), data)
    far = rng.normal(size=(200, 5))
    alphas = (10.0, 30.0, 100.0, 300.0)
    nets = [net.with_params(W1=a * net.params["W1"], W2=net.params["W2"] / a) for a in alphas]
    change = max(float(np.max(np.abs(one.outputs(far) - net.outputs(far)))) for one in nets)
    size = float(np.max(np.abs(net.outputs(far))))
    yield near_zero("n=8, d=5, m=12: relative change of f, α = 10 … 300", change / size, 1e-12)
    top = [float(np.linalg.eigvalsh(one.hessian())[-1]) for one in nets]
    yield slope("exponent of λ_max over α = 10, 30, 100, 300", alphas, top, near=2.0, within=0.01)


@claim("kaur2022.lmax_vs_trace", "Section 2, Metrics for flatness", "identity",
       "At a minimum λ_max is the worst rise of the loss and the trace the expected one: 2 "
       "max_{‖ε‖≤ρ} ΔL/ρ² → λ_max with an error of order ρ, 2 E ΔL/ρ² → Tr ∇²L for ε ~ N(0, "
       "ρ²I)")  # fmt: skip
def worst_and_expected(trial: Trial) -> Lines:
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
    over = max(error / rho for rho, error in zip(radii, errors, strict=True))
    yield at_most("that error over ρ, largest over ρ = 0.03 … 0.001", over, 1.0)
    sigma = 0.001
    average = AverageSharpness(sigma=sigma, tolerance=0.04, max_products=2000)
    mean = measured(average, net, trial.seed)
    off = abs(float(mean.value) - sigma**2 * trace / 2) / float(mean.stderr)
    yield at_most("|E ΔL − ½ρ² Tr| at ρ = 0.001, in standard errors", off, 4.5)
    yield above("Tr over λ_max: the two measures differ", trace / top, 1.05)


@claim("kaur2022.keskar_equiv", "Section 2, λ_max as a metric for flatness", "inequality",
       "In the quadratic model at a minimum the largest rise in a ball of radius ε is ½ε²λ_max, "
       "but in the box |ε_i| ≤ ε, which Keskar et al. take, it is anything from ½ε²λ_max to p "
       "times that",
       note="Equivalent to a scaled λ_max in the ball; in the box only within a factor "
       "p.")  # fmt: skip
def box_and_ball(trial: Trial) -> Lines:
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
    model, top = Quadratic(np.zeros(p), H), float(np.linalg.eigvalsh(H)[-1])
    box = reading(Keskar(epsilon=epsilon, restarts=40), model, trial.seed) / 100
    exact = epsilon**2 / 2 * factor(H) * top
    yield equal("flatlab's Keskar sharpness over the largest corner", box / exact, 1.0, rel=1e-6)
    ball = reading(SamSharpness(rho=epsilon, steps=2000, restarts=3), model, trial.seed)
    yield equal("sharpness in the ball over ½ε²λ_max", 2 * ball / epsilon**2 / top, 1.0, rel=1e-6)


def _random_psd(rng: np.random.Generator, p: int) -> Array:
    root = rng.normal(size=(p, int(rng.integers(1, p + 1))))
    return np.asarray(root @ root.T)


@claim("kaur2022.gd_escape", "Section 2, Large learning rates lead to smaller λ_max", "empirical",
       "Gradient descent escapes where λ_max > 2/η: on a quadratic it grows by |1 − ηλ| a step, "
       "more than 1 if and only if λ > 2/η, and from a minimum of a network it leaves at that rate",
       expected="holds")  # fmt: skip
def escape(trial: Trial) -> Lines:
    rng = trial.rng("escape")
    lr, curvatures = 0.1, np.sort(rng.uniform(0, 40, 400))
    x = np.full(400, 1e-3)
    for _ in range(4000):
        x = np.clip(x - lr * curvatures * x, -1e6, 1e6)
    left = np.abs(x) > 1e-3
    yield equal("400 quadratics: growth ⇔ λ > 2/η", np.sum(left == (curvatures > 20)), 400)
    data = random_data(rng, 8, 3)
    net = random_interpolator(rng, TwoLayer(width=12, activation="tanh"), data)
    values, vectors = np.linalg.eigh(net.hessian())
    top, direction = float(values[-1]), torch.tensor(vectors[:, -1])
    problem = Problem(net.module, "mse", data)
    for factor in (1.1, 0.9):
        lr = factor * 2 / top
        along, _ = _descend(problem, 1e-6 * rng.normal(size=60), direction, lr, 20)
        rate = abs(along[15] / along[5]) ** 0.1
        what = f"tanh, p=60, n=8, η = {factor}·2/λ_max: growth along the top direction, a step"
        yield equal(what, rate, abs(1 - lr * top), rel=1e-3)
    lr, steps = 1.1 * 2 / top, trial.size(300, 2000)
    end, taken, steep = torch.tensor(1e-6 * rng.normal(size=60)), 0, np.inf
    while steep > SETTLED and taken < 20 * steps:  # while it still oscillates, λ_max hovers at 2/η
        _, end = _descend(problem, end.numpy(), direction, lr, steps)
        with problem.moved(end):
            steep = float(problem.value_and_gradient()[1].norm())
        taken += steps
    yield above(f"‖θ − θ*‖ after {taken} steps at 1.1·2/λ_max from 1e-6", float(end.norm()), 1e-2)
    with problem.moved(end):
        sharp = float(np.linalg.eigvalsh(problem.matrix().dense().numpy())[-1])
    yield below(f"λ_max there, where ‖∇L‖ = {steep:.1g}, over 2/η", sharp * lr / 2, 1.0)


def _descend(
    problem: Problem, start: Array, direction: torch.Tensor, lr: float, steps: int
) -> tuple[list[float], torch.Tensor]:
    """Return the components of θ − θ* along a direction, and the last θ − θ*."""
    step, along = torch.tensor(start), []
    for _ in range(steps):
        with problem.moved(step):
            _, gradient = problem.value_and_gradient()
        step = step - lr * gradient
        along.append(float(step @ direction))
    return along, step


@claim("kaur2022.eos", "Sections 2 and 3.1 (iii)", "empirical",
       "Full-batch gradient descent ends with λ_max at most about 2/η, and at 2/η where η is so "
       "large that the minimum a small η finds is unstable; at small η it ends below",
       expected="holds",
       note="That it hovers there for most of training is seen at the end only.")  # fmt: skip
def edge_of_stability(trial: Trial) -> Lines:
    rng, draws = trial.rng("eos"), trial.size(4, 30)
    starts = [_start(rng) for _ in range(draws)]
    by_hand = np.concatenate([g[1].ravel() for g in _gradients(*_stacked(starts))])
    _, gradient = Problem(starts[1].module, "mse", starts[1].data).value_and_gradient()
    yield near_zero("tanh, d=10, n=60: gradient by hand", by_hand - gradient.numpy(), 1e-12)
    middle = {}
    for lr in (0.05, 0.1, 0.2, 0.4):
        ends = _trained(starts, lr, 5000)  # after 1,500 steps λ_max may still swing about 2/η
        ratios = [reading(LambdaMax(tolerance=1e-7), end) * lr / 2 for end in ends]
        middle[lr] = float(np.median(ratios))
        name = f"η = {lr}, {len(ends)} of {draws} draws converged"
        yield below(f"{name}: largest loss at the end", max(end.loss() for end in ends), 0.01)
        yield at_most(f"{name}: largest λ_max over 2/η", max(ratios), 1.02)
    yield at_least("converged at η = 0.4", len(ends), math.ceil(draws / 2))
    yield at_least("η = 0.4, at the edge: median of λ_max over 2/η", middle[0.4], 0.9)
    yield below("η = 0.05, below the edge: median of λ_max over 2/η", middle[0.05], 0.5)
    yield below("median λ_max at η = 0.4 over that at η = 0.1", middle[0.4] / middle[0.1] / 4, 1.0)


def _start(rng: np.random.Generator) -> Solution:
    arch, data = TwoLayer(width=24, activation="tanh"), int(rng.integers(2**31))
    params = arch.initial(10, int(rng.integers(2**31)))
    return Solution(arch, params, xor(d=10, n=60, seed=data, n_test=0))


def _stacked(nets: list[Solution]) -> tuple[Array, ...]:
    """Return W1, b1, W2, x and y of many networks, (networks, …)."""
    weights = [np.array([net.params[name] for net in nets]) for name in ("W1", "b1", "W2")]
    x, y = (np.array([getattr(net.data, name) for net in nets]) for name in ("x_train", "y_train"))
    return *weights, x, y


def _gradients(W1: Array, b1: Array, W2: Array, x: Array, y: Array) -> tuple[Array, ...]:
    """Return the gradients of the mean squared errors in W1, b1 and W2."""
    h = np.tanh(x @ W1.swapaxes(1, 2) + b1[:, None])
    e = 2 / y.shape[1] * ((h @ W2[:, :, None])[:, :, 0] - y)
    back = e[:, :, None] * W2[:, None] * (1 - h**2)
    return back.swapaxes(1, 2) @ x, back.sum(1), (e[:, None] @ h)[:, 0]


def _trained(starts: list[Solution], lr: float, steps: int) -> list[Solution]:
    """Return the networks after gradient descent, without those that diverged."""
    W1, b1, W2, x, y = _stacked(starts)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            of_W1, of_b1, of_W2 = _gradients(W1, b1, W2, x, y)
            W1, b1, W2 = W1 - lr * of_W1, b1 - lr * of_b1, W2 - lr * of_W2
    kept = [i for i in range(len(starts)) if np.abs(W2[i]).max() < 1e6]
    return [starts[i].with_params(W1=W1[i], b1=b1[i], W2=W2[i]) for i in kept]


@claim("kaur2022.linear_scaling", "Sections 2 and 3.2", "identity",
       "On a quadratic of curvature a with noise variance σ² an example, SGD has the stationary "
       "variance ησ²/(Ba(2 − ηa)), which to first order in η depends on η/B alone",
       note="The part of the linear scaling rule that can be computed; that generalisation is kept "
       "is decided by training (Figure 4).")  # fmt: skip
def linear_scaling(trial: Trial) -> Lines:
    rng, a = trial.rng("linear-scaling"), 1.0
    centres = rng.normal(size=50)
    centres -= centres.mean()
    variance = a**2 * float(np.mean(centres**2))

    def stationary(lr: float, batch: int) -> float:
        return lr * variance / (batch * a * (2 - lr * a))

    chains = trial.size(3000, 30_000)
    for lr, batch in ((0.1, 2), (0.2, 4), (0.4, 8)):
        x = np.zeros(chains)
        for _ in range(math.ceil(14 / (lr * a))):
            drawn = centres[rng.integers(0, 50, (chains, batch))].mean(1)
            x -= lr * a * (x - drawn)
        yield estimate(f"variance at η = {lr}, B = {batch}", x**2, stationary(lr, batch))
    rates, apart = (0.05, 0.1, 0.2, 0.4), []
    for lr in rates:
        v = 0.0
        for _ in range(2000):
            v = (1 - lr * a) ** 2 * v + lr**2 * variance / (20 * lr)
        apart.append(abs(v / (variance / (20 * 2 * a)) - 1))
    yield slope("exponent in η of the change of the variance at fixed η/B", rates, apart, near=1.0)
