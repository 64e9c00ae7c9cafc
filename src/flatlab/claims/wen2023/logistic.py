"""Appendix A.5: the label-smoothed logistic loss has the same minima as the squared error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from ...data import Dataset, complete, from_arrays, xor
from ...losses import Logistic
from ...models import TwoLayer
from ...problem import Problem
from ...theory.bounds import layer_norm_floor, logistic_floor
from ...theory.constructions import four_neurons
from ...theory.solution import Array, Solution
from ..contract import Trial, claim, printed
from ..instances import random_data, random_interpolator
from ..lines import Lines, above, equal, near_zero

P = 0.2
"""The smoothing p of the paper's experiments."""


def gamma(p: float) -> float:
    """Return γ_p = log((1 − p)/p)."""
    return math.log((1 - p) / p)


def entropy(p: float) -> float:
    """Return −p log p − (1 − p) log(1 − p)."""
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


def as_printed(a: Array, b: float, p: float) -> Array:
    """Definition A.2 as printed: −p log(e^{ba}/(1+e^a)) − (1−p) log(e^{(1−b)a}/(1+e^a))."""
    log_sum = np.logaddexp(0, a)
    return np.asarray(-p * (b * a - log_sum) - (1 - p) * ((1 - b) * a - log_sum))


def lowest(loss: Callable[[float], float]) -> float:
    """Return the minimiser of a function of one variable between −20 and 20."""
    found = minimize_scalar(loss, bounds=(-20, 20), method="bounded", options={"xatol": 1e-10})
    return float(found.x)


def relabelled(data: Dataset, factor: float) -> Dataset:
    """Return the data with labels multiplied by a factor."""
    return dataclasses.replace(
        data, y_train=factor * data.y_train, y_test=factor * data.y_test, spec={"name": "arrays"}
    )


def scaled_xor_network(data: Dataset, p: float) -> Solution:
    """Return the network of eq. (5), both layers scaled alike to outputs ±γ_p, for labels ±1."""
    net = four_neurons(data)
    return net.with_params(**{name: math.sqrt(gamma(p)) * w for name, w in net.params.items()})


@claim("wen2023.defA.2", "Definition A.2", "definition",
       "ℓ(a, b) = −(1−p) log(e^{ba}/(1+e^a)) − p log(e^{(1−b)a}/(1+e^a)) for b ∈ {0, 1} is least "
       "at a = (2b−1)γ_p, γ_p = log((1−p)/p), where it is the entropy of p",
       as_printed="the same with p and 1 − p exchanged, said to be least at a = (2b−1)γ_p",
       errata=("E3",))  # fmt: skip
def logistic_loss(trial: Trial) -> Lines:
    grid = np.linspace(-8, 8, 1001)
    for p in (P, 0.05, 0.4):
        loss, far, least, apart = Logistic(smoothing=p), [], [], []
        for b in (0.0, 1.0):
            y = 2 * b - 1

            def value(a: float, loss: Logistic = loss, y: float = y) -> float:
                return float(loss.values(np.array(a), np.array(y))[0])

            far.append(abs(lowest(value) - y * gamma(p)))
            least.append(abs(value(lowest(value)) - entropy(p)))
            ours = loss.values(grid, np.full_like(grid, y))[0]
            apart.append(np.max(np.abs(ours - as_printed(grid, b, 1 - p))))
        yield near_zero(f"p={p}, b=0, 1: largest |argmin − (2b−1)γ_p|", max(far), 1e-6)
        yield near_zero(f"p={p}: largest |min − entropy of p|", max(least), 1e-12)
        yield near_zero(f"p={p}: flatlab's loss − the formula, 1,001 points", max(apart), 1e-12)
    for b in (0.0, 1.0):

        def misprint(a: float, b: float = b) -> float:
            return float(as_printed(np.array(a), b, P))

        right = (2 * b - 1) * gamma(P)
        yield printed(equal(f"argmin, p={P}, b={b:g}", lowest(misprint), right, rel=1e-6))


