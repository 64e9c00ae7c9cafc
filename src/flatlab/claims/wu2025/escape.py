"""What aligned noise implies: a bound of flatness at stable minima, and escape from sharp ones."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from ...measures.second_moment import LinearisedSGD
from ...models import TwoLayer
from ...theory.gradient_noise import GradientNoise, least_alignment
from ...theory.noise_shapes import critical_rate, moment_matrix
from ...theory.solution import Array, Solution
from ...theory.stability import edge_of_descent, escape_rate, flatness_bound
from ..contract import Trial, by_experiment, claim
from ..instances import random_data, random_interpolator
from ..lines import Lines, above, at_least, at_most, below, equal

SYSTEMS = ((12, 3, 1), (30, 4, 4), (60, 4, 4), (5, 9, 2))
"""Examples, parameters and batch size of linear regressions."""


@claim("wu2025.thm3_stability", "Theorem 3 (stability)", "inequality",
       "At a linearly stable minimum where the noise has μ ≥ μ_0: ‖H‖_F ≤ (1/η)√(B/μ_0)",
       note="Linear regression at the critical learning rate of the exact second moment, batches "
       "with replacement; μ_0 is the least μ over all θ, exactly.")  # fmt: skip
def stable_minima(trial: Trial) -> Lines:
    rng, draws = trial.rng("thm3"), trial.size(5, 50)
    for n, d, B in SYSTEMS:
        shares = []
        for _ in range(draws):
            J = rng.normal(size=(n, d))
            lr = LinearisedSGD.of_rows(J).critical_lr(B, True, tolerance=1e-4).low
            frobenius = float(np.linalg.norm(J.T @ J / n))
            shares.append(frobenius / flatness_bound(lr, B, least_alignment(J)))
        what = f"n={n}, d={d}, B={B}, {draws} draws: largest ‖H‖_F over the bound"
        yield at_most(what, max(shares), 1.0)


@claim("wu2025.thm3.step", "Proof of Theorem 3", "inequality",
       "For linearised SGD E L_{t+1} ≥ (η²/2B) E Tr(HΣ) = (η²/B)‖H‖_F² E μL_t")  # fmt: skip
def one_step(trial: Trial) -> Lines:
    rng, B, least, errors = trial.rng("step"), 2, np.inf, []
    for _ in range(trial.size(40, 400)):
        n, d = (int(each) for each in rng.integers([2, 1], [7, 5]))
        J, theta, lr = rng.normal(size=(n, d)), rng.normal(size=d), rng.uniform(0.05, 2)
        noise = GradientNoise.of(J, J @ theta)
        ends = [theta - lr * np.mean(noise.e[[*b], None] * J[[*b]], 0)
                for b in itertools.product(range(n), repeat=B)]  # fmt: skip
        after = float(np.mean((np.array(ends) @ J.T) ** 2) / 2)
        part = lr**2 / (2 * B) * float(np.sum(noise.gram * noise.covariance))
        least = min(least, after / part)
        frobenius = float(np.sum(noise.gram**2))
        errors.append(lr**2 / B * frobenius * noise.mu * noise.twice_loss / 2 / part - 1)
    yield at_least("40 regressions, all batches with B=2: least E L_{t+1} over (η²/2B)Tr(HΣ)",
                   least, 1.0)  # fmt: skip
    worst = float(np.max(np.abs(errors)))
    yield at_most("|(η²/B)‖H‖_F² μL over (η²/2B)Tr(HΣ), less 1|, largest", worst, 1e-10)


@claim("wu2025.gd_fro_bound", "Comparison with GD", "inequality",
       "λ_1 ≤ 2/η gives ‖H‖_F ≤ √rank(H) λ_1 ≤ 2√n/η at interpolation")  # fmt: skip
def descent_bound(trial: Trial) -> Lines:
    rng, shares, count = trial.rng("gd-fro"), [], 100
    for _ in range(count):
        n, p = (int(each) for each in rng.integers([1, 2], [10, 30]))
        J = rng.normal(size=(n, p)) * np.exp(rng.normal(size=(n, 1)))
        values = np.linalg.eigvalsh(J @ J.T / n)
        lr = 2 / values[-1]
        shares.append(np.linalg.norm(values) / (np.sqrt(n) * edge_of_descent(lr)))
    yield at_most(f"{count} random J at η = 2/λ_1: largest ‖H‖_F over 2√n/η", max(shares), 1.0)
    J = np.linalg.qr(rng.normal(size=(30, 6)))[0].T
    values = np.linalg.eigvalsh(J @ J.T / 6)
    lr = 2 / values[-1]
    yield equal("orthogonal gradients of equal length, n=6: ‖H‖_F, attained",
                np.linalg.norm(values), np.sqrt(6) * edge_of_descent(lr))  # fmt: skip


@claim("wu2025.geometry_vs_isotropic", "The importance of noise structure", "inequality",
       "Stability under noise of covariance 2LG/B needs ‖H‖_F ≤ √B/η; under isotropic noise of "
       "the same variance Tr H ≤ √(mB)/η with m parameters", errata=("W17",),
       note="The exact condition, (η/B) Σ λ_i/(2 − ηλ_i) ≤ 1 for noise shaped like the curvature, "
       "gives Tr H ≤ 2B/η too. The slide omits the 1/B in the covariances.")  # fmt: skip
def noise_structure(trial: Trial) -> Lines:
    rng, draws, radii = trial.rng("shapes"), 60, []
    shares: dict[str, list[float]] = {"‖H‖_F η/√B": [], "Tr H η/(2B)": [], "Tr H η/√(mB)": []}
    for _ in range(draws):
        m, B = int(rng.integers(2, 30)), int(rng.integers(1, 9))
        values = rng.exponential(size=m) ** 2
        values[: int(rng.integers(0, m))] = 0.0
        for shape in ("geometry", "isotropic"):
            lr = critical_rate(values, B, shape)
            curved = np.flatnonzero(values)
            M = moment_matrix(values, lr, B, shape)[np.ix_(curved, curved)]
            radii.append(float(np.abs(np.linalg.eigvals(M)).max()) - 1)
            if shape == "geometry":
                shares["‖H‖_F η/√B"].append(lr * np.linalg.norm(values) / np.sqrt(B))
                shares["Tr H η/(2B)"].append(lr * values.sum() / (2 * B))
            else:
                shares["Tr H η/√(mB)"].append(lr * values.sum() / np.sqrt(m * B))
    worst = float(np.max(np.abs(radii)))
    yield at_most(f"{draws} spectra at the critical η: |growth of the moments − 1|", worst, 1e-9)
    for what, found in shares.items():
        yield at_most(f"at the critical η: largest {what}", max(found), 1.0)
    for k, B in ((4, 4), (16, 4)):
        lr = critical_rate(np.full(k, 0.7), B)
        yield equal(f"{k} equal eigenvalues, B={B}: η over 2/(λ(1 + k/B))", lr,
                    2 / (0.7 * (1 + k / B)))  # fmt: skip
        share = lr * 0.7 * np.sqrt(k / B)
        if k == B:
            yield equal("‖H‖_F η/√B, attained at k = B", share, 1.0)
        else:
            yield below("‖H‖_F η/√B, not attained", share, 0.9)
    flat = [critical_rate(np.r_[np.ones(4), np.zeros(m - 4)], 4, "isotropic") for m in (4, 400)]
    yield above("4 equal eigenvalues, B=4, isotropic: critical η for m = 400 over m = 4",
                flat[1] / flat[0], 1.5)  # fmt: skip


@claim("wu2025.thm4_escape", "Theorem 4 (escape)", "inequality",
       "If ‖H‖_F > (1/η)√(B/μ_0), linearised SGD has E L_t ≥ γ_0^t E L_0 with "
       "γ_0 = (η²μ_0/B)‖H‖_F² > 1",
       note="By the exact recursion of the second moment, batches with replacement.")  # fmt: skip
def escape(trial: Trial) -> Lines:
    rng = trial.rng("thm4")
    for n, d, B in SYSTEMS:
        J, steps = rng.normal(size=(n, d)), 12
        sgd, frobenius = LinearisedSGD.of_rows(J), float(np.linalg.norm(J.T @ J / n))
        mu = least_alignment(J)
        lr = 2 * flatness_bound(1.0, B, mu) / frobenius  # γ₀ = 4
        rate = escape_rate(lr, B, mu, frobenius)
        start = rng.normal(size=sgd.rank)
        losses = _expected_losses(sgd, np.outer(start, start), lr, B, steps)
        ratios = losses[1:] / losses[:-1]
        yield at_least(f"n={n}, d={d}, B={B}, {steps} steps: least E L_(t+1)/E L_t", ratios.min(),
                       rate)  # fmt: skip


def _expected_losses(sgd: LinearisedSGD, C: Array, lr: float, B: int, steps: int) -> Array:
    found = []
    for _ in range(steps + 1):
        found.append(float(sgd.curvatures @ np.diag(C)) / 2)
        C = sgd.step(C, lr, 1 / B)
    return np.array(found)


@claim("wu2025.fig19", "Figure 19", "empirical",
       "SGD leaves a sharp minimum that GD found at the same learning rate exponentially fast",
       expected="holds",
       note="A small network. The experiment wu2025/escape does it on images.")  # fmt: skip
def figure19(trial: Trial) -> Lines:
    rng, runs = trial.rng("fig19"), 200
    data = random_data(rng, 12, 3)
    net = random_interpolator(rng, TwoLayer(width=16, activation="tanh"), data)
    near = _Runs.of(net, 1)
    lr = 1.8 / float(LinearisedSGD.of_rows(net.gradients()).curvatures[-1])
    near.parts = [part + 1e-3 * rng.normal(size=part.shape) for part in near.parts]
    before = near.losses()[0]
    for _ in range(3000):
        near.step(lr, np.tile(np.arange(12), (1, 1)))
    start = float(near.losses()[0])
    what = "tanh, n=12, p=80, GD with η = 1.8/λ_max"
    yield below(f"{what}: loss after 3,000 steps over that 1e-3 from a fit", start / before, 0.2)
    end = net.with_params(W1=near.parts[0][0], b1=near.parts[1][0], W2=near.parts[2][0])
    sgd = LinearisedSGD.of_rows(end.gradients())
    yield below("ηλ_max/2 at its end: stable for GD", lr * sgd.curvatures[-1] / 2, 1.0)
    yield above("ρ of SGD with B=1 there, lower bound", sgd.radius(lr, 1, tolerance=1e-3).low, 1.0)
    many, left, mean = _Runs.of(end, runs), np.zeros(runs, bool), [start]
    for _ in range(300):
        before_step = [part.copy() for part in many.parts]
        many.step(lr, rng.integers(0, 12, (runs, 1)))
        for part, old in zip(many.parts, before_step, strict=True):
            part[left] = old[left]  # who has left is not followed any further
        losses = many.losses()
        left |= losses > 1e4 * start
        mean.append(float(losses.mean()))
    yield equal(f"of {runs} runs of SGD: those whose loss grew 10,000-fold in 300 steps",
                left.sum(), runs)  # fmt: skip
    growth = (mean[10] / start) ** 0.1
    yield above("growth of their mean loss in each of the first 10 steps", growth, 1.1)
    for _ in range(300):
        near.step(lr, np.tile(np.arange(12), (1, 1)))
    yield below("300 more steps of GD: loss over its first", near.losses()[0] / start, 1.0)


class _Runs:
    """Copies of a two-layer tanh network, each trained on (1/2n) Σ e² for itself."""

    def __init__(self, parts: list[Array], x: Array, y: Array):
        self.parts, self.x, self.y = parts, x, y

    @classmethod
    def of(cls, net: Solution, runs: int) -> _Runs:
        """Copy a network."""
        parts = [np.array([net.params[name]] * runs, float) for name in ("W1", "b1", "W2")]
        return cls(parts, net.data.x_train, net.data.y_train)

    def _forward(self, x: Array) -> tuple[Array, Array]:
        """Return the hidden layer and the outputs of inputs (runs, batch, d)."""
        W1, b1, W2 = self.parts
        h = np.tanh(x @ W1.swapaxes(1, 2) + b1[:, None])
        return h, (h @ W2[:, :, None])[:, :, 0]

    def losses(self) -> Array:
        """Return (1/2n) Σ e² of each run."""
        _, f = self._forward(np.broadcast_to(self.x, (len(self.parts[0]), *self.x.shape)))
        return np.asarray(np.mean((f - self.y) ** 2, 1) / 2)

    def step(self, lr: float, batch: NDArray[np.int64]) -> None:
        """Take a step of SGD, each run on its own batch, (runs, batch)."""
        W1, b1, W2 = self.parts
        x = self.x[batch]
        h, f = self._forward(x)
        e = (f - self.y[batch]) / batch.shape[1]
        back = e[:, :, None] * W2[:, None] * (1 - h**2)
        self.parts = [
            W1 - lr * back.swapaxes(1, 2) @ x,
            b1 - lr * back.sum(1),
            W2 - lr * (e[:, None] @ h)[:, 0],
        ]


cifar = by_experiment(
    "wu2025.cifar", "CIFAR-10 experiments",
    "The sharpness of SGD's solutions hardly depends on the size of the model and is close to the "
    "bound, the closer the smaller the batch", "wu2025/size-independence",
)  # fmt: skip
