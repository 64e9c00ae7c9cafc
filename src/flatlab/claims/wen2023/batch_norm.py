"""Appendix A.1: simplified BatchNorm under Condition 1."""

from __future__ import annotations

import numpy as np
import torch

from ...data import Dataset, complete, xor
from ...models import TwoLayer
from ...theory.constructions import xor_batch_norm
from ...theory.solution import Solution
from ..contract import Trial, claim, printed
from ..instances import cube_errors, nearest_kink, random_networks, with_idle
from ..lines import Lines, above, at_least, at_most, equal, near_zero, shown, slope, true


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


@claim("wen2023.lemA.1.ineq", "Appendix A.1, proof of Lemma A.1", "inequality",
       "Under Condition 1 every neuron has |Σ_i y_i relu(a_i)| ≤ (n/2) rms(relu(a)); hence ‖γ ⊙ "
       "W2‖₁ ≥ 2 for every interpolating network.",
       note="Without Condition 1 the inequality fails, which is why flatter networks exist there: "
       "see flatlab.x1.bn_flatter_nongeneralising.")  # fmt: skip
def lemma_a1_inequality(trial: Trial) -> Lines:
    data = complete(d=6, s=5, seed=trial.seed, n_test=0)
    rng = trial.rng("A.1")
    a = rng.normal(size=(10_000, 7)) @ np.hstack([data.x_train, np.ones((data.n, 1))]).T
    h = np.maximum(a, 0)
    rms = np.sqrt((h**2).mean(1))
    ratios = np.abs(h @ data.y_train)[rms > 0] / rms[rms > 0]
    yield at_most("largest ratio/(n/2), 10,000 random neurons, n = 20", ratios.max() / 10, 1)
    found = _largest_ratio(data, rng, trial.size(200, 1000), trial.size(300, 2000))
    yield at_most("largest found by ascent from 200 starts, over n/2", found / 10, 1)
    made = xor_batch_norm(data)
    h = made.hidden()[0]
    attained = np.abs(h.T @ data.y_train) / np.sqrt((h**2).mean(0))
    yield equal("the four xor neurons attain it", attained.min() / 10, 1)
    loose = xor(d=30, n=100, seed=trial.seed, n_test=0)
    found = _largest_ratio(loose, rng, 50, trial.size(300, 2000))
    yield above("largest found without Condition 1, d = 30, n = 100, over n/2", found / 50, 1)


@claim("wen2023.lemA.1", "Appendix A.1, Lemma A.1", "construction",
       "Under Condition 1 inf ‖γ ⊙ W2‖₁ = 2, attained by a neuron ±1/2 for each quadrant; a "
       "minimiser is x1·x2 on the cube, and its neurons with γ_j W2_j ≠ 0 do not see coordinates 3 "
       "to d.",
       as_printed="W2 = 1/2 without signs; unused neurons zero; the conclusion for every neuron; "
       "a_{4k+1} + a_{4k+4} = 2b.", errata=("E6", "E14", "E26"))  # fmt: skip
def lemma_a1(trial: Trial) -> Lines:
    data = complete(d=6, s=5, seed=trial.seed, n_test=0)
    made = xor_batch_norm(data, balanced=False)
    yield near_zero("training loss with signs, d = 6, n = 20", made.loss())
    product = np.abs(made.params["gamma"] * made.params["W2"])
    yield equal("‖γ ⊙ W2‖₁", product.sum(), 2)
    yield near_zero("largest |f − x1x2| on the cube", cube_errors(made))
    yield printed(near_zero("training loss", made.with_params(W2=np.full(4, 0.5)).loss()))
    dead = np.zeros(data.n)
    with np.errstate(invalid="ignore"):
        normalised = dead / np.sqrt(np.mean(dead**2))
    yield printed(true("a zero neuron is finite: 0/0", np.isfinite(normalised[0])))
    wide = xor_batch_norm(data, width=5, balanced=False)
    yield above("least |w_j·x_i + b_j| with a fifth neuron, dead: no point is on a kink",
                nearest_kink(wide), 0)  # fmt: skip
    fifth = with_idle(wide, [0, 0, 1, 1, 1, 1], b1=0.5, gamma=1.0)
    yield near_zero("training loss with a fifth neuron on coordinates 3 to d, W2 = 0", fifth.loss())
    yield equal("and ‖γ ⊙ W2‖₁", np.abs(fifth.params["gamma"] * fifth.params["W2"]).sum(), 2)
    yield printed(near_zero("its weights on x3 to xd", np.linalg.norm(fifth.params["W1"][4, 2:])))
    rng = trial.rng("lemA.1")
    w, b = rng.normal(size=6), rng.normal()
    a = data.x_train @ w + b
    groups = _quadruples(data)
    opposite = np.array([a[g[0]] + a[g[3]] for g in groups])
    rest = np.array([2 * (b + data.x_train[g[0], 2:] @ w[2:]) for g in groups])
    yield near_zero("a_{4k+1} + a_{4k+4} − 2(b + w[3:d]·s_k) at a random neuron", opposite - rest)
    yield printed(near_zero("a_{4k+1} + a_{4k+4} − 2b", opposite - 2 * b))