@claim("wen2023.thmA.2", "Theorem A.2", "identity",
       "For p < 1/2, if some θ interpolates the labels γ_p(2y−1), then the minimisers of L^log are "
       "exactly those θ, and min L^log is the entropy of p",
       as_printed="the same for the loss of Definition A.2 as printed", errata=("E3",),
       note="At p = 1/2 all labels are 0; p > 1/2 exchanges the classes. The optimiser shows that "
       "the minima it finds interpolate, not that all do.")  # fmt: skip
def same_minimisers(trial: Trial) -> Lines:
    rng = trial.rng("thmA.2")
    data, loss = xor(d=6, n=20, seed=int(rng.integers(2**31))), Logistic(smoothing=P)
    net = scaled_xor_network(data, P)
    f, bits = net.outputs(), (1 + data.y_train) / 2
    _, gradient = Problem(net.module, loss, data).value_and_gradient()
    yield near_zero("eq. (5) scaled, d=6: |f − γ_p(2y−1)|", f - gamma(P) * data.y_train, 1e-12)
    yield near_zero("its ‖∇L^log‖", float(gradient.norm()), 1e-12)
    yield near_zero("its L^log − entropy", net.loss(loss) - entropy(P), 1e-12)
    wrong = float(np.mean(np.where(bits, as_printed(f, 1, P), as_printed(f, 0, P))))
    yield printed(near_zero("L − entropy with Definition A.2 as printed", wrong - entropy(P)))
    for size in (1e-2, 1.0):
        least = min(_moved(net, rng, size).loss(loss) - entropy(P) for _ in range(200))
        yield above(f"least L^log − entropy of 200 networks moved by {size:g}", least, 0.0)
    worst, starts = 0.0, trial.size(3, 20)
    for _ in range(starts):
        small = random_data(rng, 6, 4)
        worst = max(worst, _distance_at_minimum(small, loss, rng))
    yield near_zero(f"|f − γ_p(2y−1)| where L-BFGS ends, n=6, {starts} starts", worst, 1e-4)


def _moved(net: Solution, rng: np.random.Generator, size: float) -> Solution:
    moved = {name: w + size * rng.normal(size=w.shape) for name, w in net.params.items()}
    return net.with_params(**moved)


def _distance_at_minimum(data: Dataset, loss: Logistic, rng: np.random.Generator) -> float:
    """Return max|f − γ_p y| where L-BFGS on the loss ends."""
    arch = TwoLayer(width=12, activation="softplus")
    shapes = arch.shapes(data.d)
    sizes = np.cumsum([math.prod(shape) for shape in shapes.values()])

    def network(flat: Array) -> Solution:
        parts = np.split(flat, sizes[:-1])
        shaped = [part.reshape(s) for part, s in zip(parts, shapes.values(), strict=True)]
        return Solution(arch, dict(zip(shapes, shaped, strict=True)), data)

    def value(flat: Array) -> tuple[float, Array]:
        at, gradient = Problem(network(flat).module, loss, data).value_and_gradient()
        return at, gradient.numpy()

    start = rng.normal(size=int(sizes[-1])) / 2
    options: Any = {"maxiter": 2000, "ftol": 0, "gtol": 1e-10}
    end = minimize(value, start, jac=True, method="L-BFGS-B", options=options)
    return float(np.max(np.abs(network(end.x).outputs() - gamma(loss.smoothing) * data.y_train)))


@claim("wen2023.lemA.13", "Lemma A.13 and eq. (19)", "identity",
       "Where f interpolates γ_p(2y−1), Tr ∇²L^log = p(1−p)(1/n)Σ‖∇f(x_i)‖² = (p(1−p)/2) Tr "
       "∇²L^mse; on xor the floors are 2p(1−p)γ_p√(d+1) with bias, p(1−p) for Sim-LN and "
       "4p(1−p)γ_p for Sim-BN under Condition 1",
       as_printed="the factor is 1/(p(1−p)), and the fourth line of eq. (19) has a factor Tr ∇²f",
       errata=("E4",))  # fmt: skip
