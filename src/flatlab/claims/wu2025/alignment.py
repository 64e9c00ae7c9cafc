"""Why the noise of SGD is aligned with the curvature: identities, two models, and where not."""

from __future__ import annotations

import itertools

import numpy as np

from ...models import TwoLayer
from ...theory.gradient_noise import GradientNoise, least_alignment
from ...theory.solution import Array, Solution
from ..contract import Trial, by_experiment, claim, printed
from ..instances import random_data
from ..lines import Lines, above, at_least, at_most, equal, near_zero, slope


def _random(rng: np.random.Generator) -> GradientNoise:
    """Return rows of widely different lengths, and residuals."""
    n, p = (int(each) for each in rng.integers([3, 2], [12, 9]))
    J = rng.normal(size=(n, p)) * np.exp(rng.normal(size=(n, 1)))
    return GradientNoise.of(J, rng.normal(size=n) * np.exp(rng.normal(size=n)))


@claim("wu2025.mu_ge_mu0", "The key observation", "empirical",
       "In training μ stays above a positive constant, though not for every model: with equal "
       "gradients of all examples μ = 0",
       as_printed="There is a positive constant μ_0 with μ(θ) ≥ μ_0", errata=("W13",),
       expected="holds corrected",
       note="Seen on a small network; wu2025/noise follows μ in training on images.")  # fmt: skip
def key_observation(trial: Trial) -> Lines:
    found = _along_training(trial)
    least = min(found)
    yield above("tanh, d=5, n=40, width 16, SGD with B=4: least μ in 1,000 steps", least, 0.05)
    x = trial.rng("equal").normal(size=5)
    same = GradientNoise.of(np.tile(x, (4, 1)), np.full(4, 0.7))
    yield near_zero("four equal examples: μ", same.mu, 1e-12)
    yield printed(at_least("μ of four equal examples, against that least μ", abs(same.mu), least))
    one = GradientNoise.of(x[None], np.array([0.7]))
    yield printed(at_least("μ of a single example", abs(one.mu), least))


def _along_training(trial: Trial) -> list[float]:
    """Return μ every 100 steps of SGD on (1/2n) Σ e²."""
    rng, n, B, lr = trial.rng("training"), 40, 4, 0.1
    data = random_data(rng, n, 5)
    arch = TwoLayer(width=16, activation="tanh")
    net = Solution(arch, arch.initial(5, int(rng.integers(2**31))), data)
    W1, b1, W2 = (np.array(net.params[name], float) for name in ("W1", "b1", "W2"))
    found = []
    for step in range(1001):
        if step % 100 == 0:
            made = net.with_params(W1=W1, b1=b1, W2=W2)
            found.append(GradientNoise.of(made.gradients(), made.outputs() - data.y_train).mu)
        batch = rng.permutation(n)[:B]
        x, y = data.x_train[batch], data.y_train[batch]
        h = np.tanh(x @ W1.T + b1)
        e = h @ W2 - y
        back = e[:, None] * W2 * (1 - h**2)
        W1, b1, W2 = (
            W1 - lr / B * back.T @ x, b1 - lr / B * back.sum(0), W2 - lr / B * e @ h
        )  # fmt: skip
    return found


@claim("wu2025.tr_sigma_G", "Why is the alignment satisfied?", "identity",
       "Tr(ΣG) = (1/n)Σe_i²‖∇f_i‖_G² − ∇LᵀG∇L, and (1/n)Σ‖∇f_i‖_G² = ‖G‖_F²",
       as_printed="Tr(ΣG) = (1/n)Σe_i²‖g_i‖_G², where g_i is ∇f_i and was ∇ℓ_i before",
       errata=("W13", "W17"))  # fmt: skip
def trace_of_the_product(trial: Trial) -> Lines:
    rng = trial.rng("trace")
    J, e = rng.normal(size=(7, 4)), 1 + rng.uniform(size=7)
    noise = GradientNoise.of(J, e)
    each = e[:, None] * J
    exact = float(np.sum(np.cov(each.T, bias=True) * noise.gram))
    raw = float(np.mean(e**2 * noise.sizes))
    yield equal("n=7, p=4: Tr(ΣG)", exact, raw - float(noise.slope @ noise.gram @ noise.slope))
    yield printed(equal("Tr(ΣG)", exact, raw))
    yield equal("(1/n)Σ‖∇f_i‖_G²", noise.sizes.mean(), np.sum(noise.gram**2))


@claim("wu2025.gamma_bound", "Why is the alignment satisfied?", "inequality",
       "Without the term ∇L∇Lᵀ in Σ, μ ≥ γ = min_i ‖∇f_i‖_G²/((1/n)Σ‖∇f_i‖_G²)")  # fmt: skip
def gamma_bound(trial: Trial) -> Lines:
    rng, count = trial.rng("gamma"), trial.size(2000, 20_000)
    found = [(each.mu_uncentred, each.gamma) for each in (_random(rng) for _ in range(count))]
    yield at_least(f"{count} random J and e: least μ/γ", min(m / g for m, g in found), 1.0)
    J = _random(rng).J
    least = np.argmin(GradientNoise.of(J, np.ones(len(J))).sizes)
    single = GradientNoise.of(J, np.where(np.arange(len(J)) == least, 1.0, 0.0))
    yield equal("residual at the example of least ‖∇f_i‖_G alone: μ", single.mu_uncentred,
                single.gamma)  # fmt: skip


@claim("wu2025.residual_uniformity", "Why is the alignment satisfied?", "identity",
       "Equal ‖∇f_i‖_G give μ = 1 for any residuals, without the term ∇L∇Lᵀ in Σ; equal residuals "
       "give it too, but are not needed")  # fmt: skip
