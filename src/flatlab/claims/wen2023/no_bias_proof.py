"""Appendices A.2.1 and A.2.3: averages over the training inputs, and the truncated loss."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull
from scipy.stats import binom

from ...data import cube, sphere
from ...data.cube import signs
from ...losses import Loss
from ...measures.norms import PathNorm
from ...models.chains import TwoLayer
from ...theory.geometry import on_circle
from ...theory.solution import Array, Solution
from ..contract import Trial, claim, printed
from ..instances import reading
from ..lines import Lines, above, at_least, at_most, below, equal, frequency, near_zero, shown, true
from .no_bias import extreme_powers, gaussian, seed_of, teacher_of, uneven_network


def _unit(rng: np.random.Generator, d: int) -> Array:
    w = rng.normal(size=d)
    return np.asarray(w / np.linalg.norm(w))


def _half_spaces(d: int) -> NDArray[np.bool_]:
    """Return the distinct patterns 1[w·x > 0] on the cube, w ≠ 0 with integer entries up to 3."""
    grids = np.meshgrid(*[np.arange(-3, 4)] * d)
    w = np.stack([grid.ravel() for grid in grids], 1)
    return np.unique(w[np.any(w != 0, 1)] @ cube(d).T > 0, axis=0)


def _least_active(x: Array, rng: np.random.Generator) -> float:
    """Search for the w of least (1/(nd)) Σ ‖x_i‖² 1[w·x_i > 0], by descent on a smoothed step."""
    sizes = np.sum(x**2, 1)
    w, least = rng.normal(size=(60, x.shape[1])), math.inf
    for step in range(60):
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        h = w @ x.T
        least = min(least, float(np.min((h > 0) @ sizes) / x.size))
        near = np.exp(-np.abs(h) * (2 + step / 4))
        gradient = (near * sizes) @ x
        w = w - 0.3 * gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
    return least


@claim("wen2023.lemA.5", "Lemma A.5, eq. (6)", "probabilistic",
       "C₁d ≤ (1/n) Σ ‖x_i‖² 1[w·x_i > 0] ≤ C₂d for all w ≠ 0 at once, with probability 1 − δ if n "
       "= Ω(d log(d/δ)); Pr(w·x > 0) can be as small as 1/4 on the cube",
       as_printed="for any w in R^d, w = 0 included; symmetry implies Pr(w·z > 0) = 1/2; 2048d²/n "
       "≤ 2048d² e^(−1024d) δ when log(2n/δ) > 1024d", errata=("E18",),
       note="C₁ = 1/8 and C₂ = 3/2 are tried. The union bound is N e^(−0.048n) for the N "
       "half-spaces of the cube of d = 4 with 0.048 = KL(1/8 ‖ 1/4).")  # fmt: skip
def lem_a5(trial: Trial) -> Lines:
    rng, corners = trial.rng("lemA.5"), cube(10)
    for name, w, expected in (
        ("e1 + e2", np.eye(10)[:2].sum(0), 0.25),
        ("e1 + e2 + e3 + e4", np.eye(10)[:4].sum(0), 0.3125),
        ("a random w", rng.normal(size=10), 0.5),
    ):
        yield equal(f"Pr(w·x > 0), cube, d = 10, w = {name}", np.mean(corners @ w > 0), expected)
    for d in (2, 3, 4):
        shares = _half_spaces(d).mean(1)
        yield equal(f"least Pr(w·x > 0) over all w ≠ 0, cube, d = {d}", shares.min(), 0.25)
    patterns = _half_spaces(4)
    random = np.unique(rng.normal(size=(20_000, 4)) @ cube(4).T > 0, axis=0)
    both = np.unique(np.vstack([patterns, random]), axis=0)
    yield equal("half-spaces of the cube, d = 4, with 20,000 random w", len(both), len(patterns))
    kl = math.log(0.5) / 8 + 7 / 8 * math.log((7 / 8) / (3 / 4))
    draws = trial.size(2000, 50_000)
    for n in (40, 160, 240):
        counts = rng.multinomial(n, np.full(16, 1 / 16), size=draws)
        low = int(np.sum((counts @ patterns.T).min(1) / n < 1 / 8))
        bound = min(1.0, len(patterns) * math.exp(-kl * n))
        yield frequency(f"draws with an average < d/8, d = 4, n = {n}", low, draws, at_most=bound)
    failures, tightest, repeats = 0, math.inf, trial.size(20, 200)
    for _ in range(repeats):
        x = rng.normal(size=(200, 10))
        found = _least_active(x, rng)
        failures += int(found < 1 / 8 or float(np.sum(x**2)) > 1.5 * x.size)
        tightest = min(tightest, found)
    yield frequency("draws outside [d/8, 3d/2], N(0, I), n = 200", failures, repeats, at_most=0.05)
    yield shown("least average/d found there", tightest)
    pair = np.mean(corners @ np.eye(10)[:2].sum(0) > 0)
    yield printed(equal("Pr(w·x > 0) for w = e1 + e2, d = 10", pair, 0.5))
    yield printed(at_least("average at w = 0 over d", np.mean(corners @ np.zeros(10) > 0), 1 / 8))
    n, log_delta = 3000, -2000.0  # log(2n/δ) = 2009 > 1024 at d = 1
    yield printed(at_most("log of 2048/n at d = 1, n = 3,000, δ = e^(−2000)", math.log(2048 / n),
                          math.log(2048) - 1024 + log_delta))  # fmt: skip


@claim("wen2023.lemA.6", "Lemma A.6, eq. (7)", "probabilistic",
       "C₁ ≤ (1/n) Σ (w·x_i)² 1[w·x_i > 0] ≤ C₂ for all unit w at once, with probability 1 − δ if "
       "n = Ω(d log(d/δ)); the proof gives 1/16 and 2 from a 1/64-covering of at most 129^d points",
       as_printed="the 1/64-covering has N ≤ 128^d points; ‖w − w_k‖ ≤ 1/32", errata=("E20",),
       note="δ = d e^(−n/2d) is tried.")  # fmt: skip
def lem_a6(trial: Trial) -> Lines:
    rng, d = trial.rng("lemA.6"), 10
    h = cube(d) @ _unit(rng, d)
    yield equal("E (w·x)² 1[w·x > 0], cube, d = 10, random w", np.mean(np.maximum(h, 0) ** 2), 0.5)
    repeats = trial.size(60, 500)
    worst_step, low, high = 0.0, math.inf, 0.0
    for n in (80, 160):
        failures = 0
        for _ in range(repeats):
            x = signs(rng, n, d)
            small, large = extreme_powers(x, rng, 15, 50)
            least = np.mean(np.maximum(small @ x.T, 0) ** 2, 1).min()
            most = np.mean(np.maximum(large @ x.T, 0) ** 2, 1).max()
            top = float(np.linalg.eigvalsh(x.T @ x / n)[-1])
            failures += least < 1 / 16 or most > 2
            low, high = min(low, float(least)), max(high, float(most) / top)
            w = rng.normal(size=(20, d))
            w /= np.linalg.norm(w, axis=1, keepdims=True)
            slopes = np.maximum(w @ x.T, 0) @ x
            slopes -= np.sum(slopes * w, 1, keepdims=True) * w
            other = w + slopes / np.linalg.norm(slopes, axis=1, keepdims=True) / 64
            other /= np.linalg.norm(other, axis=1, keepdims=True)
            moved = np.mean(np.maximum(w @ x.T, 0) ** 2 - np.maximum(other @ x.T, 0) ** 2, 1)
            allowed = 2 * top * np.linalg.norm(w - other, axis=1)
            worst_step = max(worst_step, float(np.max(np.abs(moved) / allowed)))
        bound = d * math.exp(-n / (2 * d))
        yield frequency(f"draws outside [1/16, 2], cube, n = {n}", failures, repeats, at_most=bound)
    yield shown("least average found", low)
    yield at_most("largest average over λ_max(XᵀX/n)", high, 1.0)
    yield at_most("step of the proof: |Q(w) − Q(w')|/(2λ_max‖w − w'‖), largest", worst_step, 1.0)
    for covering, bound in ((64, 1 / 16), (32, 1 / 16)):
        left = 1 / 8 - 2 * 2 / covering
        line = at_least(f"1/8 − 2·2·‖w − w_k‖ at ‖w − w_k‖ = 1/{covering}", left, bound)
        yield line if covering == 64 else printed(line)
    yield printed(at_most("(2/ε + 1)^d at ε = 1/64, d = 1", 2 / (1 / 64) + 1, 128))


@claim("wen2023.lemA.7", "Lemma A.7, eq. (8)", "probabilistic",
       "For one unit w, 1/2 ≤ (1/n) Σ (w·x_i)² ≤ 3/2 with probability 1 − δ if n ≥ C log(2/δ)",
       note="The proof calls w·x subexponential with mean 1; (w·x)² is meant. C = 22 is tried: "
       "1/22 < (1/2 − log(3/2))/2, the exponent of the upper tail of chi-square.")  # fmt: skip
def lem_a7(trial: Trial) -> Lines:
    yield from _failures(trial, "lemA.7", 2.0, False)


@claim("wen2023.lemA.8", "Lemma A.8, eqs. (9)–(12)", "probabilistic",
       "For one unit w, 1/8 ≤ (1/n) Σ (w·x_i)² 1[w·x_i > 0] ≤ 3/2 with probability 1 − δ if n ≥ C "
       "log(4/δ): the summand has the law of (w·x)² c with c uniform on {0, 1}, and Pr(mean of c ≤ "
       "1/4) ≤ e^(−n/16)",
       as_printed="c is a Rademacher variable, uniform on {−1, 1}", errata=("E19",),
       note="C = 22 is tried.")  # fmt: skip
def lem_a8(trial: Trial) -> Lines:
    yield from _failures(trial, "lemA.8", 4.0, True)
    rng = trial.rng("lemA.8 doubling")
    for name, w in (("random w", _unit(rng, 10)), ("w = e1 + e2", np.eye(10)[:2].sum(0))):
        h = cube(10) @ w
        law = np.sort(np.tile(np.where(h > 0, h**2, 0.0), 2))
        halved = np.sort(np.concatenate([h**2, np.zeros_like(h)]))
        signed = np.sort(np.concatenate([h**2, -(h**2)]))
        what = f"distance of the laws of (w·x)² 1[w·x > 0] and (w·x)² c, cube, d = 10, {name}"
        yield near_zero(f"{what}, c in {{0, 1}}", law - halved)
        yield printed(near_zero(f"{what}, c in {{−1, 1}}", law - signed))
    counts = np.arange(1, 401)
    bounds = np.exp(-counts / 16)
    zeros = binom.cdf(np.floor(counts / 4), counts, 0.5)  # number of ones ≤ n/4
    yield at_most("largest Pr(mean of c ≤ 1/4)/e^(−n/16), n = 1…400", np.max(zeros / bounds), 1.0)
    rademacher = float(binom.cdf(62, 100, 0.5))  # 2k − n ≤ n/4 is k ≤ 62.5
    yield printed(at_most("Pr(mean of c ≤ 1/4), n = 100, c in {−1, 1}", rademacher, bounds[99]))


def _failures(trial: Trial, name: str, factor: float, half: bool) -> Lines:
    """Yield lines on how often the average along one direction leaves its interval."""
    rng, d, draws = trial.rng(name), 10, trial.size(2000, 50_000)
    low = 1 / 8 if half else 1 / 2
    for n in (40, 80, 160):
        w = _unit(rng, d)
        # The projections of all draws, a few thousand rows at a time.
        on_cube = np.concatenate([signs(rng, 100 * n, d) @ w for _ in range(draws // 100)])
        for law, h in (("cube", on_cube), ("N(0, I)", rng.normal(size=draws * n))):
            kept = np.maximum(h, 0) if half else h
            means = np.mean(kept.reshape(draws, n) ** 2, 1)
            failures = int(np.sum((means < low) | (means > 1.5)))
            bound = min(1.0, factor * math.exp(-n / 22))
            what = f"draws outside [{low:g}, 3/2], {law}, d = 10, n = {n}"
            yield frequency(what, failures, draws, at_most=bound)


def _distance_to(points: Array, x: Array) -> Array:
    """Return the distance of every x to the nearest of the points, all of length one."""
    return np.asarray(np.sqrt(np.maximum(2 - 2 * (x @ points.T).max(1), 0)))


@claim("wen2023.defA.1", "Definition A.1", "definition",
       "S is an ε-covering of S' if every s' in S' has some s in S with ‖s − s'‖ ≤ ε")  # fmt: skip
def def_a1(trial: Trial) -> Lines:
    angles = trial.rng("defA.1").uniform(0, 2 * math.pi, trial.size(200_000, 2_000_000))
    circle = on_circle(angles)
    for count in (3, 8, 20):
        steps = 2 * math.pi * np.arange(count) / count
        far = _distance_to(on_circle(steps), circle)
        radius = 2 * math.sin(math.pi / (2 * count)) * (1 + 1e-12)
        name = f"{count} equal steps on the circle, {len(circle)} random points"
        yield true(f"{name}: a covering at ε = 2 sin(π/2N)", bool(np.all(far <= radius)))
        yield true(f"{name}: none at 0.999 ε", not np.all(far <= 0.999 * radius))


@claim("wen2023.lemA.9", "Lemma A.9", "inequality",
       "The unit sphere of R^d has an ε-covering with fewer than (2/ε + 1)^d points: every maximal "
       "set of points at mutual distance ε or more is one")  # fmt: skip
def lem_a9(trial: Trial) -> Lines:
    """Maximal separated sets, completed by the facets of their convex hull."""
    rng = trial.rng("lemA.9")
    cases = [(2, 0.5), (2, 0.2), (2, 1.9), (3, 0.5), (3, 0.3), (4, 0.7)]
    for d, epsilon in cases + trial.size([], [(3, 0.1), (4, 0.4)]):
        net = _maximal_set(d, epsilon, rng)
        gaps = np.sqrt(np.maximum(2 - 2 * net @ net.T, 0)) + 10 * np.eye(len(net))
        name = f"d = {d}, ε = {epsilon:g}"
        yield at_least(f"{name}: least distance in a maximal set", gaps.min(), epsilon)
        fresh = sphere(d, 20_000, seed_of(rng), n_test=0).x_train / math.sqrt(d)
        yield at_most(f"{name}: distance of 20,000 points", _distance_to(net, fresh).max(), epsilon)
        yield below(f"{name}: its number of points", len(net), (2 / epsilon + 1) ** d)


def _maximal_set(d: int, epsilon: float, rng: np.random.Generator) -> Array:
    """Return a set of unit vectors at distance ≥ ε to which no further one can be added."""
    pool = rng.normal(size=(2000, d))
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)
    net = pool[:1]
    for x in pool:
        if _distance_to(net, x[None])[0] >= epsilon:
            net = np.vstack([net, x])
    while len(net) > d:
        # The unit normal of a facet is the point farthest from the vertices near it.
        normals = ConvexHull(net).equations[:, :-1]
        far = _distance_to(net, normals)
        if far.max() < epsilon:
            break
        net = np.vstack([net, normals[np.argmax(far)]])
    return net


@claim("wen2023.lemA.10", "Lemma A.10, eqs. (13)–(14)", "probabilistic",
       "1/4 ≤ (1/n) Σ (w·x_i)² ≤ 2 for all unit w at once, with probability 1 − δ if n ≥ C d "
       "log(d/δ)", note="C = 2 is tried, so δ = d e^(−n/2d).")  # fmt: skip
def lem_a10(trial: Trial) -> Lines:
    rng, draws = trial.rng("lemA.10"), trial.size(300, 3000)
    sizes = ((5, 40), (5, 80), (10, 40), (10, 80), (10, 160), (20, 160), (20, 320))
    for (d, n), law in itertools.product(sizes, ("cube", "N(0, I)")):
        x = signs(rng, draws * n, d) if law == "cube" else rng.normal(size=(draws * n, d))
        x = x.reshape(draws, n, d)
        values = np.linalg.eigvalsh(np.einsum("kni,knj->kij", x, x, optimize=True) / n)
        failures = int(np.sum((values[:, 0] < 1 / 4) | (values[:, -1] > 2)))
        what = f"draws with an eigenvalue outside [1/4, 2], {law}, d = {d}, n = {n}"
        yield frequency(what, failures, draws, at_most=min(1.0, d * math.exp(-n / (2 * d))))
    x, worst = signs(rng, 40, 10), 0.0
    top = float(np.linalg.eigvalsh(x.T @ x / 40)[-1])
    for _ in range(2000):
        v, w = _unit(rng, 10), _unit(rng, 10)
        difference = abs(np.mean((x @ v) ** 2) - np.mean((x @ w) ** 2))
        allowed = top * np.linalg.norm(v - w) * np.linalg.norm(v + w)
        worst = max(worst, float(difference / allowed))
    yield at_most("|Q(v) − Q(w)|/(λ_max‖v − w‖‖v + w‖), largest of 2,000 pairs", worst, 1.0)
    yield at_most("points of a 1/16-covering, 33^d, against 64^d, d = 10", 33.0**10, 64.0**10)
    gamma = 1.5 / (1 - 1 / 8)
    yield at_most("γ − 3/2 ≤ γ/8 gives γ at most", gamma, 2.0)
    yield at_least("then 1/2 − γ/8 is at least", 1 / 2 - gamma / 8, 1 / 4)


@claim("wen2023.eq15", "Appendix A.2.3, eq. (15)", "definition",
       "ℓ_c(z) = z² for |z| ≤ c, −z² + 4c|z| − 2c² for c ≤ |z| ≤ 2c and 2c² beyond is once "
       "continuously differentiable, 2-smooth, and 0 ≤ ℓ_c ≤ min(z², 2c²)")  # fmt: skip
def eq15(trial: Trial) -> Lines:
    grid = np.linspace(-3, 3, trial.size(20_001, 200_001))
    for c in (0.3, 1.7):
        z = c * grid
        loss = Loss(name="truncated_mse", cutoff=c)
        value, first, _ = loss.values(z, np.zeros_like(z))
        size = np.abs(z)
        middle = (size >= c) & (size <= 2 * c)
        expected = np.where(size < c, z**2, np.where(middle, -(z**2) + 4 * c * size - 2 * c**2,
                                                     2 * c**2))  # fmt: skip
        name = f"c = {c}, {len(z)} points of [−3c, 3c]"
        yield near_zero(f"largest |loss − formula|, {name}", value - expected, 1e-12)
        yield at_least("least value", value.min(), 0.0)
        excess = value - np.minimum(z**2, 2 * c**2)
        yield at_most("largest excess over min(z², 2c²)", excess.max(), 0.0)
        step = z[1] - z[0]
        yield at_most("largest |Δℓ'|/|Δz|", np.abs(np.diff(first)).max() / step, 2.0, slack=1e-8)
        slopes = (value[2:] - value[:-2]) / (2 * step)
        error = np.abs(slopes - first[1:-1]).max() / step
        yield near_zero("largest |ℓ' − central difference| over the step", error, 1.0)
        gap = (z**2 - value - 2 * (size - c) ** 2)[middle]
        yield near_zero("z² − ℓ_c − 2(|z| − c)² between c and 2c", gap, 1e-12)


@claim("wen2023.thmA.1.truncation", "Proof of Theorem A.1", "inequality",
       "E(f − y)² 1[|f − y| ≥ c] ≤ 4 E f² 1[|f| ≥ c/2] + 4 E y² 1[|y| ≥ c/2]",
       as_printed="E(f − y)² 1[|f − y| ≥ c] ≤ 2 E f² 1[|f| ≥ c] + 2 E y² 1[|y| ≥ c]",
       errata=("E23",))  # fmt: skip
def truncation(trial: Trial) -> Lines:
    rng = trial.rng("truncation")

    def sides(f: Array, y: Array, c: float, share: float, factor: float) -> tuple[Array, Array]:
        left = (f - y) ** 2 * (np.abs(f - y) >= c)
        kept = [v**2 * (np.abs(v) >= share * c) for v in (f, y)]
        return left, factor * (kept[0] + kept[1])

    random = np.exp(rng.normal(size=(2, 100_000))) * rng.choice([-1.0, 1.0], (2, 100_000))
    grid = np.meshgrid(np.linspace(-5.1, 5.1, 601), np.linspace(-5.1, 5.1, 601))
    for name, (f, y) in (("100,000 random pairs", random), ("a grid through the thresholds", grid)):
        left, right = sides(f, y, 1.7, 0.5, 4.0)
        ratio = np.max(left[left > 0] / right[left > 0])
        yield at_most(f"largest left side/right side, {name}, c = 1.7", ratio, 1.0)
    pair = sides(np.array([1.02]), np.array([-1.02]), 1.7, 1.0, 2.0)
    yield printed(at_most("left side at f = 0.6c, y = −0.6c, c = 1.7", pair[0][0], pair[1][0]))
    data = gaussian(rng, 1, 5, 20_000)
    network, teacher = uneven_network(rng, data, 6, 0.3), teacher_of(data)
    c = 2 * float(np.abs(teacher.outputs(data.x_test)).max())
    for name, f, cutoff in (
        ("a random network", network.outputs(data.x_test), 1.7),
        ("minus the true network", -teacher.outputs(data.x_test), 0.9 * c),
    ):
        left, right = sides(f, data.y_test, cutoff, 0.5, 4.0)
        yield at_most(f"mean over 20,000 inputs, f {name}", left.mean(), right.mean())
    left, right = sides(f, data.y_test, cutoff, 1.0, 2.0)
    yield printed(at_most("mean with f minus the true network", left.mean(), right.mean()))


@claim("wen2023.thmA.1.fbound", "Proof of Theorem A.1", "inequality",
       "|f(x)| ≤ Σ_j |a_j|‖w_j‖‖x‖ for every network without bias")  # fmt: skip
def fbound(trial: Trial) -> Lines:
    rng = trial.rng("fbound")
    data = sphere(8, 200, seed_of(rng), n_test=0)
    sizes = np.linalg.norm(data.x_train, axis=1)
    ratios = []
    for _ in range(trial.size(200, 2000)):
        network = uneven_network(rng, data, int(rng.integers(1, 10)))
        path = reading(PathNorm(), network)
        ratios.append(float(np.max(np.abs(network.outputs()) / (path * sizes))))
    yield at_most(f"largest |f|/(Σ|a_j|‖w_j‖‖x‖), {len(ratios)} networks, d = 8", max(ratios), 1.0)
    top = data.x_train[0]
    W1 = rng.normal(size=(5, 8))
    for _ in range(200):
        W1 = W1 + 0.1 * top * np.linalg.norm(W1, axis=1, keepdims=True)
        network = Solution(TwoLayer(width=5, bias=False), {"W1": W1, "W2": np.ones(5)}, data)
        W1 = W1 / np.linalg.norm(W1, axis=1, keepdims=True)
    best = abs(network.outputs()[0]) / (reading(PathNorm(), network) * sizes[0])
    yield at_most("the same after turning all neurons towards one input", best, 1.0)
    yield above("so the bound is sharp", best, 0.9999)