def _quadruples(data: Dataset) -> list[list[int]]:
    """Return the indices of (1,1), (1,−1), (−1,1), (−1,−1) for each value of the others."""
    places = {tuple(row): i for i, row in enumerate(data.x_train)}
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    rest = np.unique(data.x_train[:, 2:], axis=0)
    return [[places[*sign, *point] for sign in signs] for point in rest]


@claim("wen2023.lemA.2", "Appendix A.1, Lemma A.2", "rate",
       "‖γ‖² + ‖W2‖² ≥ 2‖γ ⊙ W2‖₁ with equality iff |γ| = |W2|; near its infimum 4 the neurons' "
       "weights on coordinates 3 to d are small relative to the whole neuron.",
       as_printed="Equality at γ = W2; ‖W_{1,i}[3:d]‖ ≤ ε in absolute size.", errata=("E15",),
       note="The compactness argument for general near-minimisers is not checked; a family that "
       "leaves the minimum is.")  # fmt: skip
def lemma_a2(trial: Trial) -> Lines:
    rng = trial.rng("lemA.2")
    g, w = rng.normal(size=(2, 1000, 5))
    excess = (g**2 + w**2).sum(1) - 2 * np.abs(g * w).sum(1)
    yield at_least("least ‖γ‖² + ‖W2‖² − 2‖γ ⊙ W2‖₁ of 1,000 random pairs", excess.min(), 0)
    data = complete(d=6, s=5, seed=trial.seed, n_test=0)
    tilts = [0.2, 0.1, 0.05, 0.025]
    made = [_tilted(data, tilt, 1.0) for tilt in tilts]
    excess = np.array([2 * np.abs(m.params["gamma"] * m.params["W2"]).sum() - 4 for m in made])
    first = [m.params["W1"][0] for m in made]
    ratio = [float(np.linalg.norm(w[2:]) / np.linalg.norm(w)) for w in first]
    yield near_zero("training loss of eight neurons (±1, ±1, ±η) at η = 0.2", made[0].loss())
    yield slope("exponent of the excess over 4 in η", tilts, excess, near=2, within=0.1)
    yield slope("exponent of the relative weight on x3 to xd", tilts, ratio, near=1, within=0.1)
    large = _tilted(data, 0.05, 1000.0)
    same = 2 * np.abs(large.params["gamma"] * large.params["W2"]).sum() - 4
    yield equal("excess at η = 0.05, first layer times 1,000", same, excess[2], rel=1e-6)
    yield printed(at_most("‖W_{1,1}[3:d]‖ there", np.linalg.norm(large.params["W1"][0, 2:]), 0.05))
    four = xor_batch_norm(data)
    yield printed(near_zero("largest |γ − W2|", four.params["gamma"] - four.params["W2"]))


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


@claim("wen2023.lemA.3", "Appendix A.1, Lemma A.3", "identity",
       "(2/n) Σ ‖∇_{γ,W2} f(x_i)‖² = 2(‖W2‖² + ‖γ‖²) for live neurons, so Tr ∇²L ≥ 2(‖W2‖² + ‖γ‖²) "
       "and under Condition 1 its infimum is 8.",
       as_printed="Tr ∇²L ≥ ‖W2‖² + ‖γ‖², with equal infima.", errata=("E2",))  # fmt: skip
def lemma_a3(trial: Trial) -> Lines:
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
    K, excess = (10, 100, 1000), np.array(traces) - 8
    yield slope("exponent of trace − 8 in the first layer's scale", K, excess, near=-2, within=1e-3)
    yield equal("trace at K = 1000", traces[-1], 8, rel=1e-5)
    made = xor_batch_norm(data)
    squares = float(np.sum(made.params["W2"] ** 2) + np.sum(made.params["gamma"] ** 2))
    yield shown("‖W2‖² + ‖γ‖² there", squares)
    yield printed(equal("trace at K = 1000 against ‖W2‖² + ‖γ‖²", traces[-1], squares, rel=1e-5))
