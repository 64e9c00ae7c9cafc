"""Appendix A.1: simplified BatchNorm under Condition 1."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from ...data import Dataset, complete, cube, xor
from ...models import TwoLayer
from ...theory.constructions import xor_batch_norm
from ...theory.solution import Array, Solution
from ..contract import (
    Line,
    Trial,
    above,
    at_least,
    at_most,
    claim,
    equal,
    near_zero,
    printed,
    shown,
    slope,
    true,
)
from ..instances import random_networks


def _largest_ratio(data: Dataset, rng: np.random.Generator, starts: int, steps: int) -> float:
    """Return the largest |Σ y_i relu(a_i)|/rms(a) found over neurons (w, b), by gradient ascent."""
    x, y = torch.tensor(data.x_train), torch.tensor(data.y_train)
    neurons = torch.tensor(rng.normal(size=(starts, data.d + 1)), requires_grad=True)
    optimizer = torch.optim.Adam([neurons], lr=0.05)
    best = 0.0
    for _ in range(steps):
        h = torch.relu(neurons[:, :-1] @ x.T + neurons[:, -1:])
        ratio = (h @ y).abs() / h.square().mean(1).sqrt().clamp(min=1e-9)
        best = max(best, float(ratio.detach().max()))
        optimizer.zero_grad()
        (-ratio.sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return best


@claim(
    "wen2023.lemA.1.ineq",
    "Appendix A.1, proof of Lemma A.1",
    "inequality",
    "Under Condition 1 every neuron has |Σ_i y_i relu(a_i)| ≤ (n/2) rms(relu(a)); hence "
    "‖γ ⊙ W2‖₁ ≥ 2 for every interpolating network.",
    note="Without Condition 1 the inequality fails, which is why flatter networks exist there: see "
    "flatlab.x1.bn_flatter_nongeneralising.",
)
def lemma_a1_inequality(trial: Trial) -> Iterator[Line]:
    data = complete(d=6, s=5, seed=trial.seed, n_test=0)
    rng = trial.rng("A.1")
    a = rng.normal(size=(10_000, 7)) @ np.hstack([data.x_train, np.ones((data.n, 1))]).T
    h = np.maximum(a, 0)
    rms = np.sqrt((h**2).mean(1))
    ratios = np.abs(h @ data.y_train)[rms > 0] / rms[rms > 0]
    yield at_most(
        "largest ratio of 10,000 random neurons over n/2, d = 6, n = 20", ratios.max() / 10, 1
    )
    found = _largest_ratio(data, rng, trial.size(200, 1000), trial.size(300, 2000))
    yield at_most("largest found by ascent from 200 starts, over n/2", found / 10, 1)
    made = xor_batch_norm(data)
    h = made.hidden()[0]
    attained = np.abs(h.T @ data.y_train) / np.sqrt((h**2).mean(0))
    yield equal("the four xor neurons attain it", attained.min() / 10, 1)
    loose = xor(d=30, n=100, seed=trial.seed, n_test=0)
    found = _largest_ratio(loose, rng, 50, trial.size(300, 2000))
    yield above("largest found without Condition 1, d = 30, n = 100, over n/2", found / 50, 1)


@claim(
    "wen2023.lemA.1",
    "Appendix A.1, Lemma A.1",
    "construction",
    "Under Condition 1 inf ‖γ ⊙ W2‖₁ = 2, attained by a neuron ±1/2 for each quadrant; a minimiser "
    "is x1·x2 on the cube, and its neurons with γ_j W2_j ≠ 0 do not see coordinates 3 to d.",
    as_printed="W2 = 1/2 without signs; unused neurons zero; the conclusion for every neuron; "
    "a_{4k+1} + a_{4k+4} = 2b.",
    errata=("E6", "E14", "E26"),
)
def lemma_a1(trial: Trial) -> Iterator[Line]:
    data = complete(d=6, s=5, seed=trial.seed, n_test=0)
    made = xor_batch_norm(data, balanced=False)
    whole = cube(6)
    yield near_zero("training loss with signs, d = 6, n = 20", made.loss())
    product = np.abs(made.params["gamma"] * made.params["W2"])
    yield equal("‖γ ⊙ W2‖₁", product.sum(), 2)
    error = np.abs(made.outputs(whole) - whole[:, 0] * whole[:, 1]).max()
    yield near_zero("largest |f − x1x2| on the cube", error)
    yield printed(near_zero("training loss", made.with_params(W2=np.full(4, 0.5)).loss()))
    yield printed(true("a zero neuron is finite: 0/0", np.isfinite(_divided(np.zeros(data.n)))))
    fifth = _with_idle_neuron(made)
    yield near_zero("training loss with a fifth neuron on coordinates 3 to d, W2 = 0", fifth.loss())
    yield equal("and ‖γ ⊙ W2‖₁", np.abs(fifth.params["gamma"] * fifth.params["W2"]).sum(), 2)
    yield printed(
        near_zero("its weights on coordinates 3 to d", np.linalg.norm(fifth.params["W1"][4, 2:]))
    )
    rng = trial.rng("lemA.1")
    w, b = rng.normal(size=6), rng.normal()
    a = data.x_train @ w + b
    groups = _quadruples(data)
    opposite = np.array([a[g[0]] + a[g[3]] for g in groups])
    rest = np.array([2 * (b + data.x_train[g[0], 2:] @ w[2:]) for g in groups])
    yield near_zero(
        "a_{4k+1} + a_{4k+4} − 2(b + w[3:d]·s_k) at a random neuron", np.abs(opposite - rest).max()
    )
    yield printed(near_zero("a_{4k+1} + a_{4k+4} − 2b", np.abs(opposite - 2 * b).max()))


def _divided(h: Array) -> float:
    """Return h/rms(h) at the first point, by the formula of simplified BatchNorm as printed."""
    with np.errstate(invalid="ignore"):
        return float(h[0] / np.sqrt(np.mean(h**2)))


def _with_idle_neuron(made: Solution) -> Solution:
    row = np.zeros((1, made.data.d))
    row[0, 2:] = 1.0
    params = {
        "W1": np.vstack([made.params["W1"], row]),
        "b1": np.append(made.params["b1"], 0.5),
        "W2": np.append(made.params["W2"], 0.0),
        "gamma": np.append(made.params["gamma"], 1.0),
    }
    return Solution(TwoLayer(width=5, norm="batch"), params, made.data)


def _quadruples(data: Dataset) -> list[list[int]]:
    """Return the indices of (1,1), (1,−1), (−1,1), (−1,−1) for each value of the others."""
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    groups = []
    for point in np.unique(data.x_train[:, 2:], axis=0):
        same = np.all(data.x_train[:, 2:] == point, 1)
        groups.append(
            [int(np.flatnonzero(same & np.all(data.x_train[:, :2] == s, 1))[0]) for s in signs]
        )
    return groups


@claim(
    "wen2023.lemA.2",
    "Appendix A.1, Lemma A.2",
    "rate",
    "‖γ‖² + ‖W2‖² ≥ 2‖γ ⊙ W2‖₁ with equality iff |γ| = |W2|; near its infimum 4 the neurons' "
    "weights on coordinates 3 to d are small relative to the whole neuron.",
    as_printed="Equality at γ = W2; ‖W_{1,i}[3:d]‖ ≤ ε in absolute size.",
    errata=("E15",),
    note="The compactness argument for general near-minimisers is not checked; a family that "
    "leaves the minimum is.",
)
def lemma_a2(trial: Trial) -> Iterator[Line]:
    rng = trial.rng("lemA.2")
    g, w = rng.normal(size=(2, 1000, 5))
    excess = (g**2 + w**2).sum(1) - 2 * np.abs(g * w).sum(1)
    yield at_least("least ‖γ‖² + ‖W2‖² − 2‖γ ⊙ W2‖₁ of 1,000 random pairs", excess.min(), 0)
    data = complete(d=6, s=5, seed=trial.seed, n_test=0)
    tilts = [0.2, 0.1, 0.05, 0.025]
    made = [_tilted(data, tilt, 1.0) for tilt in tilts]
    excess = np.array([2 * np.abs(m.params["gamma"] * m.params["W2"]).sum() - 4 for m in made])
    ratio = [
        float(np.linalg.norm(m.params["W1"][0, 2:]) / np.linalg.norm(m.params["W1"][0]))
        for m in made
    ]
    yield near_zero("training loss of eight neurons (±1, ±1, ±η) at η = 0.2", made[0].loss())
    yield slope("exponent of the excess over 4 in η", tilts, excess, near=2, within=0.1)
    yield slope(
        "exponent of the relative weight on coordinates 3 to d in η",
        tilts,
        ratio,
        near=1,
        within=0.1,
    )
    large = _tilted(data, 0.05, 1000.0)
    same = 2 * np.abs(large.params["gamma"] * large.params["W2"]).sum() - 4
    yield equal(
        "excess at η = 0.05 with the first layer scaled by 1,000", same, excess[2], rel=1e-6
    )
    yield printed(at_most("‖W_{1,1}[3:d]‖ there", np.linalg.norm(large.params["W1"][0, 2:]), 0.05))
    four = xor_batch_norm(data)
    yield printed(
        near_zero(
            "largest |γ − W2| at the minimiser",
            np.abs(four.params["gamma"] - four.params["W2"]).max(),
        )
    )


def _tilted(data: Dataset, tilt: float, scale: float) -> Solution:
    """Return an interpolating network of eight neurons (±1, ±1, ±η, 0, …), |γ| = |W2|.

    The two neurons of a quadrant add up to (1 + ηx3)₊ + (1 − ηx3)₊ = 2 there and to 0 elsewhere.
    """
    four = xor_batch_norm(data)
    W1 = np.repeat(four.params["W1"], 2, axis=0)
    W1[:, 2] = np.resize([tilt, -tilt], 8)
    b1 = np.full(8, -1.0)
    h = np.maximum(data.x_train @ W1.T + b1, 0)
    rms = np.sqrt((h**2).mean(0))
    product = np.repeat(np.sign(four.params["W2"]), 2) * rms / 2
    gamma = np.sqrt(np.abs(product))
    params = {"W1": scale * W1, "b1": scale * b1, "W2": product / gamma, "gamma": gamma}
    return Solution(TwoLayer(width=8, norm="batch"), params, data)


@claim(
    "wen2023.lemA.3",
    "Appendix A.1, Lemma A.3",
    "identity",
    "(2/n) Σ ‖∇_{γ,W2} f(x_i)‖² = 2(‖W2‖² + ‖γ‖²) for live neurons, so Tr ∇²L ≥ 2(‖W2‖² + ‖γ‖²) "
    "and under Condition 1 its infimum is 8.",
    as_printed="Tr ∇²L ≥ ‖W2‖² + ‖γ‖², with equal infima.",
    errata=("E2",),
)
def lemma_a3(trial: Trial) -> Iterator[Line]:
    data = complete(d=6, s=5, seed=trial.seed, n_test=0)
    worst, count = 0.0, 0
    for each in random_networks(TwoLayer(width=4, norm="batch"), data, trial.rng("lemA.3"), 40):
        if not np.all((each.hidden()[0] ** 2).sum(0) > 0):
            continue
        count += 1
        own = each.gradients()[:, -8:]
        formula = 2 * (np.sum(each.params["W2"] ** 2) + np.sum(each.params["gamma"] ** 2))
        worst = max(worst, abs(2 * np.mean((own**2).sum(1)) / formula - 1))
    yield near_zero(f"largest relative difference, {count} random networks, d = 6", worst, 1e-10)
    traces = [xor_batch_norm(data, scale=K).trace for K in (10.0, 100.0, 1000.0)]
    yield slope(
        "exponent of trace − 8 in the scale K of the first layer",
        (10, 100, 1000),
        np.array(traces) - 8,
        near=-2,
        within=1e-3,
    )
    yield equal("trace at K = 1000", traces[-1], 8, rel=1e-5)
    made = xor_batch_norm(data)
    squares = float(np.sum(made.params["W2"] ** 2) + np.sum(made.params["gamma"] ** 2))
    yield shown("‖W2‖² + ‖γ‖² there", squares)
    yield printed(equal("trace at K = 1000 against ‖W2‖² + ‖γ‖²", traces[-1], squares, rel=1e-5))
