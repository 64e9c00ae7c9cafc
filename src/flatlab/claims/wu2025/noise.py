"""The noise of SGD: its effect on the loss, its covariance, and the alignment factors."""

from __future__ import annotations

import itertools

import numpy as np

from ...measures.noise import Alignment
from ...models import TwoLayer
from ...theory.gradient_noise import GradientNoise
from ...theory.solution import Array
from ..contract import Trial, claim, printed
from ..instances import measured, random_data, random_network
from ..lines import Lines, above, at_least, at_most, equal, near_zero, slope


@claim("wu2025.noise_taylor", "Towards a necessary condition", "identity",
       "On a quadratic E L(θ_{t+1}) = L(θ_t − η∇L) + (η²/2B) Tr(HΣ) for batches with replacement, "
       "and with (n − B)/(B(n − 1)) for 1/B without",
       as_printed="E L(θ_{t+1}) ≈ L(θ_t − η∇L) + (η²/B) Tr(HΣ), and noise of covariance Σ/B, "
       "while eq. (6) has batches without replacement", errata=("W5", "W16"))  # fmt: skip
def expected_loss(trial: Trial) -> Lines:
    rng, n, B, lr = trial.rng("taylor"), 6, 2, 0.3
    X, y, theta = rng.normal(size=(n, 3)), rng.normal(size=n), rng.normal(size=3)
    noise = GradientNoise.of(X, X @ theta - y)

    def excess(batches: list[tuple[int, ...]]) -> float:
        """Return E L(θ') − L(θ − η∇L)."""
        ends = [theta - lr * np.mean(noise.e[[*b], None] * X[[*b]], 0) for b in batches]
        losses = [np.mean((X @ end - y) ** 2) / 2 for end in ends]
        mean = np.mean((X @ (theta - lr * noise.slope) - y) ** 2) / 2
        return float(np.mean(losses) - mean)

    found = excess(list(itertools.product(range(n), repeat=B)))
    full = lr**2 / B * float(np.sum(noise.gram * noise.covariance))
    what = "n=6, B=2, all 36 batches with replacement: E L(θ') − L(θ − η∇L)"
    yield equal(f"{what}, (η²/2B) Tr(HΣ)", found, full / 2)
    yield printed(equal(f"{what}, (η²/B) Tr(HΣ)", found, full))
    without = excess(list(itertools.combinations(range(n), B)))
    what = "all 15 batches without replacement"
    yield equal(f"{what}, (η²(n − B)/(2B(n − 1))) Tr(HΣ)", without, full / 2 * (n - B) / (n - 1))
    yield printed(equal(f"{what}, covariance Σ/B", without, full / 2))


@claim("wu2025.decoupling", "The alignment property", "rate",
       "Σ = (1/n)Σe_i²∇f_i∇f_iᵀ − ∇L∇Lᵀ is close to 2LG where e_i² and ∇f_i are independent and "
       "∇L is small: the relative error falls like n^{−1/2}",
       note="Where e_i² grows with ‖∇f_i‖ it does not fall.")  # fmt: skip
def decoupling(trial: Trial) -> Lines:
    rng, p, draws = trial.rng("decoupling"), 4, trial.size(60, 600)
    J, e = rng.normal(size=(7, p)), rng.normal(size=7)
    exact = np.cov((e[:, None] * J).T, bias=True)
    yield near_zero("n=7: covariance of e_i∇f_i less Σ", GradientNoise.of(J, e).covariance - exact,
                    1e-12)  # fmt: skip

    def error(J: Array, e: Array) -> float:
        noise = GradientNoise.of(J, e)
        apart = noise.covariance - noise.decoupled
        return float(np.linalg.norm(apart) / np.linalg.norm(noise.decoupled))

    sizes, errors = (100, 400, 1600, 6400), []
    for n in sizes:
        drawn = [error(rng.normal(size=(n, p)), rng.normal(size=n)) for _ in range(draws)]
        errors.append(float(np.mean(drawn)))
    yield slope(f"independent, n = 100 … 6400, {draws} draws: exponent of ‖Σ − 2LG‖/‖2LG‖",
                sizes, errors, near=-0.5, within=0.15)  # fmt: skip
    J = rng.normal(size=(6400, p))
    tied = rng.choice([-1.0, 1.0], 6400) * np.sum(J**2, 1)
    yield at_least("|e_i| = ‖∇f_i‖², n = 6400: the same error", error(J, tied), 0.4)


@claim("wu2025.alignment_defs", "eqs. (7) to (9)", "definition",
       "α = Tr(ΣG)/(‖Σ‖_F‖G‖_F) ≤ 1, β = ‖Σ‖_F/(2L‖G‖_F) and μ = αβ = Tr(ΣG)/(2L‖G‖_F²); all are 1 "
       "where Σ = 2LG")  # fmt: skip
def definitions(trial: Trial) -> Lines:
    rng, count = trial.rng("alignment"), 500
    data = random_data(rng, 12, 4)
    net = random_network(rng, TwoLayer(width=6, activation="tanh"), data)
    noise = GradientNoise.of(net.gradients(), net.outputs() - data.y_train)
    alpha, beta, mu = np.asarray(measured(Alignment(), net, trial.seed).value)
    apart = np.array([alpha, beta, mu]) / noise.factors - 1
    yield near_zero("tanh, n=12, p=36: flatlab's measure over the definition, less 1", apart, 1e-8)
    yield equal("αβ", alpha * beta, mu)
    factors = []
    for _ in range(count):
        n, p = rng.integers(2, 12, 2)
        factors.append(GradientNoise.of(rng.normal(size=(n, p)), rng.normal(size=n)).factors)
    alphas = np.array(factors)[:, 0]
    yield at_most(f"largest α of {count} random J and e", alphas.max(), 1.0)
    yield above("least α of them: a trace of two semi-definite matrices", alphas.min(), 0.0)
    J = np.vstack([np.eye(3), -np.eye(3)])
    aligned = GradientNoise.of(J, np.ones(6)).factors
    yield near_zero("rows ±e_j and equal residuals, Σ = 2LG: α, β, μ less 1", aligned - 1, 1e-12)
