"""PAC-Bayes: the variational principle, Hoeffding's and Chernoff's steps, McAllester's theorem."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from scipy import special, stats

from ...theory.discrete import divergence, free_energy, gibbs, log_mean_exp
from ...theory.pac_bayes import catoni, mcallester, worst_posterior, worst_temperatures
from ...theory.solution import Array
from ..contract import Trial, claim, printed
from ..lines import Lines, above, at_least, at_most, equal, frequency, near_zero, shown

PRIOR, LAW = np.array([0.65, 0.35]), np.array([0.72, 0.28])
TABLE = np.array([[0.0, 1.0], [1.0, 0.0]])
DELTA = 0.98104
"""One example (n = 1) of law `LAW`, two hypotheses of losses `TABLE`: log(1/δ) is too little."""


@claim("wu2025.thm1_mcallester", "Theorem 1 (McAllester)", "probabilistic",
       "With probability 1 − δ, for all Q: L(Q) ≤ L̂(Q) + √((KL(Q‖P) + log(2√n/δ))/2n)",
       as_printed="The same with log(1/δ) in the place of log(2√n/δ)", errata=("W7",),
       note="For which training sets some Q breaks a bound is computed by the variational "
       "principle, so no search over Q can miss one.")  # fmt: skip
def mcallester_theorem(trial: Trial) -> Lines:
    risks, broken, held = TABLE @ LAW, 0.0, 0.0
    what = "n = 1, δ = 0.98104, two hypotheses"
    for seen in (0, 1):
        gaps = risks - TABLE[:, seen]
        _, Q = worst_posterior(PRIOR, gaps, 1)
        gap, kl = float(Q @ gaps), divergence(Q, PRIOR)
        bound = math.sqrt((kl - math.log(DELTA)) / 2)
        where = f"{what}, example {seen + 1} seen: L(Q) − L̂(Q) of the worst Q"
        yield printed(at_most(where, gap, bound))
        yield at_most(where, gap, mcallester(kl, 1, DELTA))
        broken += LAW[seen] * (gap > bound)
        held += LAW[seen] * (gap <= mcallester(kl, 1, DELTA))
    yield printed(at_least(f"{what}: probability that the bound holds for all Q", 1 - broken,
                           1 - DELTA))  # fmt: skip
    yield at_least(f"{what}: the same", held, 1 - DELTA)
    n, delta, failing = 20, 0.05, []
    for chances, prior, gaps in _samples(trial, "mcallester", trial.size(6, 60)):
        most, _ = worst_temperatures(prior, gaps, n)
        failing.append(float(chances[most > math.log(2 * math.sqrt(n) / delta)].sum()))
    yield at_most(f"n = {n}, δ = {delta}, 10 hypotheses: exact probability that it fails for some "
                  f"Q, largest of {len(failing)} laws", max(failing), delta)  # fmt: skip
    rng, draws = trial.rng("mcallester/coverage"), trial.size(2000, 20_000)
    losses = rng.random((20, 1000))
    drawn = rng.integers(0, 1000, (draws, n))
    gaps = losses.mean(1) - losses[:, drawn].mean(2).T
    most, _ = worst_temperatures(np.full(20, 0.05), gaps, n)
    hits = int(np.sum(most > math.log(2 * math.sqrt(n) / delta)))
    yield frequency(f"n = {n}, 20 hypotheses: share of {draws} samples on which it fails", hits,
                    draws, at_most=delta)  # fmt: skip
    slack = float(np.quantile(most, 1 - delta))
    yield shown("the constant with which it would fail on 5 % of them", slack)
    yield shown("the constant that it has, log(2√n/δ)", math.log(2 * math.sqrt(n) / delta))


def _samples(trial: Trial, name: str, count: int) -> Iterator[tuple[Array, Array, Array]]:
    """Yield (probabilities, prior, gaps) of all samples of 20 examples, for random laws.

    Examples take four values, hypotheses have losses of 0 and 1, so samples are their counts.
    """
    n, cells = 20, 4
    rng = trial.rng(name)
    bars = np.array(list(itertools.combinations(range(n + cells - 1), cells - 1)))
    edges = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), n + cells - 1)])
    counts = np.diff(edges, axis=1) - 1
    for _ in range(count):
        law, prior = rng.dirichlet(np.ones(cells)), rng.dirichlet(np.ones(10))
        losses = rng.integers(0, 2, (10, cells)).astype(float)
        logs = special.gammaln(n + 1) - special.gammaln(counts + 1).sum(1) + counts @ np.log(law)
        yield np.exp(logs), prior, (losses @ law - counts @ losses.T / n)


@claim("wu2025.thm2_donsker_varadhan", "Theorem 2 (Donsker and Varadhan)", "identity",
       "log E_π e^V = max_p (E_p V − KL(p‖π)), reached at the Gibbs distribution dπ_V ∝ e^V "
       "dπ")  # fmt: skip
def variational(trial: Trial) -> Lines:
    rng, size = trial.rng("donsker-varadhan"), 12
    prior, V = rng.dirichlet(np.ones(size)), 3 * rng.normal(size=size)
    truth, best = log_mean_exp(prior, V), gibbs(prior, V)
    yield near_zero("12 points: Σ π_V − 1", best.sum() - 1, 1e-12)
    yield equal("E V − KL at the Gibbs distribution", free_energy(best, prior, V), truth, rel=1e-12)
    count = trial.size(1000, 20_000)
    tried = rng.dirichlet(np.full(size, 0.3), count)
    found = np.array([free_energy(p, prior, V) for p in tried])
    yield at_most(f"the largest of {count} other p", found.max(), truth)
    apart = np.array([divergence(p, best) for p in tried])
    yield near_zero("its shortfall less KL(p‖π_V), largest", truth - found - apart, 1e-9)
    near = (1 - 1e-3) * best + 1e-3 * tried[:100]
    yield above("the least shortfall of 100 p near π_V, over 1e-9",
                min(truth - free_energy(p, prior, V) for p in near) / 1e-9, 1)  # fmt: skip


@claim("wu2025.generalised_jensen", "After Theorem 2", "inequality",
       "e^{E_p V} ≤ E_π[e^V] e^{KL(p‖π)}")  # fmt: skip
def generalised_jensen(trial: Trial) -> Lines:
    rng, ratios, plain = trial.rng("jensen"), [], []
    for _ in range(trial.size(1000, 20_000)):
        size = int(rng.integers(2, 20))
        prior, p = rng.dirichlet(np.ones(size)), rng.dirichlet(np.full(size, 0.3))
        V = rng.normal(size=size) * 10 ** rng.uniform(-1, 1)
        ratios.append(divergence(p, prior) + log_mean_exp(prior, V) - p @ V)
        plain.append(log_mean_exp(prior, V) - prior @ V)
    count = len(ratios)
    yield at_least(f"{count} random p, π, V: least log of right over left", min(ratios), 0)
    yield at_least("the same with p = π, Jensen's inequality", min(plain), 0)
    p = gibbs(prior, V)
    off = divergence(p, prior) + log_mean_exp(prior, V) - p @ V
    yield near_zero("the log at the Gibbs distribution: equality", off, 1e-10)


@claim("wu2025.hoeffding_mgf", "Proof of McAllester's theorem", "inequality",
       "For a loss in [0, 1] and n independent examples, Δ = L − L̂ has E e^{λΔ} ≤ "
       "e^{λ²/8n}")  # fmt: skip
def hoeffding(trial: Trial) -> Lines:
    n = 20
    for lam in (4.0, 8.0):
        mean = math.exp(_log_mgf(np.array([0.0, 1.0]), np.array([0.5, 0.5]), lam, n))
        what = f"fair 0-1 losses, n = {n}, λ = {lam:g}: E e^{{λΔ}}"
        yield at_most(what, mean, math.exp(lam**2 / (8 * n)))
    rng, worst = trial.rng("hoeffding"), -math.inf
    count = trial.size(2000, 50_000)
    for _ in range(count):
        size = int(rng.integers(2, 8))
        values, law = rng.random(size), rng.dirichlet(np.full(size, 0.5))
        lam = float(10 ** rng.uniform(-1, 3))
        worst = max(worst, _log_mgf(values, law, lam, n) / (lam**2 / (8 * n)))
    yield at_most(f"{count} random laws and λ: largest log of left over log of right", worst, 1)
    near = _log_mgf(np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0.1, n) / (0.01 / (8 * n))
    yield at_least("the same for fair 0-1 losses at λ = 0.1: nearly attained", near, 0.999)
    wide = _log_mgf(np.array([0.0, 2.0]), np.array([0.5, 0.5]), 4.0, n) / (16 / (8 * n))
    yield above("losses 0 and 2, λ = 4: outside [0, 1] it is false", wide, 1)


def _log_mgf(values: Array, law: Array, lam: float, n: int) -> float:
    """Return log E e^{λΔ} of the mean of n independent losses."""
    return n * float(special.logsumexp(lam / n * (law @ values - values), b=law))


@claim("wu2025.chernoff_slide", "Chernoff's bound", "inequality",
       "P(Δ ≥ t) ≤ E e^{λΔ}/e^{λt} for λ > 0",
       as_printed="P(Δ ≥ t) ≥ E e^{λΔ}/e^{λt}", errata=("W6",))  # fmt: skip
def chernoff(trial: Trial) -> Lines:
    n, t, lam = 20, 0.1, 4.0
    fair = np.array([0.0, 1.0]), np.array([0.5, 0.5])
    bound = math.exp(_log_mgf(*fair, lam, n) - lam * t)
    chance = float(stats.binom.cdf(n * (0.5 - t), n, 0.5))  # Δ = ½ − X/n
    what = f"fair 0-1 losses, n = {n}, t = {t}, λ = {lam:g}: P(Δ ≥ t)"
    yield at_most(what, chance, bound)
    yield printed(at_least(what, chance, bound))
    rng, ratios = trial.rng("chernoff"), []
    for _ in range(trial.size(500, 5000)):
        p, k = float(rng.uniform(0.01, 0.99)), int(rng.integers(0, n + 1))
        lam = float(10 ** rng.uniform(-1, 2))
        law = np.array([1 - p, p])
        log = _log_mgf(np.array([0.0, 1.0]), law, lam, n) - lam * (p - k / n)
        ratios.append(float(stats.binom.logcdf(k, n, p)) - log)
    yield at_most(f"{len(ratios)} random p, t and λ: largest log of left over right", max(ratios),
                  0)  # fmt: skip


@claim("wu2025.pacbayes_step", "Proof of McAllester's theorem", "probabilistic",
       "For a λ fixed beforehand, with probability 1 − δ for all Q: E_Q Δ ≤ λ/8n + (KL(Q‖P) + "
       "log(1/δ))/λ",
       as_printed="The same at the λ that is best for Q and the sample: “optimizing λ completes "
       "the proof”", errata=("W7",),
       note="Q depends on the sample, so KL(Q‖P) must stay inside the mean over samples; the slide "
       "takes it out. The statement survives, since E_S E_P e^{λΔ} ≤ e^{λ²/8n}.")  # fmt: skip
def fixed_temperature(trial: Trial) -> Lines:
    n, deltas, lams = 20, (0.05, 0.3, 0.9), (1.0, 5.0, 20.0, 80.0)
    worst, means = 0.0, []
    for chances, prior, gaps in _samples(trial, "step", trial.size(20, 200)):
        for lam in lams:
            logs = special.logsumexp(lam * gaps, axis=1, b=prior) - lam**2 / (8 * n)
            means.append(float(chances @ np.exp(logs)))
            for delta in deltas:
                failing = float(chances[logs > -math.log(delta)].sum())
                worst = max(worst, failing / delta)
    what = f"n = {n}, λ from 1 to 80, {len(means) // len(lams)} random laws"
    yield at_most(f"{what}: largest exact E_S E_P e^{{λΔ − λ²/8n}}", max(means), 1)
    yield at_most("probability that it fails for some Q, over δ, largest", worst, 1)
    failing = 0.0
    for seen in (0, 1):
        gaps = TABLE @ LAW - TABLE[:, seen]
        _, Q = worst_posterior(PRIOR, gaps, 1)
        kl, gap = divergence(Q, PRIOR), float(Q @ gaps)
        lam = math.sqrt(8 * (kl - math.log(DELTA)))
        failing += LAW[seen] * (gap > catoni(kl, 1, DELTA, lam))
    yield printed(at_most("n = 1, δ = 0.98104: probability that it fails for some Q at its best λ",
                          failing, DELTA))  # fmt: skip
    least = min(_chance(lam) for lam in np.geomspace(0.01, 100, 400))
    most = max(_chance(lam) for lam in np.geomspace(0.01, 100, 400))
    yield at_most("the same at one λ for both samples, largest over λ", most, DELTA)
    yield shown("least over λ", least)


def _chance(lam: float) -> float:
    """Return the probability that the fixed-λ bound fails for some Q in the example of n = 1."""
    gaps = (TABLE @ LAW)[:, None] - TABLE
    logs = np.array([log_mean_exp(PRIOR, lam * gaps[:, seen]) for seen in (0, 1)])
    return float(LAW @ (logs - lam**2 / 8 > -math.log(DELTA)))
