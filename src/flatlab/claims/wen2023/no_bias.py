"""Appendix A.2: networks without bias, their flattest minima and their norms."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import hyp0f1

from ...data import Dataset, ball, cube, from_arrays, sphere, xor
from ...measures.norms import PathNorm, WeightedNorm
from ...models.chains import TwoLayer
from ...theory.bounds import no_bias_floor
from ...theory.constructions import balanced, no_bias_xor, norm_balanced
from ...theory.rademacher import path_norm_ball
from ...theory.solution import Array, Solution
from ..contract import Trial, claim, printed
from ..instances import reading
from ..lines import Lines, at_least, at_most, equal, estimate, near_zero, shown, slope, true


def seed_of(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def uneven_network(
    rng: np.random.Generator, data: Dataset, width: int, spread: float = 1.0
) -> Solution:
    """Return a random network without bias whose neurons have very different sizes."""
    sizes = np.exp(spread * rng.normal(size=(2, width)))
    W1 = rng.normal(size=(width, data.d)) * sizes[0][:, None]
    params = {"W1": W1, "W2": rng.normal(size=width) * sizes[1]}
    return Solution(TwoLayer(width=width, bias=False), params, data)


def gaussian(rng: np.random.Generator, n: int, d: int, n_test: int = 0) -> Dataset:
    """Return Gaussian inputs with y = |x1| − |x2|, a network of four neurons and path norm 4."""
    x = rng.normal(size=(n + n_test, d))
    y = np.abs(x[:, 0]) - np.abs(x[:, 1])
    return from_arrays(x[:n], y[:n], x[n:], y[n:])


def teacher_of(data: Dataset) -> Solution:
    """Return the network |x1| − |x2|."""
    axes = np.eye(data.d)[:2]
    params = {"W1": np.vstack([axes, -axes]), "W2": np.array([1.0, -1.0, 1.0, -1.0])}
    return Solution(TwoLayer(width=4, bias=False), params, data)


def _prices(x: Array, u: Array) -> Array:
    """Return the price of u: what relu(u·x) adds to the trace of a balanced network."""
    h = np.maximum(u @ x.T, 0)
    return np.asarray(4 * np.sqrt((h > 0) @ np.sum(x**2, 1) * np.sum(h**2, 1)) / len(x))


def _worth(x: Array, u: Array, dual: Array) -> tuple[Array, Array]:
    """Maximise |Σ dual_i relu(u·x_i)|/price(u) by ascent; return directions and ratios."""
    best, ratios = u, np.full(len(u), -np.inf)
    for step in range(30):
        h = np.maximum(u @ x.T, 0)
        gain, price = h @ dual, _prices(x, u)
        ratio = np.where(price > 0, np.abs(gain) / np.where(price > 0, price, 1.0), 0.0)
        best = np.where((ratio > ratios)[:, None], u, best)
        ratios = np.maximum(ratios, ratio)
        gradient = ((h > 0) * dual) @ x / np.where(gain == 0, 1.0, gain)[:, None]
        power = np.sum(h**2, 1, keepdims=True)
        gradient -= h @ x / np.where(power > 0, power, 1.0)
        gradient -= np.sum(gradient * u, 1, keepdims=True) * u
        length = np.linalg.norm(gradient, axis=1, keepdims=True)
        u = u + 0.5 * 0.85**step * gradient / np.where(length > 0, length, 1.0)
        u = u / np.linalg.norm(u, axis=1, keepdims=True)
    return best, ratios


def least_trace(
    data: Dataset, rng: np.random.Generator, rounds: int, known: NDArray[np.floating] | None = None
) -> Solution:
    """Search for the flattest network without bias that interpolates.

    Over balanced networks the trace is Σ_j price(u_j)|c_j|, linear in |c|. So for given directions
    a linear programme finds the least trace; its dual then leads to new directions.
    """
    x, n, d = data.x_train, data.n, data.d
    u: Array = rng.normal(size=(3 * n + 100, d))
    u = np.vstack([u, np.empty((0, d)) if known is None else known])
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    for left in reversed(range(rounds)):
        price = _prices(x, u)
        u, price = u[price > 0], price[price > 0]
        h = np.maximum(x @ u.T, 0)
        columns = np.hstack([h, -h])
        solved = linprog(np.tile(price, 2), A_eq=columns, b_eq=data.y_train, method="highs")
        if solved.x is None:
            raise RuntimeError(f"no network of these neurons interpolates: {solved.message}")
        c = solved.x[: len(u)] - solved.x[len(u) :]
        dual = np.asarray(solved.eqlin.marginals)
        used = np.abs(c) > 1e-9
        if not left:
            break
        starts = np.vstack([u[used], rng.normal(size=(100, d))])
        new, ratios = _worth(x, starts / np.linalg.norm(starts, axis=1, keepdims=True), dual)
        u = np.vstack([u[np.abs(dual @ h) > 0.7 * price], new[ratios > 1 + 1e-6]])
    params = {"W1": u[used], "W2": c[used]}
    return balanced(Solution(TwoLayer(width=int(used.sum()), bias=False), params, data))


def extreme_powers(
    x: Array, rng: np.random.Generator, starts: int = 50, steps: int = 100
) -> tuple[Array, Array]:
    """Return unit w with small and with large (1/n) Σ relu(w·x_i)², by projected gradients."""
    found = []
    for direction in (-1.0, 1.0):
        w = rng.normal(size=(starts, x.shape[1]))
        for _ in range(steps):
            w /= np.linalg.norm(w, axis=1, keepdims=True)
            w = w + direction * 0.3 * np.maximum(w @ x.T, 0) @ x / len(x)
        found.append(w / np.linalg.norm(w, axis=1, keepdims=True))
    return found[0], found[1]


@claim("wen2023.cond2", "Appendix A.2, Condition 2", "construction",
       "x is symmetric and σ-subgaussian with covariance I, and y = f(x) for a network without "
       "bias with Σ‖w_j‖|a_j| ≤ C. The cube, N(0, I), the sphere of radius √d and the product of "
       "U[−√3, √3] are such with σ = 1; the ball needs radius √(d+2)",
       as_printed="Appendix B.2 takes the ball of radius √d for an example of Theorem A.1",
       errata=("E27",))  # fmt: skip
def cond2(trial: Trial) -> Lines:
    d, n = 6, trial.size(20_000, 200_000)
    rng, corners = trial.rng("cond2"), cube(d)
    yield near_zero("cube, d = 6, all 64 points: largest |E x|", corners.mean(0))
    covariance = corners.T @ corners / len(corners)
    yield near_zero("cube: largest entry of |E xxᵀ − I|", covariance - np.eye(d))
    rounded = sphere(d, n, seed_of(rng), n_test=0).x_train
    flat = rng.uniform(-math.sqrt(3), math.sqrt(3), (n, d))
    for name, x in (("sphere", rounded), ("N(0, I)", rng.normal(size=(n, d))), ("uniform", flat)):
        v = rng.normal(size=d)
        along = x @ (v / np.linalg.norm(v))
        yield estimate(f"{name}, d = 6: E (v·x)² for a random unit v, n = {n}", along**2, 1.0)
        yield estimate(f"{name}: E (v·x)³, zero by symmetry", along**3, 0.0)
    t = np.exp(rng.uniform(-2, 2.5, (2000, 1)))
    t = t * np.abs(rng.normal(size=(2000, d)))
    squares = np.sum(t**2, 1)
    logs = {
        "cube": np.sum(np.logaddexp(t, -t) - math.log(2), 1),
        "uniform": np.sum(np.log(np.sinh(math.sqrt(3) * t) / (math.sqrt(3) * t)), 1),
        "sphere": np.log(hyp0f1(d / 2, d * squares / 4)),
    }
    for name, log in logs.items():
        worst = float(np.max(log / (squares / 2)))
        yield at_most(f"{name}: largest log E e^(t·x) over |t|²/2, 2,000 random t", worst, 1.0)
    data = xor(d=d, n=8, seed=seed_of(rng), exact_test=True)
    network = no_bias_xor(data, epsilon=0.1)
    yield near_zero("xor on the whole cube as a network without bias: MSE", network.test_loss())
    first = ball(d, n, seed_of(rng), n_test=0).x_train[:, 0]
    yield estimate("ball of radius √(d+2), d = 6: E x1²", (d + 2) / d * first**2, 1.0)
    yield estimate("ball of radius √d: E x1² is d/(d+2)", first**2, d / (d + 2))
    yield printed(estimate("ball of radius √d: E x1²", first**2, 1.0))


@claim("wen2023.thmA.1", "Theorem A.1", "rate",
       "Under Condition 2 and for n = Ω(d log(d/δ)), every interpolating network without bias of "
       "least trace has E(f − y)² ≤ Õ(d/n)",
       note="The flattest network is searched by linear programs over neurons, once without and "
       "once with the true ones among the starts. A search gives one flat network, not all of "
       "them.")  # fmt: skip
def thm_a1(trial: Trial) -> Lines:
    d, draws = 4, trial.size(3, 10)
    counts = trial.size([12, 20, 36, 60], [12, 24, 48, 96, 144])
    blind: list[float] = []
    best_errors: list[float] = []
    ratios: list[float] = []
    worst_fit = 0.0
    for n in counts:
        errors, kept = [], []
        for draw in range(draws):
            data = gaussian(trial.rng("thmA.1 data", 1000 * n + draw), n, d, 4000)
            rng = trial.rng("thmA.1 search", 1000 * n + draw)
            searched = least_trace(data, rng, 6)
            informed = least_trace(data, rng, 4, teacher_of(data).params["W1"])
            best = min(searched, informed, key=lambda solution: solution.trace)
            errors.append(searched.test_loss())
            kept.append(best.test_loss())
            ratios.append(best.trace / balanced(teacher_of(data)).trace)
            worst_fit = max(worst_fit, best.loss(), searched.loss())
        blind.append(float(np.mean(errors)))
        best_errors.append(float(np.mean(kept)))
    size = f"y = |x1| − |x2|, N(0, I), d = {d}, {draws} draws"
    yield near_zero(f"largest training loss of the networks found, {size}", worst_fit, 1e-12)
    yield at_most("largest trace over that of the true network", max(ratios), 1.0, slack=1e-6)
    for n, error, kept_error in zip(counts, blind, best_errors, strict=True):
        yield shown(f"n = {n}: test MSE, true neurons not given", error)
        yield shown(f"n = {n}: test MSE of the flattest network found", kept_error)
    yield slope(f"exponent of n in the test MSE, n = {counts}, {size}", counts, blind, at_most=-1.0)
    scaled = np.array(best_errors) * np.array(counts) / (d * math.log(d))
    yield at_most("MSE·n/(d log d) of the flattest found, largest for n ≥ 9d", scaled[2:].max(), 1)


@claim("wen2023.lemA.4", "Lemma A.4", "rate",
       "The flattest interpolating networks lie in Θ_{C'} with C' = C₂C/C₁ and R_S(Θ_{C'}) ≤ "
       "Õ(√(d/n)): ‖W1‖² + d‖W2‖² ≥ 2√d Σ‖w_j‖|a_j| with equality if ‖w_j‖ = √d|a_j|, and "
       "max‖x_i‖² = Õ(d)",
       as_printed="max‖x_i‖² = Õ(√d); the last line for θ* has = for ≥; R_S ⊆ for R_S ≤",
       errata=("E21",))  # fmt: skip
def lem_a4(trial: Trial) -> Lines:
    rng = trial.rng("lemA.4")
    data = gaussian(rng, 30, 6)
    moved, off, least = 0.0, 0.0, math.inf
    for _ in range(trial.size(60, 600)):
        network = uneven_network(rng, data, 8)
        even = norm_balanced(network)
        f = network.outputs()
        moved = max(moved, float(np.abs(even.outputs() - f).max() / np.abs(f).max()))
        path = 2 * math.sqrt(data.d) * reading(PathNorm(), network)
        off = max(off, abs(reading(WeightedNorm(), even) / path - 1))
        least = min(least, reading(WeightedNorm(), network) / path)
    many = f"{trial.size(60, 600)} random networks, width 8, d = 6"
    yield near_zero(f"rescaled to ‖w_j‖ = √d|a_j|: largest relative change of f, {many}", moved)
    yield near_zero("then ‖W1‖² + d‖W2‖² is 2√d Σ‖w_j‖|a_j|: largest relative error", off)
    yield at_least("(‖W1‖² + d‖W2‖²)/(2√d Σ‖w_j‖|a_j|) without rescaling, least", least, 1.0)
    spread: list[float] = []
    for d in (4, 6, 8):
        data = gaussian(rng, 6 * d, d)
        teacher = norm_balanced(teacher_of(data))
        star = least_trace(data, rng, 4, teacher.params["W1"])
        high = max(map(max, _neuron_means(teacher)))
        low = min(map(min, _neuron_means(star)))
        path = reading(PathNorm(), star)
        name = f"flattest network found, N(0, I), d = {d}, n = {6 * d}, C = 4"
        yield at_most(f"{name}: trace over the true one's", star.trace / teacher.trace, 1.0)
        yield at_most(f"{name}: Σ‖w_j‖|a_j| against C₂C/C₁", path, 4 * high / low)
        spread.append(path / 4)
    yield at_most("Σ‖w_j‖|a_j|/C over d = 4, 6, 8, largest", max(spread), 2.0)
    weighted = reading(WeightedNorm(), star) / (2 * math.sqrt(data.d) * path)
    yield printed(equal("(‖W1*‖² + d‖W2*‖²)/(2√d Σ‖w*_j‖|a*_j|), d = 8", weighted, 1.0))
    dims = np.array([10, 20, 40, 80, 160, 320])
    norms = [float(np.max(np.sum(rng.normal(size=(4 * d, d)) ** 2, 1))) for d in dims]
    name = "exponent of d in max‖x_i‖², N(0, I), n = 4d, d = 10…320"
    yield slope(name, dims, norms, near=1.0, within=0.25)
    yield printed(slope(name, dims, norms, at_most=0.5))
    draws = trial.size(40, 200)
    counts, sizes = [25, 50, 100, 200], [4, 8, 16, 32]
    over_n = [path_norm_ball(_cube_sample(rng, n, 6), draws=draws, rng=rng) for n in counts]
    over_d = [path_norm_ball(_cube_sample(rng, 64, d), draws=draws, rng=rng) for d in sizes]
    values = [found.value for found in over_n]
    yield slope("exponent of n in R_S(Θ_1), cube, d = 6", counts, values, near=-0.5, within=0.15)
    values = [found.value for found in over_d]
    yield slope("exponent of d in R_S(Θ_1), cube, n = 64", sizes, values, near=0.5, within=0.2)
    ratio = max(found.value / found.bound for found in (*over_n, *over_d))
    yield at_most("largest R_S(Θ_1)/(2√(d/n)) of these", ratio, 1.0)


def _cube_sample(rng: np.random.Generator, n: int, d: int) -> Array:
    """Return n points of the cube as `flatlab.data` draws them."""
    return xor(d=d, n=n, seed=seed_of(rng), n_test=0).x_train


def _neuron_means(solution: Solution) -> tuple[Array, Array]:
    """Return 2A(w)/d and 2Q(w) for unit w along every neuron: the averages of eqs. (6) and (7)."""
    x, W1 = solution.data.x_train, solution.params["W1"]
    h = x @ (W1 / np.linalg.norm(W1, axis=1, keepdims=True)).T
    areas = 2 * np.sum((h > 0) * np.sum(x**2, 1)[:, None], 0) / x.size
    return areas, 2 * np.mean(np.maximum(h, 0) ** 2, 0)


@claim("wen2023.lemA.11", "Lemma A.11", "inequality",
       "C₁(‖W1‖² + d‖W2‖²) ≤ Tr ∇²L ≤ C₂(‖W1‖² + d‖W2‖²) for every interpolating network without "
       "bias, because Tr = Σ_j (2/n) Σ_i (a_j²‖x_i‖² 1[w_j·x_i > 0] + relu(w_j·x_i)²)",
       as_printed="the last sum of the display, over relu(w_j·x_i)², stands without its 2/n",
       errata=("E22",), note="The pointwise form is tried, with f(x_i) as labels. C₁ = 1/8 and C₂ "
       "= 4 are what the constants 1/16 and 2 of Lemma A.6 give; in the population the ratio is in "
       "[1/2, 1] on the cube.")  # fmt: skip
def lem_a11(trial: Trial) -> Lines:
    rng = trial.rng("lemA.11")
    data = xor(d=6, n=40, seed=seed_of(rng), n_test=0)
    network = uneven_network(rng, data, 8, spread=0.3)
    fitted = Solution(network.arch, network.params, from_arrays(data.x_train, network.outputs()))
    h = fitted.hidden()[0]
    outer = np.sum(fitted.params["W2"] ** 2 * (h > 0) * 6.0) * 2 / 40
    inner = np.sum(h**2)
    hessian = float(np.trace(fitted.hessian()))
    name = "dense Hessian's trace at an interpolating network, d = 6, n = 40, width 8"
    yield equal(name, hessian, outer + inner * 2 / 40, rel=1e-8)
    yield printed(equal(name, hessian, outer + inner, rel=1e-8))
    data = xor(d=10, n=200, seed=seed_of(rng), n_test=0)
    ratios = []
    for index in range(trial.size(60, 600)):
        network = uneven_network(rng, data, 12)
        if index % 2:
            network.params["W1"][:, 2:] *= rng.random((12, 8)) < 0.2
        ratios.append(network.trace / reading(WeightedNorm(), network))
    name = "trace/(‖W1‖² + d‖W2‖²), cube, d = 10, n = 200, width 12"
    yield at_least(f"{name}: least of {len(ratios)} random and sparse networks", min(ratios), 1 / 8)
    yield at_most("largest of them", max(ratios), 4.0)
    u = rng.normal(size=(4000, 10)) * (rng.random((4000, 10)) < rng.random((4000, 1)))
    u = np.vstack([u[np.any(u != 0, 1)], *extreme_powers(data.x_train, rng)])
    params = {"W1": u, "W2": np.ones(len(u))}
    means = _neuron_means(Solution(TwoLayer(width=len(u), bias=False), params, data))
    found = []
    for pick in (np.argmin, np.argmax):
        chosen = [int(pick(each)) for each in means]
        side = int(pick([each[place] for each, place in zip(means, chosen, strict=True)]))
        tiny = np.array([1e-6, 1.0]) if side == 0 else np.array([1.0, 1e-6])
        params = {"W1": tiny[0] * u[chosen[side]][None], "W2": tiny[1:]}
        one = Solution(TwoLayer(width=1, bias=False), params, data)
        found.append(one.trace / reading(WeightedNorm(), one))
    yield at_least("one neuron chosen to make it small", found[0], 1 / 8)
    yield at_most("one neuron chosen to make it large", found[1], 4.0)


@claim("wen2023.A2.4.construction", "Appendix A.2.4", "construction",
       "Four neurons with rows (±(1+ε), ±(1−ε), 0, …) and outputs ±1/(2 − 2ε) give xor on the "
       "whole cube for every ε in (0, 1), with Σ‖w_j‖|a_j| = 2√2 √(1+ε²)/(1−ε)",
       as_printed="Lemma 4.1 asks for f differentiable, as if the trace went on to the kinks.",
       errata=("E29",), note="At ε = 0 every training point is on two kinks; there the formal "
       "trace is 4√d, while the limit ε → 0 is 4√(2d).")  # fmt: skip
def construction(trial: Trial) -> Lines:
    small = xor(d=10, n=40, seed=seed_of(trial.rng("A2.4")), exact_test=True)
    data = xor(d=30, n=100, seed=seed_of(trial.rng("A2.4", 1)))
    for epsilon in (1e-6, 0.01, 0.1, 0.5, 0.9):
        whole, network = no_bias_xor(small, epsilon), no_bias_xor(data, epsilon)
        yield near_zero(f"ε = {epsilon:g}: MSE on the cube, d = 10", whole.test_loss(), 1e-20)
        expected = 2 * math.sqrt(2) * math.sqrt(1 + epsilon**2) / (1 - epsilon)
        yield equal(f"ε = {epsilon:g}: path norm, d = 30", reading(PathNorm(), network), expected)
        yield shown(f"ε = {epsilon:g}: trace when balanced, d = 30, n = 100", network.trace)
    limit = no_bias_xor(data, 1e-6).trace
    yield at_least("trace at ε = 10⁻⁶ over 4√d", limit / no_bias_floor(data), math.sqrt(2) * 0.98)
    on_kinks = no_bias_xor(data, 0.0)
    yield equal("formal trace at ε = 0 with relu'(0) = 0", on_kinks.trace, 4 * math.sqrt(30))
    yield printed(equal("trace at ε = 10⁻⁶ over that at 0", limit / on_kinks.trace, 1, rel=0.01))
    touching = float(np.mean(data.x_train @ on_kinks.params["W1"].T == 0))
    yield true("at ε = 0 half of all (point, neuron) pairs are on a kink", touching == 0.5)