def uniformity(trial: Trial) -> Lines:
    rng = trial.rng("uniform")
    angles = np.arange(8) * np.pi / 4
    J = np.stack([np.cos(angles), np.sin(angles)], 1)  # G = I/2, so all ‖∇f_i‖_G are equal
    e = np.exp(3 * rng.normal(size=8))
    noise = GradientNoise.of(J, e)
    yield above(
        "8 directions of the plane, wild e: largest over mean e²", np.max(e**2) / np.mean(e**2), 1.2
    )
    yield equal("μ without the centre", noise.mu_uncentred, 1.0)
    J = J * np.exp(np.linspace(0, 2, 8))[:, None]
    even = GradientNoise.of(J, rng.choice([-1.0, 1.0], 8))
    yield equal(
        "rows of lengths 1 to e², equal |e_i|: μ without the centre", even.mu_uncentred, 1.0
    )
    yield at_most("γ there: it is sufficient, not necessary", even.gamma, 0.1)
    e = np.where(np.arange(8) == 0, 1.0, 0.0)
    far = GradientNoise.of(J, e)
    yield at_most("the same rows, one residual: μ without the centre", far.mu_uncentred, 0.1)


NODES = np.array([-np.sqrt(3), 0.0, np.sqrt(3)])
WEIGHTS = np.array([1 / 6, 2 / 3, 1 / 6])
"""Gauss–Hermite: exact for polynomials of degree five of a standard normal number."""


@claim("wu2025.prop1_linear_nets", "Proposition 1", "identity",
       "For deep linear networks, x ~ N(0, S), n = ∞ and a linear target with or without "
       "independent noise: Σ = 2LG + ∇L∇Lᵀ, so μ ≥ 1",
       note="The expectations are exact: products of three-point Gauss rules. Other targets are "
       "not covered.")  # fmt: skip
def linear_networks(trial: Trial) -> Lines:
    rng, d, errors, mus = trial.rng("prop1"), 3, [], []
    grid = np.array(list(itertools.product(NODES, repeat=d + 1)))
    mass = np.array([np.prod(each) for each in itertools.product(WEIGHTS, repeat=d + 1)])
    count = trial.size(200, 2000)
    for i in range(count):
        root, target = rng.normal(size=(d, d)), rng.normal(size=d)
        x, label_noise = grid[:, :d] @ root.T, (i % 2) * grid[:, d]
        W1, W2, a = rng.normal(size=(4, d)), rng.normal(size=(3, 4)), rng.normal(size=3)
        h1 = x @ W1.T
        h2 = h1 @ W2.T
        e = h2 @ a - x @ target - label_noise
        parts = (
            (a @ W2)[None, :, None] * x[:, None, :],
            a[None, :, None] * h1[:, None, :],
            h2[:, None, :],
        )
        J = np.concatenate([part.reshape(len(x), -1) for part in parts], 1)
        weighted = J * mass[:, None]
        slope_, G = weighted.T @ e, weighted.T @ J
        twice_loss = float(mass @ e**2)
        S = (weighted.T * e**2) @ J - np.outer(slope_, slope_)
        predicted = twice_loss * G + np.outer(slope_, slope_)
        errors.append(np.linalg.norm(S - predicted) / np.linalg.norm(S))
        mus.append(float(np.sum(S * G) / (twice_loss * np.sum(G * G))))
    what = f"{count} random θ, S and targets, d=3, three layers, half with noise"
    yield near_zero(f"{what}: ‖Σ − 2LG − ∇L∇Lᵀ‖/‖Σ‖", errors, 1e-11)
    yield at_least("least μ", min(mus), 1.0)


def _sphere(rng: np.random.Generator, n: int, d: int) -> Array:
    x = rng.normal(size=(n, d))
    return np.asarray(x / np.linalg.norm(x, axis=1)[:, None])


@claim("wu2025.prop2_random_features", "Proposition 2", "rate",
       "For random ReLU features on the sphere, a target they can represent and n ≳ d⁵ log(1/δ): "
       "μ ≳ 1/d for all θ",
       as_printed="The same for every target and any number of features", errata=("W14",),
       note="The least μ over all θ is an eigenvalue, exact for the drawn data.")  # fmt: skip
def random_features(trial: Trial) -> Lines:
    rng, dims, m = trial.rng("prop2"), (3, 4, 5, 6), 60
    least = []
    for d in dims:
        x, w = _sphere(rng, max(3000, d**5), d), np.sqrt(d) * _sphere(rng, m, d)
        least.append(least_alignment(np.maximum(x @ w.T, 0)))
    scaled = [value * d for value, d in zip(least, dims, strict=True)]
    yield above("m=60, n = max(3000, d⁵), d = 3, 4, 5, 6: least d·min μ", min(scaled), 0.2)
    yield slope("exponent of 1/min μ in d", dims, 1 / np.array(least), at_most=1.2)
    x, w = _sphere(rng, 400, 3), _sphere(rng, 1, 3)[0]
    J = np.maximum(x @ w, 0)[:, None]
    e = np.where(J[:, 0] > 0, 0.0, -1.0)  # θ = 0, label 1 where the feature is 0
    lost = GradientNoise.of(J, e)
    yield above("m=1, label 1 where the feature vanishes, θ = 0: L", lost.twice_loss / 2, 0.1)
    yield printed(at_least("d·μ there, against the least above", 3 * lost.mu, min(scaled)))


fig18 = by_experiment(
    "wu2025.fig18", "Figure 18",
    "The alignment factors stay away from zero during training and as networks grow",
    "wu2025/noise",
)  # fmt: skip
