"""Appendix A.6.1: subgaussian and subexponential variables, their tails and moments."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats
from scipy.integrate import quad
from scipy.special import gammaln, hyp0f1, ive

from ...data import sphere
from ...data.dataset import Array
from ..contract import Trial, claim, printed
from ..lines import Lines, above, at_least, at_most, equal, estimate, near_zero, shown, slope
from .no_bias import seed_of

ROOT3, ROOT_2PI = math.sqrt(3), math.sqrt(2 * math.pi)


def _log_cosh(t: Array) -> Array:
    return np.asarray(np.logaddexp(t, -t) - math.log(2))


def _log_uniform(t: Array) -> Array:
    """Return log E e^{tX} for X uniform on [−√3, √3], of variance 1."""
    s = ROOT3 * np.maximum(np.abs(t), 1e-9)
    return np.asarray(s + np.log(-np.expm1(-2 * s) / (2 * s)))


def _log_sphere(d: int, size: Array) -> Array:
    """Return log E e^{t·u} for u uniform on the unit sphere of R^d and ‖t‖ = size.

    The mean is Γ(d/2) (2/s)^ν I_ν(s) with ν = d/2 − 1.
    """
    order = d / 2 - 1
    logs = np.log(ive(order, size)) + size
    return np.asarray(gammaln(d / 2) + order * np.log(2 / size) + logs)


def spread_of(d: int, radius: float, share: float) -> float:
    """Return the least σ² of a vector uniform on a sphere with probability `share`, else 0."""
    t = np.geomspace(0.05, 40 - 6 * math.log(share), 800)
    logs = np.logaddexp(math.log1p(-share) if share < 1 else -np.inf,
                        math.log(share) + _log_sphere(d, t))  # fmt: skip
    variance = share / d  # required by λ → 0
    return radius**2 * max(variance, float(np.max(2 * logs / t**2)))


@claim("wen2023.defA.3", "Definition A.3", "definition",
       "X is σ-subgaussian if E X = 0 and E e^{λX} ≤ e^{σ²λ²/2} for all λ; signs, U[−√3, √3] and "
       "N(0, 1) are with σ = 1, the Laplace law is with none")  # fmt: skip
def def_a3(trial: Trial) -> Lines:
    grid = np.linspace(-20, 20, trial.size(4001, 40_001))
    grid = grid[grid != 0]
    half = grid**2 / 2
    for name, logs in (("signs", _log_cosh(grid)), ("U[−√3, √3]", _log_uniform(grid))):
        what = f"{name}: largest log E e^(λX)/(λ²/2), |λ| ≤ 20, {len(grid)} values"
        yield at_most(what, np.max(logs / half), 1.0, slack=1e-7)
        yield above(f"{name}: the same, so that no σ < 0.99 will do", np.max(logs / half), 0.99**2)
    worst = 0.0
    for t in (-3.0, -1.0, 0.5, 2.0):
        value = quad(lambda x, t=t: math.exp(t * x - x * x / 2) / ROOT_2PI, -40, 40)[0]
        worst = max(worst, abs(math.log(value) / (t * t / 2) - 1))
    yield near_zero("N(0, 1) by quadrature: log E e^(λX)/(λ²/2) − 1, four λ", worst, 1e-7)
    close = 1 - np.geomspace(1e-1, 1e-12, 12)  # E e^{λX} = 1/(1 − λ²) for |λ| < 1
    needed = 2 * -np.log1p(-(close**2)) / close**2
    yield above("Laplace: the σ² that λ = 1 − 10⁻¹² asks for", needed[-1], 10 * needed[0])
    yield slope("Laplace: exponent of log 1/(1−λ)", -np.log(1 - close), needed, near=1.0)


@claim("wen2023.defA.4", "Definition A.4", "definition",
       "A vector is σ-subgaussian if E x = 0 and E e^{λ·x} ≤ e^{σ²‖λ‖²/2} for all λ; products of "
       "σ-subgaussian laws are, and the sphere of radius √d with σ = 1")  # fmt: skip
def def_a4(trial: Trial) -> Lines:
    rng = trial.rng("defA.4")
    for d in (2, 5, 30):
        vectors = rng.normal(size=(trial.size(2000, 20_000), d))
        vectors *= np.exp(rng.uniform(-3, 2, (len(vectors), 1)))
        half = np.sum(vectors**2, 1) / 2
        for name, log in (("cube", _log_cosh), ("product of U[−√3, √3]", _log_uniform)):
            ratio = np.max(np.sum(log(vectors), 1) / half)
            yield at_most(f"{name}, d = {d}: log E e^(λ·x)/(‖λ‖²/2)", ratio, 1.0, slack=1e-7)
    sizes = np.geomspace(1e-2, 10, 300)
    for d in (2, 3, 10, 30):
        logs = _log_sphere(d, math.sqrt(d) * sizes)
        ratio = np.max(logs / (sizes**2 / 2))
        yield at_most(f"sphere of radius √{d}: the same, 300 lengths", ratio, 1.0, slack=1e-7)
        x = sphere(d, trial.size(20_000, 200_000), seed_of(rng), n_test=0).x_train
        yield estimate(f"E e^(x1), d = {d}", np.exp(x[:, 0]), float(hyp0f1(d / 2, d / 4)))


@claim("wen2023.defA.5", "Definition A.5", "definition",
       "X is (σ, α)-subexponential if E e^{λ(X − EX)} ≤ e^{σ²λ²/2} for |λ| ≤ 1/α: chi-square is "
       "(4√2, 4), though not subgaussian, since E e^{λX} is infinite from λ = 1/2 on")  # fmt: skip
def def_a5(trial: Trial) -> Lines:
    grid = np.linspace(-0.25, 0.25, trial.size(2001, 20_001))
    grid = grid[grid != 0]
    ratio = (-grid - np.log1p(-2 * grid) / 2) / (16 * grid**2)
    yield at_most("N(0, 1)²: log E e^(λ(X²−1))/(σ²λ²/2), |λ| ≤ 1/4", ratio.max(), 1.0)
    worst = 0.0
    for t in (-0.25, -0.1, 0.1, 0.25):
        value = quad(lambda x, t=t: math.exp(t * (x * x - 1) - x * x / 2), -60, 60)[0]
        exact = -t - math.log1p(-2 * t) / 2
        worst = max(worst, abs(math.log(value / ROOT_2PI) - exact))
    yield near_zero("the closed form against quadrature at four λ: largest error", worst, 1e-8)
    close = 0.5 - np.geomspace(1e-3, 1e-9, 7)
    logs = -close - np.log1p(-2 * close) / 2
    yield above("log E e^(λ(X²−1)) at λ = 1/2 − 10⁻⁹, where (4√2)²λ²/2 is 4", logs[-1], 4.0)


@claim("wen2023.lemA.14", "Lemma A.14", "inequality",
       "If X is σ-subgaussian then X² is (4√2 σ², 4σ²)-subexponential: log E e^{λ(X² − EX²)} ≤ "
       "16σ⁴λ² for |λ| ≤ 1/(4σ²)")  # fmt: skip
def lem_a14(trial: Trial) -> Lines:
    grid = np.linspace(-0.25, 0.25, trial.size(401, 4001))
    grid = grid[grid != 0]
    ratio = (-grid - np.log1p(-2 * grid) / 2) / (16 * grid**2)
    yield at_most("N(0, 1): largest left side/right side, |λ| ≤ 1/4", ratio.max(), 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    values = np.exp(np.outer(grid, 3 * nodes**2 - 1)) @ (weights / 2)
    yield at_most("U[−√3, √3]: the same", np.max(np.log(values) / (16 * grid**2)), 1.0)
    worst = 0.0
    for share in np.geomspace(1e-6, 1, trial.size(200, 2000)):
        # X = ±1 with this probability, else 0; here log E e^{λX} = log(1 − p + p cosh λ).
        t = np.geomspace(1e-3, 200, 1000)
        logs = np.logaddexp(np.log1p(-share) if share < 1 else -np.inf,
                            math.log(share) + _log_cosh(t))  # fmt: skip
        s2 = float(np.max(2 * logs / t**2))
        lam = grid / s2
        left = np.log1p(share * np.expm1(lam)) - lam * share
        worst = max(worst, float(np.max(left / (16 * s2**2 * lam**2))))
    yield at_most("three points −1, 0, 1, their least σ, probabilities 10⁻⁶…1: largest", worst, 1.0)


@claim("wen2023.lemA.15", "Lemma A.15 (Hoeffding)", "inequality",
       "Pr(|mean of n| ≥ t) ≤ 2e^{−n t²/(2σ²)} for independent σ-subgaussian "
       "variables")  # fmt: skip
def lem_a15(trial: Trial) -> Lines:
    worst, grid = {"signs": 0.0, "N(0, 1)": 0.0}, np.linspace(0, 1, 51)
    for n in (5, 20, 100):
        # The mean of signs is (2k − n)/n; k ≥ n(1 + t)/2, with room for rounding.
        tails = 2 * stats.binom.sf(np.ceil(n * (1 + grid) / 2 - 1e-9) - 1, n, 0.5)
        bounds = 2 * np.exp(-n * grid**2 / 2)
        worst["signs"] = max(worst["signs"], float(np.max(np.minimum(tails, 1) / bounds)))
        normal = 2 * stats.norm.sf(math.sqrt(n) * grid)
        worst["N(0, 1)"] = max(worst["N(0, 1)"], float(np.max(normal / bounds)))
    for name, ratio in worst.items():
        yield at_most(f"{name}: largest exact tail/bound, n = 5, 20, 100, t = 0…1", ratio, 1.0)
    t = np.array([2.0, 4.0, 8.0, 16.0])
    rates = -stats.norm.logsf(t) / t**2
    yield at_least("N(0, 1), n = 1: −log(tail/2)/t² at t = 16, limit 1/(2σ²)", rates[-1], 0.5)
    yield at_most("so that 1/(2σ²) cannot be replaced by 0.52", rates[-1], 0.52)


@claim("wen2023.lemA.16", "Lemma A.16 (Bernstein)", "inequality",
       "Pr(|mean of n − E| ≥ t) ≤ 2e^{−nC min(t, t²)} with C = min(1/(2σ²), 1/(2α)) for "
       "independent (σ, α)-subexponential variables")  # fmt: skip
def lem_a16(trial: Trial) -> Lines:
    t, counts = np.linspace(0, 10, 201), (1, 10, 100)
    lam = np.linspace(-0.5, 0.5, 2001)
    lam = lam[lam != 0]
    exponential = float(np.max(2 * (-lam - np.log1p(-lam)) / lam**2))
    cases = (
        ("chi-square, (σ, α) = (4√2, 4)", 0.5, 2.0, 32.0, 4.0),
        (f"exponential, (σ², α) = ({exponential:.4f}, 2)", 1.0, 1.0, exponential, 2.0),
    )
    for name, shape, scale, s2, alpha in cases:
        rate, worst = min(1 / (2 * s2), 1 / (2 * alpha)), 0.0
        for n in counts:
            law = stats.gamma(n * shape, scale=scale / n)
            tails = law.sf(1 + t) + law.cdf(1 - t)
            bounds = 2 * np.exp(-n * rate * np.minimum(t, t**2))
            worst = max(worst, float(np.max(tails / bounds)))
        yield at_most(f"{name}: largest exact tail/bound, n = 1, 10, 100, t ≤ 10", worst, 1.0)
    law, t = stats.gamma(50.0, scale=0.02), np.array([0.1, 0.2, 0.5])
    linear = 2 * np.exp(-100 * 0.25 * t)
    yield above("t² is needed: Pr(|mean of 100 chi-squares − 1| ≥ t)/(2e^(−nt/4)) at t = 0.1",
                (law.sf(1 + t) + law.cdf(1 - t))[0] / linear[0], 1.0)  # fmt: skip


@claim("wen2023.lemA.17", "Lemma A.17, eq. (20)", "inequality",
       "Pr(‖x‖² ≥ 32σ²d + 8σ²t) ≤ e^{−t} and E‖x‖⁴ ≤ 2048σ⁴d² for a σ-subgaussian vector",
       note="The route cited gives 16σ²t; the printed 8σ²t is true nevertheless, and "
       "loose.")  # fmt: skip
def lem_a17(trial: Trial) -> Lines:
    t, worst, moment = np.linspace(0, 60, 241), -math.inf, 0.0
    for d in (1, 2, 5, 30, 200):
        worst = max(worst, float(np.max(stats.chi2.logsf(32 * d + 8 * t, d) + t)))
        moment = max(moment, float(stats.chi2.moment(2, d)) / (2048 * d**2))
    yield at_most("N(0, I): largest log(tail/e^(−t)), d = 1, 2, 5, 30, 200, t ≤ 60", worst, 0.0)
    yield at_most("N(0, I): largest E‖x‖⁴/(2048σ⁴d²)", moment, 1.0)
    worst, moment, reach = -math.inf, 0.0, 0.0
    for d in (1, 2, 5, 30):
        for log_share in -np.geomspace(0.01, 300, trial.size(60, 600)):
            share = math.exp(log_share)
            s2 = spread_of(d, 1.0, share)
            largest_t = (1 - 32 * s2 * d) / (8 * s2)
            reach = max(reach, (1 / s2) / (32 * d))
            if largest_t >= 0:
                worst = max(worst, log_share + largest_t)
            moment = max(moment, share / (2048 * s2**2 * d**2))
    name = "a unit sphere with probability p, else 0, least σ, d = 1, 2, 5, 30, p = e^(−300)…1"
    yield above(f"{name}: largest ‖x‖²/(32σ²d), so that the tail is tried", reach, 1.0)
    yield at_most(f"{name}: largest log(tail/e^(−t))", worst, 0.0)
    yield at_most(f"{name}: largest E‖x‖⁴/(2048σ⁴d²)", moment, 1.0)


@claim("wen2023.lemA.18", "Lemma A.18", "rate",
       "There is c = O(σ√(d log(dn))) with E‖x‖² 1[‖x‖ > c] ≤ σ²d/n for every σ-subgaussian x",
       as_printed="in the proof the antiderivative of 2t e^{−(t²−32σ²d)/8σ²} has the sign +",
       errata=("E25",))  # fmt: skip
def lem_a18(trial: Trial) -> Lines:
    squares, explicit = [], 0.0
    for d in (1, 3, 10, 30, 100, 300):
        for n in (2, 10, 100, 10_000, 10**6, 10**9):
            # E‖x‖² 1[‖x‖² > s] = d Pr(χ²_{d+2} > s).
            squared = float(stats.chi2.isf(1 / n, d + 2))
            squares.append(squared / (d * math.log(d * n)))
            from_proof = 32 * d + 8 * (2 * math.log(d * n) + 8)
            explicit = max(explicit, float(stats.chi2.sf(from_proof, d + 2)) * n)
    name = "N(0, I), d = 1…300, n = 2…10⁹"
    yield at_most(f"{name}: largest c²/(σ²d log(dn)) of the least c", max(squares), 32.0)
    yield shown("least of these", min(squares))
    yield at_most("E‖x‖² 1[‖x‖ > c] n/d at c² = 32d + 16 log(dn) + 64, largest", explicit, 1.0)
    cases = [(c, s2, d) for c in (8.0, 12.0) for s2 in (1.0, 2.0) for d in (1, 2)]
    ratios = []
    for c, s2, d in cases:
        start = math.exp(-(c * c - 32 * s2 * d) / (8 * s2))
        integral = quad(lambda t, b=s2, k=d: 2 * t * math.exp(-(t * t - 32 * b * k) / (8 * b)), c,
                        c + 100)[0]  # fmt: skip
        ratios.append(8 * s2 * start / integral)
    bracket = -ratios[-1]  # the value at ∞, zero, minus that at c
    yield near_zero("∫_c^∞ 2t e^(…) dt/(8σ² e^(−(c²−32σ²d)/8σ²)) − 1", np.array(ratios) - 1, 1e-7)
    yield printed(equal("the bracket 8σ² e^(…)|_c^∞ over the integral", bracket, 1.0))


@claim("wen2023.lemA.19", "Lemma A.19, eqs. (21)–(22)", "inequality",
       "For a σ-subgaussian x with covariance I, E‖x‖⁴ ≤ 8d(d+2)(e^{σ²/2} − 3/2) and Pr(‖x‖² > "
       "d/2) ≥ d/(32(d+2)(e^{σ²/2} − 3/2)) ≥ 1/(96(e^{σ²/2} − 3/2)), from E v1⁴ = 3/(d(d+2)) on "
       "the unit sphere",
       as_printed="E v1⁴ = 3/((d+2)(d+4)); E‖x‖⁴ ≤ (e^{σ²/2} − 3/2)(d+2)(d+4)/3; Pr(‖x‖² > d/2) ≥ "
       "3d²/(4(d+2)(d+4)(e^{σ²/2} − 3/2))", errata=("E8",))  # fmt: skip
def lem_a19(trial: Trial) -> Lines:
    rng, count = trial.rng("lemA.19"), trial.size(100_000, 1_000_000)
    for d in (2, 3, 10, 30):
        v = sphere(d, count, seed_of(rng), n_test=0).x_train[:, 0] / math.sqrt(d)
        yield estimate(f"E v1² on the unit sphere, d = {d}, {count} points", v**2, 1 / d)
        yield estimate(f"E v1⁴, d = {d}", v**4, 3 / (d * (d + 2)))
        yield printed(estimate(f"E v1⁴, d = {d}", v**4, 3 / ((d + 2) * (d + 4))))
    gap = math.exp(0.5) - 1.5
    moments, chances = [], []
    for d in (1, 2, 5, 10, 100):
        true_chance = float(stats.chi2.sf(d / 2, d))
        moments += [(d * d + 2 * d) / (8 * d * (d + 2) * gap), d * d / (8 * d * (d + 2) * gap)]
        chances += [true_chance / (d / (32 * (d + 2) * gap)), 1 / (d / (32 * (d + 2) * gap))]
    name = "N(0, I) and cube, σ = 1, d = 1, 2, 5, 10, 100"
    yield at_most(f"{name}: largest E‖x‖⁴/bound", max(moments), 1.0)
    yield at_least(f"{name}: least Pr(‖x‖² > d/2)/bound", min(chances), 1.0)
    rare_moment, rare_chance = 0.0, math.inf
    for d in (1, 2, 5, 20):
        for share in np.geomspace(0.02, 1, trial.size(60, 600)):
            s2 = spread_of(d, math.sqrt(d / share), float(share))
            room = math.exp(s2 / 2) - 1.5
            rare_moment = max(rare_moment, (d * d / share) / (8 * d * (d + 2) * room))
            rare_chance = min(rare_chance, share * 32 * (d + 2) * room / d)
    name = "sphere of radius √(d/p) with probability p, else 0, least σ, p = 0.02…1"
    yield at_most(f"{name}: largest E‖x‖⁴/bound", rare_moment, 1.0)
    yield at_least(f"{name}: least Pr(‖x‖² > d/2)/bound", rare_chance, 1.0)
    yield at_least("least d/(32(d+2))·96", min(96 / (32 * (d + 2) / d) for d in range(1, 101)), 1.0)
    yield printed(at_most("E‖x‖⁴ of N(0, I), d = 10", 10 * 12, gap * 12 * 14 / 3))
    for d in (2, 10):
        yield printed(at_least(f"Pr(‖x‖² > d/2), N(0, I), d = {d}", stats.chi2.sf(d / 2, d),
                               3 * d * d / (4 * (d + 2) * (d + 4) * gap)))  # fmt: skip


@claim("wen2023.lemA.19.taylor", "Proof of Lemma A.19", "inequality",
       "e^x ≥ 1 + x + x²/2 + x³/6 + x⁴/24 + x⁵/120 for all real x")  # fmt: skip
def taylor(trial: Trial) -> Lines:
    """The remainder over x⁶, which is 1/720 at 0, on both sides of 0."""
    x = np.concatenate([-np.geomspace(1e-3, 1e6, trial.size(2000, 50_000)),
                        np.geomspace(1e-3, 300, trial.size(2000, 50_000))])  # fmt: skip
    direct = np.exp(x) - sum(x**k / math.factorial(k) for k in range(6))
    series = sum(x ** (k - 6) / math.factorial(k) for k in range(6, 40))
    remainder = np.where(np.abs(x) < 1, series, direct / x**6)
    yield above(f"least (e^x − Σ)/x⁶, x from −10⁶ to 300, {len(x)} points", remainder.min(), 0.0)
    even = np.exp(-5.0) - sum((-5.0) ** k / math.factorial(k) for k in range(5))
    yield at_most("the last term is needed: e^x − the sum up to x⁴ at x = −5", even, 0.0)
