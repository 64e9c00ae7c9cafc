"""Appendix A.6.1: subgaussian and subexponential variables."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.integrate import quad
from scipy.special import gammaln, hyp0f1, ive

from ...data import sphere
from ...data.dataset import Array
from ..contract import Line, Trial, above, at_most, claim, estimate, near_zero, slope
from ._no_bias_networks import seed_of

ROOT3 = math.sqrt(3)


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


@claim(
    "wen2023.defA.3", "Definition A.3", "definition",
    "X is σ-subgaussian if E X = 0 and E e^{λX} ≤ e^{σ²λ²/2} for all λ; signs, U[−√3, √3] and "
    "N(0, 1) are with σ = 1, the Laplace law is with none",
)  # fmt: skip
def def_a3(trial: Trial) -> Iterator[Line]:
    """Generating functions on a grid; that of the Laplace law diverges at a finite λ."""
    grid = np.linspace(-20, 20, trial.size(4001, 40_001))
    grid = grid[grid != 0]
    half = grid**2 / 2
    for name, logs in (("signs", _log_cosh(grid)), ("U[−√3, √3]", _log_uniform(grid))):
        yield at_most(f"{name}: largest log E e^(λX)/(λ²/2), |λ| ≤ 20, {len(grid)} values",
                      np.max(logs / half), 1.0, slack=1e-7)  # fmt: skip
        yield above(f"{name}: the same, so that no σ < 0.99 will do", np.max(logs / half), 0.99**2)
    normal = [_normal_log(float(t)) for t in (-3.0, -1.0, 0.5, 2.0)]
    worst = max(abs(log / (t * t / 2) - 1) for t, log in normal)
    yield near_zero("N(0, 1) by quadrature: log E e^(λX)/(λ²/2) − 1, λ = −3, −1, 0.5, 2", worst,
                    1e-7)  # fmt: skip
    close = 1 - np.geomspace(1e-1, 1e-12, 12)  # E e^{λX} = 1/(1 − λ²) for |λ| < 1
    needed = 2 * -np.log1p(-(close**2)) / close**2
    yield above("Laplace: the σ² that λ = 1 − 10⁻¹² asks for", needed[-1], 10 * needed[0])
    yield slope("Laplace: exponent of log 1/(1−λ) in that σ²", -np.log(1 - close), needed,
                near=1.0)  # fmt: skip


def _normal_log(t: float) -> tuple[float, float]:
    value = quad(lambda x: math.exp(t * x - x * x / 2) / math.sqrt(2 * math.pi), -40, 40)[0]
    return t, math.log(value)


@claim(
    "wen2023.defA.4", "Definition A.4", "definition",
    "A vector is σ-subgaussian if E x = 0 and E e^{λ·x} ≤ e^{σ²‖λ‖²/2} for all λ; products of "
    "σ-subgaussian laws are, and the sphere of radius √d with σ = 1",
)  # fmt: skip
def def_a4(trial: Trial) -> Iterator[Line]:
    """Generating functions of products and of the sphere."""
    rng = trial.rng("defA.4")
    for d in (2, 5, 30):
        vectors = rng.normal(size=(trial.size(2000, 20_000), d))
        vectors *= np.exp(rng.uniform(-3, 2, (len(vectors), 1)))
        half = np.sum(vectors**2, 1) / 2
        for name, log in (("cube", _log_cosh), ("product of U[−√3, √3]", _log_uniform)):
            ratio = np.max(np.sum(log(vectors), 1) / half)
            yield at_most(f"{name}, d = {d}: largest log E e^(λ·x)/(‖λ‖²/2), {len(vectors)} λ",
                          ratio, 1.0, slack=1e-7)  # fmt: skip
    sizes = np.geomspace(1e-2, 10, 300)
    for d in (2, 3, 10, 30):
        logs = _log_sphere(d, math.sqrt(d) * sizes)
        yield at_most(f"sphere of radius √{d}: largest log E e^(λ·x)/(‖λ‖²/2), 300 lengths",
                      np.max(logs / (sizes**2 / 2)), 1.0, slack=1e-7)  # fmt: skip
        x = sphere(d, trial.size(20_000, 200_000), seed_of(rng), n_test=0).x_train
        yield estimate(f"E e^(λ·x) of flatlab's sphere, λ = e1, d = {d}", np.exp(x[:, 0]),
                       float(hyp0f1(d / 2, d / 4)))  # fmt: skip


@claim(
    "wen2023.defA.5", "Definition A.5", "definition",
    "X is (σ, α)-subexponential if E e^{λ(X − EX)} ≤ e^{σ²λ²/2} for |λ| ≤ 1/α: chi-square is "
    "(4√2, 4), though not subgaussian, since E e^{λX} is infinite from λ = 1/2 on",
)  # fmt: skip
def def_a5(trial: Trial) -> Iterator[Line]:
    """The centred chi-square law inside its range of λ, and where it ends."""
    grid = np.linspace(-0.25, 0.25, trial.size(2001, 20_001))
    grid = grid[grid != 0]
    ratio = (-grid - np.log1p(-2 * grid) / 2) / (16 * grid**2)
    yield at_most("X², X ~ N(0, 1): largest log E e^(λ(X²−1))/(σ²λ²/2), |λ| ≤ 1/4", ratio.max(),
                  1.0)  # fmt: skip
    worst = 0.0
    for t in (-0.25, -0.1, 0.1, 0.25):
        value = quad(lambda x, t=t: math.exp(t * (x * x - 1) - x * x / 2), -60, 60)[0]
        exact = -t - math.log1p(-2 * t) / 2
        worst = max(worst, abs(math.log(value / math.sqrt(2 * math.pi)) - exact))
    yield near_zero("the closed form against quadrature at four λ: largest error", worst, 1e-8)
    close = 0.5 - np.geomspace(1e-3, 1e-9, 7)
    logs = -close - np.log1p(-2 * close) / 2
    yield above("log E e^(λ(X²−1)) at λ = 1/2 − 10⁻⁹, where (4√2)²λ²/2 is 4", logs[-1], 4.0)


@claim(
    "wen2023.lemA.14", "Lemma A.14", "inequality",
    "If X is σ-subgaussian then X² is (4√2 σ², 4σ²)-subexponential: "
    "log E e^{λ(X² − EX²)} ≤ 16σ⁴λ² for |λ| ≤ 1/(4σ²)",
)  # fmt: skip
def lem_a14(trial: Trial) -> Iterator[Line]:
    """Gaussian, uniform and all three-point laws, the last with their own least σ."""
    grid = np.linspace(-0.25, 0.25, trial.size(401, 4001))
    grid = grid[grid != 0]
    ratio = (-grid - np.log1p(-2 * grid) / 2) / (16 * grid**2)
    yield at_most("N(0, 1): largest left side/right side, |λ| ≤ 1/4", ratio.max(), 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    values = np.exp(np.outer(grid, 3 * nodes**2 - 1)) @ (weights / 2)
    yield at_most("U[−√3, √3] by quadrature: the same", np.max(np.log(values) / (16 * grid**2)),
                  1.0)  # fmt: skip
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
