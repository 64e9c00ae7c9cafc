"""Appendices A.6.2 and A.6.3: Rademacher complexity, smooth losses, elementary inequalities."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigvalsh
from scipy.stats import binom

from ...data import cube, from_arrays
from ...losses import Loss
from ...models.chains import TwoLayer
from ...theory.geometry import on_circle
from ...theory.rademacher import finite_class, path_norm_ball
from ...theory.solution import Array, Solution
from ..contract import Trial, claim, printed
from ..lines import Lines, above, at_least, at_most, equal, frequency, near_zero, shown, slope


@claim("wen2023.defA.6", "Definition A.6", "definition",
       "R_S(F) = (1/n) E_σ sup_{f∈F} Σ_i σ_i f(x_i) over uniform signs: it scales with F, does not "
       "grow under convex hulls, and is 1/2 for all {0, 1}-valued functions")  # fmt: skip
def def_a6(trial: Trial) -> Lines:
    rng, n = trial.rng("defA.6"), 8
    values = rng.normal(size=(50, n))
    exact = finite_class(values)
    drawn = finite_class(values, draws=trial.size(200_000, 2_000_000), rng=rng)
    off = abs(drawn.value - exact.value) / drawn.standard_error
    yield at_most(f"50 functions, n = 8: |mean of {drawn.signs} signs − all 256|/s.e.", off, 4.0)
    yield equal("R(−3F) against 3R(F)", finite_class(-3 * values).value, 3 * exact.value, rel=1e-12)
    shifted = finite_class(values + rng.normal(size=n)).value
    yield equal("R(F + f0), n = 8", shifted, exact.value, rel=1e-12)
    mixtures = rng.dirichlet(np.full(50, 0.1), 2000) @ values
    hull = finite_class(np.vstack([values, mixtures])).value
    yield equal("R with 2,000 convex combinations added", hull, exact.value, rel=1e-12)
    both = finite_class(np.vstack([values, -values])).value
    yield at_least("R(F ∪ −F)", both, exact.value)
    yield equal("all {0, 1}-valued functions, n = 8", finite_class((cube(n) + 1) / 2).value, 0.5)
    yield near_zero("a single function, n = 8", finite_class(values[:1]).value, 1e-12)


@claim("wen2023.lemA.23", "Lemma A.23, eq. (23)", "probabilistic",
       "For f with values in [0, 1], sup_f |mean over S − E f| ≤ 2R_S(F) + 3√(log(4/δ)/n) with "
       "probability 1 − δ",
       note="The book cited has 4√(2 log(4/δ)/n); another proof gives the printed "
       "3√(log(4/δ)/n).")  # fmt: skip
def lem_a23(trial: Trial) -> Lines:
    rng, n, draws = trial.rng("lemA.23"), 30, trial.size(2000, 50_000)
    small = finite_class(np.tri(13, 12, -1)).value
    yield equal("R_S of thresholds, n = 12: enumerated and by reflection", small, _thresholds(12))
    x = np.sort(rng.random((draws, n)), 1)
    steps = np.arange(1, n + 1) / n
    distance = np.maximum(np.abs(x - steps), np.abs(x - steps + 1 / n)).max(1)
    counts = rng.multinomial(n, np.full(10, 0.1), size=draws)
    total = np.abs(counts / n - 0.1).sum(1) / 2
    # E max(0, S_c) of a sum of c signs: a subset takes the cells whose signs add up to more than 0.
    heads = np.array([_mean_positive_part(c) for c in range(n + 1)])
    subsets = heads[counts].sum(1) / n
    for delta in (0.1, 0.5):
        tail = 3 * math.sqrt(math.log(4 / delta) / n)
        for name, sup, complexity in (
            ("thresholds on [0, 1]", distance, np.full(draws, _thresholds(n))),
            ("all subsets of ten points", total, subsets),
        ):
            bound = 2 * complexity + tail
            yield frequency(f"{name}, n = 30, δ = {delta}: samples above the bound",
                            int(np.sum(sup > bound)), draws, at_most=delta)  # fmt: skip
            yield shown("largest supremum/bound of these", np.max(sup / bound))


def _thresholds(n: int) -> float:
    """Return R_S of thresholds on n points, (1/n) E max_k S_k of a walk S, by reflection."""
    levels = np.arange(1, n + 1)  # Pr(max_k S_k ≥ r) = Pr(S_n ≥ r) + Pr(S_n > r)
    upper = binom.sf(np.ceil((n + levels) / 2) - 1, n, 0.5)
    beyond = binom.sf(np.floor((n + levels) / 2), n, 0.5)
    return float(np.sum(upper + beyond)) / n


def _mean_positive_part(c: int) -> float:
    k = np.arange(c + 1)
    return float(np.sum(np.maximum(2 * k - c, 0) * binom.pmf(k, c, 0.5)))


@claim("wen2023.defA.9", "Definition A.9", "definition",
       "ℓ(f, y) is H-smooth if dℓ/df is H-Lipschitz: the squared error and its truncation with H = "
       "2, the logistic loss with H = 1/4")  # fmt: skip
def def_a9(trial: Trial) -> Lines:
    rng = trial.rng("defA.9")
    f = np.linspace(-8, 8, trial.size(20_001, 200_001))
    far = rng.permutation(len(f))
    truncated = Loss(name="truncated_mse", cutoff=1.3)
    for loss, smooth in ((Loss(name="mse"), 2.0), (truncated, 2.0), (Loss(name="logistic"), 0.25)):
        value, first, _ = loss.values(f, np.full_like(f, 1.0))
        near = np.abs(np.diff(first) / np.diff(f)).max()
        moved = far[f[far] != f]
        quotients = np.abs((first[far] - first)[f[far] != f] / (f[moved] - f[f[far] != f]))
        name = f"{loss.name}: largest |ℓ'(f) − ℓ'(g)|/|f − g|, {len(f)}"
        yield at_most(f"{name} neighbours in [−8, 8]", near, smooth, slack=1e-9)
        yield at_most(f"{name} random pairs", quotients.max(), smooth, slack=1e-9)
        yield at_least("and no smaller H will do: the largest", near, 0.999 * smooth)
        central = (value[2:] - value[:-2]) / (f[2:] - f[:-2])
        error = np.abs(central - first[1:-1]).max()
        yield near_zero("ℓ' against central differences of ℓ: largest error", error, 1e-3)


@claim("wen2023.thmA.3", "Theorem A.3", "rate",
       "For an H-smooth loss in [0, b], every f with no training error has L(f) ≤ O(H log³n R_n² + "
       "b log(1/δ)/n) with probability 1 − δ, R_n the worst-case complexity",
       note="Tried on linear functions of norm 1, where R_n = 1/√n and the worst interpolating "
       "function is known in closed form.")  # fmt: skip
def thm_a3(trial: Trial) -> Lines:
    counts, repeats = np.array([20, 40, 80, 160, 320]), trial.size(20, 200)
    rng, loss = trial.rng("thmA.3"), Loss(name="truncated_mse", cutoff=2.0)
    basis, spectrum, d = [], [], 160
    variances = np.arange(1, d + 1) ** -1.5
    variances /= variances.sum()
    for n in counts:
        errors = []
        for _ in range(repeats):
            seen = np.unique(rng.integers(0, 2 * n, n))
            truth = np.full(2 * n, 1 / math.sqrt(2 * n))
            worst = -truth.copy()  # norm 1, as large as possible on the unseen coordinates
            worst[seen] = truth[seen]
            errors.append(loss.values(worst, truth)[0].mean())
        basis.append(float(np.max(errors)))
    few = counts[:4] // 2
    for n in few:
        errors = []
        for _ in range(trial.size(2, 20)):
            x = rng.normal(size=(int(n), d)) * np.sqrt(variances)
            unseen = np.eye(d) - np.linalg.pinv(x) @ x
            # The largest E (v·x)² over ‖v‖ ≤ 2 with v orthogonal to all inputs: two interpolating
            # functions of norm 1 differ by such a v.
            top = eigvalsh(unseen * np.sqrt(variances) @ unseen.T * np.sqrt(variances)[:, None],
                           subset_by_index=[d - 1, d - 1])[0]  # fmt: skip
            errors.append(4 * float(top))
        spectrum.append(float(np.max(errors)))
    yield slope("exponent of n, inputs e_k of 2n, n = 20…320", counts, basis, near=-1.0, within=0.2)
    yield slope("the same, Gaussian of variances k^(−1.5), n = 10…80", few, spectrum, at_most=-1.0)
    ratio = max(
        float(np.max(np.array(found) * n / (2 * np.log(n) ** 3 + 8 * math.log(10))))
        for n, found in ((counts, basis), (few, spectrum))
    )
    yield at_most("largest L/(H log³n R_n² + b log(1/δ)/n), H = 2, b = 8, δ = 0.1", ratio, 1.0)


@claim("wen2023.lemA.24", "Lemma A.24", "inequality",
       "R_S(Θ_C) = (C/n) E_σ sup_{‖u‖=1} |Σ σ_i relu(u·x_i)| ≤ 2CB/√n for networks without bias "
       "with Σ‖w_j‖|a_j| ≤ C and inputs ‖x_i‖ ≤ B")  # fmt: skip
def lem_a24(trial: Trial) -> Lines:
    rng, ratios = trial.rng("lemA.24"), []
    for n in (1, 2, 4, 8, 10):
        for _ in range(trial.size(6, 60)):
            x = rng.normal(size=(n, 2))
            found = path_norm_ball(x, C=float(rng.uniform(0.5, 3)))
            ratios.append(found.value / found.bound)
    yield at_most(f"largest R_S/(2CB/√n), {len(ratios)} sets in the plane", max(ratios), 1.0)
    one = path_norm_ball(np.array([[3.0, 4.0]]), C=2.0)
    yield equal("one point of norm 5, C = 2: R_S = CB", one.value, 10)
    yield equal("and 2CB/√n, twice that", one.bound, 20)
    chosen = {
        "one point eight times": np.ones((8, 2)),
        "e1 and −e1, four times each": np.repeat([[1.0, 0.0], [-1.0, 0.0]], 4, axis=0),
        "equal steps on the circle": on_circle(np.arange(8) * math.pi / 4),
    }
    for name, x in chosen.items():
        found = path_norm_ball(x)
        yield at_most(f"{name}, n = 8: R_S/(2B/√n)", found.value / found.bound, 1.0)
    x = rng.normal(size=(8, 2))
    found = path_norm_ball(x)
    data = from_arrays(x, np.zeros(8))
    outputs = []
    for _ in range(trial.size(300, 3000)):
        params = {"W1": rng.normal(size=(6, 2)), "W2": rng.normal(size=6)}
        path = np.sum(np.linalg.norm(params["W1"], axis=1) * np.abs(params["W2"]))
        params["W2"] /= path
        outputs.append(Solution(TwoLayer(width=6, bias=False), params, data).outputs())
    outputs += [-f for f in outputs]
    random = finite_class(np.array(outputs)).value
    yield at_most(f"R of {len(outputs)} networks of path norm 1 / R_S", random / found.value, 1.0)
    angles = np.linspace(0, 2 * math.pi, 10_001)
    neurons = np.maximum(on_circle(angles) @ x.T, 0)
    single = finite_class(np.vstack([neurons, -neurons])).value
    # Between two grid angles a sum rises by at most Σ‖x_i‖ times half their distance.
    short = np.linalg.norm(x, axis=1).mean() * math.pi / 10_000
    yield at_most("R of ±10,001 single neurons over R_S(Θ_1)", single / found.value, 1.0)
    yield at_least("which they reach up to the grid's step: R", single, found.value - short)
    wide = path_norm_ball(rng.normal(size=(100, 10)), draws=trial.size(60, 600), rng=rng)
    yield at_most("N(0, I), d = 10, n = 100, searched: R_S/(2B/√n)", wide.value / wide.bound, 1.0)


@claim("wen2023.lemA.25", "Lemma A.25", "inequality",
       "R_S ≤ C/√n for x ↦ w·x with ‖w‖ ≤ 1 and inputs ‖x_i‖ ≤ C, because E‖Σσ_i x_i‖ ≤ √(Σ‖x_i‖²)",
       as_printed="E‖Σσ_i x_i‖ = √(Σ‖x_i‖²)", errata=("E24",))  # fmt: skip
def lem_a25(trial: Trial) -> Lines:
    rng, ratios, steps = trial.rng("lemA.25"), [], []
    for _ in range(trial.size(200, 2000)):
        n, d = int(rng.integers(1, 11)), int(rng.integers(1, 6))
        x = rng.normal(size=(n, d))
        mean = _mean_length(x)
        steps.append(mean / np.linalg.norm(x))
        ratios.append(mean / (math.sqrt(n) * np.linalg.norm(x, axis=1).max()))
    yield at_most(f"largest R_S/(C/√n), {len(ratios)} random sets, n ≤ 10, d ≤ 5", max(ratios), 1.0)
    yield at_most("largest E‖Σσ_i x_i‖/√(Σ‖x_i‖²) of these", max(steps), 1.0)
    yield equal("the same for six orthogonal vectors", _mean_length(np.eye(6)) / math.sqrt(6), 1.0)
    yield printed(equal("E|σ_1 + σ_2|, n = 2, x = 1", _mean_length(np.ones((2, 1))), math.sqrt(2)))


def _mean_length(x: Array) -> float:
    """Return E‖Σ σ_i x_i‖ over all signs."""
    return float(np.linalg.norm(cube(len(x)) @ x, axis=1).mean())


@claim("wen2023.lemA.26", "Lemma A.26", "inequality",
       "|relu(x)² − relu(y)²| ≤ (|x| + |y|)|x − y|")  # fmt: skip
def lem_a26(trial: Trial) -> Lines:
    count = trial.size(300_000, 3_000_000)
    x, y = trial.rng("lemA.26").normal(size=(2, count))
    sizes = 10.0 ** trial.rng("lemA.26", 1).uniform(-6, 0, count)
    for name, other in (("independent", y), ("near each other", x + sizes * y)):
        left = np.abs(np.maximum(x, 0) ** 2 - np.maximum(other, 0) ** 2)
        right = (np.abs(x) + np.abs(other)) * np.abs(x - other)
        excess = np.max((left - right) / (x**2 + other**2))
        yield at_most(f"largest (left − right side)/(x² + y²), {count} pairs {name}", excess, 0.0)
    positive = (x > 0) & (y > 0) & (np.abs(x - y) > 0.1)
    left, right = np.abs(x**2 - y**2)[positive], ((x + y) * np.abs(x - y))[positive]
    yield near_zero("left/right side − 1 where x, y > 0: equality", left / right - 1, 1e-9)


@claim("wen2023.lemA.27", "Lemma A.27", "inequality",
       "If a + d = b + c then (relu a + relu d − relu b − relu c)² ≤ relu(a)² + relu(b)² + "
       "relu(c)² + relu(d)², with equality if and only if at least three of the four are not "
       "positive")  # fmt: skip
def lem_a27(trial: Trial) -> Lines:
    """Random and small whole-number quadruples, where zeros and equalities are exact."""
    rng, count = trial.rng("lemA.27"), trial.size(300_000, 3_000_000)
    a, b, c = rng.normal(size=(3, count)) * rng.choice([0.0, 0.1, 1.0], (3, count))
    real = np.stack([a, b, c, b + c - a])
    whole = rng.integers(-4, 5, (3, count)).astype(float)
    whole = np.vstack([whole, whole[1] + whole[2] - whole[0]])
    for name, four in (("real numbers", real), ("whole numbers −4…4", whole)):
        kept = np.maximum(four, 0)
        left = (kept[0] + kept[3] - kept[1] - kept[2]) ** 2
        right = np.sum(kept**2, 0)
        yield at_most(f"largest left − right side, {count} {name}", np.max(left - right), 0.0)
    three = np.sum(whole <= 0, 0) >= 3
    yield near_zero("equality with fewer than three ≤ 0", np.sum((left == right) & ~three), 0.0)
    yield near_zero("no equality with three or more", np.sum((left != right) & three), 0.0)
    yield above("cases of equality met", np.sum(three), 1000)
