"""Section 2: Rademacher complexity, the data, the losses and interpolation; Table 1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch
from scipy.optimize import minimize

from ...data import cube, from_arrays, xor
from ...losses import Loss
from ...models import Params, TwoLayer
from ...theory.constructions.generalising import four_neurons
from ...theory.constructions.memorising import memorising
from ...theory.rademacher import finite_class
from ...theory.solution import Array, Solution
from ..contract import (
    Line,
    Trial,
    above,
    at_most,
    by_experiment,
    claim,
    equal,
    near_zero,
    printed,
)
from ..instances import random_data, random_interpolator

XOR = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


@claim(
    "wen2023.def.rademacher",
    "Section 2 and Definition A.6",
    "definition",
    "R_S(F) = (1/n) E_ε sup_{f∈F} Σ ε_i f(x_i) over independent signs ε; it is 0 for one "
    "function, 1 for all sign patterns, scales with F and is that of F's convex hull",
)
def rademacher(trial: Trial) -> Iterator[Line]:
    """Enumerate signs, against sampled signs and classes with a known answer."""
    n, size, draws = 8, 50, trial.size(100_000, 1_000_000)
    rng = trial.rng("rademacher")
    F = rng.normal(size=(size, n))
    exact, sampled = finite_class(F).value, finite_class(F, draws=draws, rng=rng)
    yield at_most(
        f"{size} random functions on {n} points: |sampled − enumerated| in standard errors, "
        f"{draws:,} draws",
        abs(sampled.value - exact) / sampled.standard_error,
        4.5,
    )
    yield near_zero("one function", finite_class(F[:1]).value, 1e-12)
    yield equal("all sign patterns on 8 points", finite_class(cube(n)).value, 1.0)
    yield equal(
        "the two constants ±1: C(8,4)/2^8",
        finite_class(np.array([[1.0], [-1.0]]) * np.ones(n)).value,
        math.comb(n, n // 2) / 2**n,
    )
    yield equal("R(3F)/R(F)", finite_class(3 * F).value / exact, 3.0)
    hull = rng.dirichlet(np.full(size, 0.1), 500) @ F
    yield equal(
        "R of F and 500 points of its convex hull", finite_class(np.vstack([F, hull])).value, exact
    )
    yield above("R(F ∪ −F)/R(F)", finite_class(np.vstack([F, -F])).value / exact, 1.0)


@claim(
    "wen2023.data.pxor",
    "Section 2",
    "definition",
    "x uniform on {±1}^d, y = x1 x2: E x = 0, E xxᵀ = I, ‖x‖² = d, and y is uncorrelated with "
    "every product of coordinates but x1 x2",
)
def pxor(trial: Trial) -> Iterator[Line]:
    """Average over the whole cube, and over a sample of the generator."""
    data = xor(d=6, n=20, exact_test=True)
    x, y = data.x_test, data.y_test
    yield equal("points of the cube, d=6, all different", len(np.unique(x, axis=0)), 64)
    yield near_zero("largest |E x_j|", np.max(np.abs(x.mean(0))), 0)
    yield near_zero("largest entry of |E xxᵀ − I|", np.max(np.abs(x.T @ x / 64 - np.eye(6))), 0)
    products = {
        subset: float(np.mean(y * np.prod(x[:, list(subset)], 1)))
        for size in range(7)
        for subset in itertools.combinations(range(6), size)
    }
    yield equal("E y x1 x2", products.pop((0, 1)), 1.0)
    yield near_zero(
        "largest |E y Π x_j| over the 63 other products",
        max(abs(value) for value in products.values()),
        0,
    )
    seed = int(trial.rng("pxor").integers(2**31))
    drawn = xor(d=30, n=4000, seed=seed, n_test=0)
    yield near_zero(
        "d=30: largest |‖x‖² − d| over 4,000 drawn points",
        np.max(np.abs(np.sum(drawn.x_train**2, 1) - 30)),
        0,
    )
    yield at_most(
        "largest |mean of x_j| √n of them: 5 standard errors",
        math.sqrt(4000) * np.max(np.abs(drawn.x_train.mean(0))),
        5.0,
    )


@claim(
    "wen2023.loss.zero_one",
    "Section 2 and the remark after Theorem 3.1",
    "definition",
    "The zero-one loss is Pr(y f(x) ≤ 0); f = 0 counts as an error, so that a network that is "
    "zero off its n distinct training points has error 1 − n/2^d",
    as_printed="the zero-one loss is Pr(y f(x) > 0)",
    errata=("E5",),
)
def zero_one(trial: Trial) -> Iterator[Line]:
    """Score a perfect network and a memorising one on the whole cube."""
    n, d = 17, 6
    seed = int(trial.rng("zero-one").integers(2**31))
    data = xor(d=d, n=n, seed=seed, distinct=True, exact_test=True)
    perfect, memory = four_neurons(data), memorising(data)
    right = {
        name: float(np.mean(net.outputs(data.x_test) * data.y_test > 0))
        for name, net in (("perfect", perfect), ("memory", memory))
    }
    yield near_zero("Pr(yf ≤ 0) of eq. (5)'s network, d=6, all 64 points", perfect.error(), 0)
    yield equal("Pr(yf ≤ 0) of the memorising network of 17 points", memory.error(), 1 - n / 2**d)
    yield printed(
        near_zero(
            "the loss Pr(yf > 0) of eq. (5)'s network, which is right everywhere", right["perfect"]
        )
    )
    yield printed(
        equal("the loss Pr(yf > 0) of the memorising network", right["memory"], 1 - n / 2**d)
    )


@claim(
    "wen2023.def2.1",
    "Definition 2.1",
    "definition",
    "A model interpolates if f(x_i) = y_i for all i, which is L = 0; a minimiser of L is "
    "interpolating only if L can reach 0, which on the four xor points two neurons cannot and "
    "three can",
    note="The text calls minimisers of L interpolating, too.",
)
def interpolating(trial: Trial) -> Iterator[Line]:
    """Compare max|f − y| with L, and minimise L with few neurons from many starts."""
    rng = trial.rng("def2.1")
    exact, agree = 0, 0
    for index in range(100):
        data = random_data(rng, 10, 4)
        net = random_interpolator(rng, TwoLayer(width=30), data)
        if index % 2:
            net = net.with_params(W2=net.params["W2"] + 1e-3 * rng.normal(size=30))
        fits = bool(np.max(np.abs(net.outputs() - data.y_train)) < 1e-9)
        exact += fits
        agree += fits == (net.loss() < 1e-18)
    yield equal("of 100 networks (n=10, m=30, every other one moved): f = y ⇔ L = 0", agree, 100)
    yield equal("interpolating ones among them", exact, 50)
    starts = trial.size(12, 60)
    least = min(_least_loss(rng, 2) for _ in range(starts))
    yield above(f"least L of two neurons with bias on the xor points, {starts} starts", least, 0.1)
    three: Params = {
        "W1": np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]),
        "b1": np.array([0.0, 0.0, 1.0]),
        "W2": np.array([1.0, 1.0, -1.0]),
    }
    points = from_arrays(XOR, XOR.prod(1))
    yield near_zero(
        "L of the three neurons |x1 + x2| − 1", Solution(TwoLayer(width=3), three, points).loss(), 0
    )


def _least_loss(rng: np.random.Generator, m: int) -> float:
    """Return the loss that L-BFGS reaches on the four xor points from a random start."""
    x = torch.tensor(XOR)
    y = x.prod(1)

    def value(flat: Array) -> tuple[float, Array]:
        theta = torch.tensor(flat, requires_grad=True)
        W1, b1, W2 = theta[: 2 * m].view(m, 2), theta[2 * m : 3 * m], theta[3 * m :]
        loss = Loss("mse").torch(torch.relu(x @ W1.T + b1) @ W2, y)
        (gradient,) = torch.autograd.grad(loss, theta)
        return float(loss.detach()), gradient.numpy()

    found = minimize(value, rng.normal(size=4 * m), jac=True, method="L-BFGS-B")
    return float(found.fun)


table1 = by_experiment(
    "wen2023.table1",
    "Table 1",
    "Whether all flattest minima and 1-SAM generalise on P_xor: no bias yes, yes; bias no, no; "
    "Sim-BN yes, yes; Sim-LN no, yes",
    "wen2023/table1",
    note="The first column is Theorems 3.1, 4.1, 3.2 and 5.1, which have claims of their own. The "
    "caption has rows 2 and 4 deny Questions 1 and 2 respectively; by the text row 4 denies both.",
)
