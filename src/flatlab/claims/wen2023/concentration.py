"""Appendix A.6.1: tails and moments of subgaussian and subexponential variables."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats
from scipy.integrate import quad

from ...data import sphere
from ..contract import (
    Line,
    Trial,
    above,
    at_least,
    at_most,
    claim,
    equal,
    estimate,
    near_zero,
    printed,
    shown,
)
from ._no_bias_networks import seed_of
from .subgaussian import spread_of


@claim(
    "wen2023.lemA.15", "Lemma A.15 (Hoeffding)", "inequality",
    "Pr(|mean of n| ≥ t) ≤ 2e^{−n t²/(2σ²)} for independent σ-subgaussian variables",
)  # fmt: skip
def lem_a15(trial: Trial) -> Iterator[Line]:
    """Exact binomial and Gaussian tails on grids of t."""
    worst, grid = {"signs": 0.0, "N(0, 1)": 0.0}, np.linspace(0, 1, 51)
    for n in (5, 20, 100):
        # The mean of signs is (2k − n)/n; k ≥ n(1 + t)/2, with room for rounding.
        tails = 2 * stats.binom.sf(np.ceil(n * (1 + grid) / 2 - 1e-9) - 1, n, 0.5)
        bounds = 2 * np.exp(-n * grid**2 / 2)
        worst["signs"] = max(worst["signs"], float(np.max(np.minimum(tails, 1) / bounds)))
        normal = 2 * stats.norm.sf(math.sqrt(n) * grid)
        worst["N(0, 1)"] = max(worst["N(0, 1)"], float(np.max(normal / bounds)))
    for name, ratio in worst.items():
        yield at_most(f"{name}: largest exact tail/bound, n = 5, 20, 100, t = 0, 0.02, …, 1",
                      ratio, 1.0)  # fmt: skip
    t = np.array([2.0, 4.0, 8.0, 16.0])
    rates = -stats.norm.logsf(t) / t**2
    yield at_least(
        "N(0, 1), n = 1: −log(tail/2)/t² at t = 16, whose limit is 1/(2σ²)", rates[-1], 0.5
    )
    yield at_most("so that 1/(2σ²) cannot be replaced by 0.52", rates[-1], 0.52)


@claim(
    "wen2023.lemA.16", "Lemma A.16 (Bernstein)", "inequality",
    "Pr(|mean of n − E| ≥ t) ≤ 2e^{−nC min(t, t²)} with C = min(1/(2σ²), 1/(2α)) for independent "
    "(σ, α)-subexponential variables",
)  # fmt: skip
def lem_a16(trial: Trial) -> Iterator[Line]:
    """Exact gamma tails of means of chi-squares and of exponentials."""
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
        yield at_most(f"{name}: largest exact tail/bound, n = 1, 10, 100, t = 0, 0.05, …, 10",
                      worst, 1.0)  # fmt: skip
    law, t = stats.gamma(50.0, scale=0.02), np.array([0.1, 0.2, 0.5])
    linear = 2 * np.exp(-100 * 0.25 * t)
    yield above("t² is needed: Pr(|mean of 100 chi-squares − 1| ≥ t)/(2e^(−nt/4)) at t = 0.1",
                (law.sf(1 + t) + law.cdf(1 - t))[0] / linear[0], 1.0)  # fmt: skip


@claim(
    "wen2023.lemA.17", "Lemma A.17, eq. (20)", "inequality",
    "Pr(‖x‖² ≥ 32σ²d + 8σ²t) ≤ e^{−t} and E‖x‖⁴ ≤ 2048σ⁴d² for a σ-subgaussian vector",
    note="The route cited gives 16σ²t; the printed 8σ²t is true nevertheless, and loose.",
)  # fmt: skip
def lem_a17(trial: Trial) -> Iterator[Line]:
    """Exact tails of Gaussian vectors and of spheres hit with small probability."""
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


@claim(
    "wen2023.lemA.18", "Lemma A.18", "rate",
    "There is c = O(σ√(d log(dn))) with E‖x‖² 1[‖x‖ > c] ≤ σ²d/n for every σ-subgaussian x",
    as_printed="in the proof the antiderivative of 2t e^{−(t²−32σ²d)/8σ²} has the sign +",
    errata=("E25",),
)  # fmt: skip
def lem_a18(trial: Trial) -> Iterator[Line]:
    """The least c for Gaussian vectors, from incomplete gamma functions, over d and n."""
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
    yield near_zero("∫_c^∞ 2t e^(…) dt over +8σ² e^(−(c²−32σ²d)/8σ²), minus 1: largest of 8",
                    max(abs(ratio - 1) for ratio in ratios), 1e-7)  # fmt: skip
    yield printed(equal("the bracket 8σ² e^(…)|_c^∞ over the integral", bracket, 1.0))


@claim(
    "wen2023.lemA.19", "Lemma A.19, eqs. (21)–(22)", "inequality",
    "For a σ-subgaussian x with covariance I, E‖x‖⁴ ≤ 8d(d+2)(e^{σ²/2} − 3/2) and "
    "Pr(‖x‖² > d/2) ≥ d/(32(d+2)(e^{σ²/2} − 3/2)) ≥ 1/(96(e^{σ²/2} − 3/2)), from E v1⁴ = "
    "3/(d(d+2)) on the unit sphere",
    as_printed="E v1⁴ = 3/((d+2)(d+4)); E‖x‖⁴ ≤ (e^{σ²/2} − 3/2)(d+2)(d+4)/3; "
    "Pr(‖x‖² > d/2) ≥ 3d²/(4(d+2)(d+4)(e^{σ²/2} − 3/2))",
    errata=("E8",),
)  # fmt: skip
def lem_a19(trial: Trial) -> Iterator[Line]:
    """Moments of the sphere, and both bounds on Gaussian vectors, cubes and rare spheres."""
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
    name = (
        "sphere of radius √(d/p) with probability p, else 0, least σ, p = 0.02…1, d = 1, 2, 5, 20"
    )
    yield at_most(f"{name}: largest E‖x‖⁴/bound", rare_moment, 1.0)
    yield at_least(f"{name}: least Pr(‖x‖² > d/2)/bound", rare_chance, 1.0)
    yield at_least("least d/(32(d+2)) over 1/96, d = 1…100",
                   min(96 / (32 * (d + 2) / d) for d in range(1, 101)), 1.0)  # fmt: skip
    yield printed(at_most("E‖x‖⁴ of N(0, I), d = 10", 10 * 12, gap * 12 * 14 / 3))
    for d in (2, 10):
        yield printed(at_least(f"Pr(‖x‖² > d/2), N(0, I), d = {d}", stats.chi2.sf(d / 2, d),
                               3 * d * d / (4 * (d + 2) * (d + 4) * gap)))  # fmt: skip


@claim(
    "wen2023.lemA.19.taylor", "Proof of Lemma A.19", "inequality",
    "e^x ≥ 1 + x + x²/2 + x³/6 + x⁴/24 + x⁵/120 for all real x",
)  # fmt: skip
def taylor(trial: Trial) -> Iterator[Line]:
    """The remainder over x⁶, which is 1/720 at 0, on both sides of 0."""
    x = np.concatenate([-np.geomspace(1e-3, 1e6, trial.size(2000, 50_000)),
                        np.geomspace(1e-3, 300, trial.size(2000, 50_000))])  # fmt: skip
    direct = np.exp(x) - sum(x**k / math.factorial(k) for k in range(6))
    series = sum(x ** (k - 6) / math.factorial(k) for k in range(6, 40))
    remainder = np.where(np.abs(x) < 1, series, direct / x**6)
    yield above(f"least (e^x − Σ)/x⁶, x from −10⁶ to 300, {len(x)} points", remainder.min(), 0.0)
    even = np.exp(-5.0) - sum((-5.0) ** k / math.factorial(k) for k in range(5))
    yield at_most("the last term is needed: e^x − the sum up to x⁴ at x = −5", even, 0.0)