def logistic_trace(trial: Trial) -> Lines:
    rng = trial.rng("lemA.13")
    loss, factor = Logistic(smoothing=P), P * (1 - P)
    data = xor(d=6, n=20, seed=int(rng.integers(2**31)))
    net = scaled_xor_network(data, P)
    squared = float(np.mean(np.sum(net.gradients() ** 2, 1)))
    trace = float(np.trace(net.hessian(loss)))
    yield equal("eq. (5) scaled, d=6, p=0.2: Tr ∇²L^log", trace, factor * squared, rel=1e-8)
    yield printed(equal("the same", trace, squared / factor, rel=1e-8))
    target = from_arrays(data.x_train, gamma(P) * data.y_train)
    mse = np.trace(Solution(net.arch, net.params, target).hessian())
    yield equal("p(1−p)/2 · Tr ∇²L^mse on the labels γ_p(2y−1)", factor / 2 * mse, trace, rel=1e-8)
    worst = 0.0
    for p in (0.1, 0.2, 0.4):
        small = random_data(rng, 10, 4)
        arch = TwoLayer(width=20, activation="tanh")
        wide = random_interpolator(rng, arch, relabelled(small, gamma(p)))
        dense = Solution(wide.arch, wide.params, small).hessian(Logistic(smoothing=p))
        claimed = p * (1 - p) * wide.trace / 2
        worst = max(worst, abs(float(np.trace(dense)) / claimed - 1))
    yield near_zero("relative error, 3 tanh interpolators, p = 0.1, 0.2, 0.4", worst, 1e-8)
    x = np.hstack([small.x_train, np.ones((10, 1))])
    h = np.tanh(small.x_train @ wide.params["W1"].T + wide.params["b1"])
    second = (-2 * h * (1 - h**2)) @ wide.params["W2"] * np.sum(x**2, 1)  # and Tr ∂²f/∂W2² = 0
    sizes = np.sum(wide.gradients() ** 2, 1)
    fourth = p * (1 - p) * float(np.mean(second * sizes))
    yield printed(equal("eq. (19), fourth line, tanh, p = 0.4", fourth, np.trace(dense), rel=1e-6))
    yield from _floors(loss)


def _floors(loss: Logistic) -> Lines:
    """Evaluate the floors of the three architectures on the xor network at d = 30."""
    factor, scale = P * (1 - P), gamma(P)
    data = xor(d=30, n=100)
    bias = scaled_xor_network(data, P)
    floor = factor * 2 * scale * math.sqrt(31)
    yield equal("bias, d=30: the floor, 2p(1−p)γ_p√31", logistic_floor(data, P), floor)
    yield equal("Tr ∇²L^log of eq. (5)'s network", np.trace(bias.hessian(loss)), floor, rel=1e-8)
    signs = np.sign(bias.params["W2"])
    layer = Solution(TwoLayer(width=4, norm="layer"), {**bias.params, "W2": scale * signs}, data)
    yield equal("Sim-LN: its Tr ∇²L^log, p(1−p)", np.trace(layer.hessian(loss)), factor, rel=1e-8)
    of_squares = partial(layer_norm_floor, epsilon=1e-3)
    yield equal("its floor, p(1−p)", logistic_floor(data, P, of_squares), factor)
    full = complete(d=8, s=8, n_test=0)
    size = math.sqrt(scale / 2)
    first = {"W1": 1e4 * four_neurons(full).params["W1"], "b1": np.zeros(4)}
    params = {**first, "W2": size * signs, "gamma": np.full(4, size)}
    batch = Solution(TwoLayer(width=4, norm="batch"), params, full)
    yield near_zero("Sim-BN, d=8, n=32: |f − γ_p y|", batch.outputs() - scale * full.y_train, 1e-10)
    trace = np.trace(batch.hessian(loss))
    yield equal("its Tr ∇²L^log, first layer times 10^4", trace, factor * 4 * scale, rel=1e-6)
