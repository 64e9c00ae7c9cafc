"""Section 2: gradient descent leaves minima with λ_max > 2/η; batch size and learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from ...data import xor
from ...measures.eigenvalues import LambdaMax
from ...models import TwoLayer
from ...problem import Problem
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
    estimate,
    near_zero,
    slope,
)
from ..instances import random_data, random_interpolator, reading


def lambda_max(net: Solution) -> float:
    """Return λ_max of the squared error by the Lanczos method."""
    return reading(LambdaMax(tolerance=1e-7), net)


@claim(
    "kaur2022.gd_escape",
    "Section 2, Large learning rates lead to smaller λ_max",
    "empirical",
    "Gradient descent escapes where λ_max > 2/η: on a quadratic it grows by |1 − ηλ| a step, more "
    "than 1 if and only if λ > 2/η, and from a minimum of a network it leaves at that rate",
    expected="holds",
)
def escape(trial: Trial) -> Iterator[Line]:
    """Descend on quadratics, and on a network from beside an interpolating minimum."""
    rng = trial.rng("escape")
    lr, curvatures = 0.1, np.sort(rng.uniform(0, 40, 400))
    x = np.full(400, 1e-3)
    for _ in range(4000):
        x = np.clip(x - lr * curvatures * x, -1e6, 1e6)
    left = np.abs(x) > 1e-3
    yield equal(
        "400 quadratics, η = 0.1, λ from 0 to 40: those in which growth ⇔ λ > 2/η",
        np.sum(left == (curvatures > 20)),
        400,
    )
    data = random_data(rng, 8, 3)
    net = random_interpolator(rng, TwoLayer(width=12, activation="tanh"), data)
    values, vectors = np.linalg.eigh(net.hessian())
    top, direction = float(values[-1]), torch.tensor(vectors[:, -1])
    problem = Problem(net.module, "mse", data)
    for factor in (1.1, 0.9):
        lr = factor * 2 / top
        along, _ = _descend(problem, 1e-6 * rng.normal(size=60), direction, lr, 20)
        rate = abs(along[15] / along[5]) ** 0.1
        yield equal(
            f"tanh, p=60, n=8, η = {factor}·2/λ_max: growth along the top direction, a step",
            rate,
            abs(1 - lr * top),
            rel=1e-3,
        )
    lr = 1.1 * 2 / top
    steps = trial.size(300, 2000)
    _, end = _descend(problem, 1e-6 * rng.normal(size=60), direction, lr, steps)
    yield above(f"‖θ − θ*‖ after {steps} steps at 1.1·2/λ_max from 1e-6", float(end.norm()), 1e-2)
    with problem.moved(end):
        sharp = float(np.linalg.eigvalsh(problem.matrix().dense().numpy())[-1])
    yield below("λ_max there, over 2/η", sharp * lr / 2, 1.0)


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


@claim(
    "kaur2022.eos",
    "Sections 2 and 3.1 (iii)",
    "empirical",
    "Full-batch gradient descent ends with λ_max at most about 2/η, and at 2/η where η is so large "
    "that the minimum a small η finds is unstable; at small η it ends below",
    expected="holds",
    note="That it hovers there for most of training is seen at the end only.",
)
def edge_of_stability(trial: Trial) -> Iterator[Line]:
    """Train small tanh networks at four learning rates."""
    rng, draws = trial.rng("eos"), trial.size(4, 30)
    starts = [_start(rng) for _ in range(draws)]
    by_hand = _gradients(*_stacked(starts))
    _, gradient = Problem(starts[1].module, "mse", starts[1].data).value_and_gradient()
    yield near_zero(
        "tanh, d=10, n=60, m=24: the gradient by hand against autograd",
        np.max(np.abs(np.concatenate([g[1].ravel() for g in by_hand]) - gradient.numpy())),
        1e-12,
    )
    middle = {}
    for lr, steps in ((0.05, 3000), (0.1, 2000), (0.2, 1500), (0.4, 1500)):
        ends = _trained(starts, lr, steps)
        ratios = [lambda_max(end) * lr / 2 for end in ends]
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
    return [
        start.with_params(W1=W1[i], b1=b1[i], W2=W2[i])
        for i, start in enumerate(starts)
        if np.abs(W2[i]).max() < 1e6
    ]


@claim(
    "kaur2022.linear_scaling",
    "Sections 2 and 3.2",
    "identity",
    "On a quadratic of curvature a with noise variance σ² an example, SGD has the stationary "
    "variance ησ²/(Ba(2 − ηa)), which to first order in η depends on η/B alone",
    note="The part of the linear scaling rule that can be computed; that generalisation is kept is "
    "decided by training (Figure 4).",
)
def linear_scaling(trial: Trial) -> Iterator[Line]:
    """Run minibatch SGD on Σ ½a(x − c_i)² in many copies, and the recursion of its variance."""
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
        yield estimate(
            f"η = {lr}, B = {batch}: variance of {chains:,} runs of SGD on 50 examples",
            x**2,
            stationary(lr, batch),
        )
    rates, apart = (0.05, 0.1, 0.2, 0.4), []
    for lr in rates:
        v = 0.0
        for _ in range(2000):
            v = (1 - lr * a) ** 2 * v + lr**2 * variance / (20 * lr)
        apart.append(abs(v / (variance / (20 * 2 * a)) - 1))
    yield slope(
        "exponent in η of the change of the variance at fixed η/B, η = 0.05 … 0.4",
        rates,
        apart,
        near=1.0,
    )
