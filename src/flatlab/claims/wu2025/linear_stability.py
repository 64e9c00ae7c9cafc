"""Linear stability of SGD: one dimension exactly, and what holds in several."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from ...measures.second_moment import LinearisedSGD
from ...models import TwoLayer
from ...theory.solution import Array
from ...theory.stability import (
    edge_of_descent,
    largest_nonuniformity,
    mean_square_factor,
    spread_condition,
)
from ..contract import Trial, by_experiment, claim, printed
from ..instances import random_data, random_interpolator
from ..lines import Lines, above, at_least, at_most, below, equal, near_zero


@claim("wu2025.fixed_points", "Linear stability of SGD", "identity",
       "For smooth ℓ_i ≥ 0, L = 0 implies ∇ℓ_i = 0 for all i: global minima with L = 0 are fixed "
       "points of SGD")  # fmt: skip
def fixed_points(trial: Trial) -> Lines:
    rng = trial.rng("fixed")
    data = random_data(rng, 8, 3)
    net = random_interpolator(rng, TwoLayer(width=16, activation="tanh"), data)

    def gradients(params: dict[str, Array]) -> tuple[Array, Array]:
        made = net.with_params(**params)
        e = made.outputs() - data.y_train
        return e, e[:, None] * made.gradients()

    e, at = gradients({})
    scale = float(np.abs(net.gradients()).max())
    yield near_zero("tanh, n=8, p=80, L = 0: largest |∂ℓ_i/∂θ_j| over |∂f/∂θ|", at / scale, 1e-8)
    away = {name: rng.normal(size=np.shape(value)) for name, value in net.params.items()}
    ratios = []
    for t in (1e-2, 1e-3, 1e-4):
        e, each = gradients({name: net.params[name] + t * away[name] for name in away})
        sizes = np.linalg.norm(each, axis=1) / np.sqrt(e**2 / 2)
        ratios.append(float(sizes.max()) / float(np.linalg.norm(net.gradients(), axis=1).max()))
    yield at_most("1e-2 to 1e-4 away: largest ‖∇ℓ_i‖/√ℓ_i over ‖∇f_i‖, so both vanish together",
                  max(ratios), 2.0)  # fmt: skip


def _a(trial: Trial, n: int) -> Array:
    return np.asarray(trial.rng("curvatures", n).exponential(size=n))


@claim("wu2025.sgd_eq2_to_eq5", "eqs. (2) to (5)", "identity",
       "On (1/2n)Σa_i x² with batch size 1, E x' = (1 − ηa) E x and E x'² = ((1 − ηa)² + η²s²) "
       "E x², a and s being the mean and deviation of a_i")  # fmt: skip
def moments(trial: Trial) -> Lines:
    a, lr, steps = _a(trial, 6), 0.4, 3
    ends = [np.prod([1 - lr * a[i] for i in path]) for path in
            itertools.product(range(6), repeat=steps)]  # fmt: skip
    factor = mean_square_factor(a.mean(), a.std(), lr, 1, 6)
    yield equal("n=6, all 216 runs of 3 steps: E x_3/x_0", np.mean(ends), (1 - lr * a.mean()) ** 3,
                abs=1e-12)  # fmt: skip
    yield equal("E x_3²/x_0²", np.mean(np.square(ends)), factor**3)


def _batch_means(a: Array, B: int) -> Array:
    """Return the mean of every batch without replacement."""
    return np.array([np.mean(batch) for batch in itertools.combinations(a, B)])


@claim("wu2025.sgd_stability_eq6", "eq. (6)", "identity",
       "With batches of B drawn without replacement, x = 0 is stable in the mean square if and "
       "only if (1 − ηa)² + η²(n − B)/(B(n − 1)) s² ≤ 1")  # fmt: skip
def equation_six(trial: Trial) -> Lines:
    n, lr, errors = 6, 0.4, []
    a = _a(trial, n)
    for B in range(1, n + 1):
        exact = np.mean((1 - lr * _batch_means(a, B)) ** 2)
        errors.append(exact / float(mean_square_factor(a.mean(), a.std(), lr, B, n)) - 1)
    yield near_zero("n=6, B = 1 … 6, all batches: E x'²/x² over the formula, less 1", errors, 1e-12)
    for B in (1, 2, 3):
        kappa = (n - B) / (B * (n - 1))
        critical = 2 * a.mean() / (a.mean() ** 2 + kappa * a.var())
        for share in (0.99, 1.01):
            exact = np.mean((1 - share * critical * _batch_means(a, B)) ** 2)
            line = below if share < 1 else above
            yield line(f"B={B}, η = {share} times the critical one: E x'²/x²", exact, 1.0)


@claim("wu2025.selection_diagram", "The selection diagram", "identity",
       "In one dimension the stable pairs of sharpness a and non-uniformity s fill the region "
       "(1 − ηa)² + η²(n − B)/(B(n − 1)) s² ≤ 1: η bounds a by 2/η for every B, and B scales the "
       "bound of s",
       note="Of pairs that examples with a_i ≥ 0 can have: s ≤ a√(n − 1).")  # fmt: skip
def selection(trial: Trial) -> Lines:
    n, agree, count = 5, 0, 0
    shape = np.append(np.sqrt(n - 1), np.full(n - 1, -1 / np.sqrt(n - 1)))
    for lr, B in itertools.product((0.5, 1.0), (1, 2, 4)):
        for a, share in itertools.product(
            np.linspace(0.05, 1.15, 23) * 2 / lr, (0.03, 0.21, 0.5, 0.9)
        ):
            s = share * a * np.sqrt(n - 1)
            exact = np.mean((1 - lr * _batch_means(a + s * shape, B)) ** 2)
            agree += (exact <= 1) == (mean_square_factor(a, s, lr, B, n) <= 1)
            count += 1
    yield equal(f"n=5, {count} pairs (a, s), all batches: E x'² ≤ x² ⇔ formula", agree, count)
    for lr in (0.5, 1.0):
        a = np.linspace(0, edge_of_descent(lr), 2001)[1:-1]
        tops = [float(largest_nonuniformity(a, lr, B, n).max()) for B in (1, 4)]
        ratio = np.sqrt(4 * (n - 1) / (n - 4))
        yield equal(f"η = {lr}: largest stable s for B = 4 over B = 1", tops[1] / tops[0], ratio)
        yield equal(f"η = {lr}, B = 1: largest stable s, times η", tops[0] * lr, 1.0)


# A system that is stable although ηs > 1, found by a random search.
STABLE = np.array([[0.9569, -1.3116], [-1.6996, -0.4993], [0.5738, 1.0380]])
STABLE_LR = 0.73298


def _examples(trial: Trial, count: int) -> Iterator[tuple[LinearisedSGD, list[Array], int, float]]:
    """Yield random Hessians of rank one or two, a batch size and a learning rate."""
    rng = trial.rng("high-dimensional")
    for _ in range(count):
        n, d, rank = (int(each) for each in rng.integers([2, 2, 1], [6, 4, 3]))
        rows = rng.normal(size=(n, rank, d)) * rng.exponential(size=(n, 1, 1))
        B = int(rng.integers(1, n + 1))
        sgd = LinearisedSGD.of_rows(rows)
        lr = sgd.critical_lr(B, tolerance=1e-4).low * rng.uniform(0.3, 1.5)
        yield sgd, [r.T @ r for r in sgd.rows], B, lr


@claim("wu2025.sgd_highdim", "High-dimensional cases", "inequality",
       "λ_max((I − ηH)² + η²(n − B)/(B(n − 1)) Σ) ≤ 1 is sufficient for stability in the mean "
       "square; exact is a spectral radius ρ of E[(I − ηH_B)⊗(I − ηH_B)] of at most 1",
       as_printed="That condition is the stability condition, as eq. (6) is in one dimension",
       errata=("W12",))  # fmt: skip
def high_dimensional(trial: Trial) -> Lines:
    count = trial.size(150, 1500)
    ratios, dense = [], []
    for sgd, each, B, lr in _examples(trial, count):
        radius = sgd.radius(lr, B)
        ratios.append(radius.low / spread_condition(each, lr, B))
        steps = [np.eye(sgd.rank) - lr * np.mean(batch, 0)
                 for batch in itertools.combinations(each, B)]  # fmt: skip
        exact = float(np.linalg.eigvalsh(np.mean([np.kron(M, M) for M in steps], 0))[-1])
        dense.append(max(radius.low / exact - 1, 1 - radius.high / exact))
    yield at_most(
        f"{count} random systems: largest ρ over λ_max of the condition", max(ratios), 1.0
    )
    yield at_most("how far ρ by all batches is outside its two bounds", max(dense), 1e-9)
    top, condition, after = _the_stable_one()
    yield below("n=3, d=2, B=1: ρ, upper bound", top, 1.0)
    yield below("E‖θ_1000‖² from ‖θ_0‖ = 1, exactly", after, 1e-9)
    yield printed(at_most("λ_max of the condition for this stable system", condition, 1.0))


def _the_stable_one() -> tuple[float, float, float]:
    """Return ρ, λ_max of the slide's condition and E‖θ_1000‖² from a random unit θ_0."""
    each = [np.outer(h, h) for h in STABLE]
    sgd = LinearisedSGD.of_hessians(each)
    C = np.eye(2) / 2
    for _ in range(1000):
        C = sgd.step(C, STABLE_LR, 1.0)
    return sgd.radius(STABLE_LR, 1).high, spread_condition(each, STABLE_LR, 1), float(np.trace(C))


@claim("wu2025.sgd_necessary", "High-dimensional cases", "inequality",
       "a ≤ 2/η is necessary for stability; s ≤ (1/η)√(B(n − 1)/(n − B)) is so only for the "
       "sufficient condition, not for stability",
       as_printed="Both are necessary for stability", errata=("W12",))  # fmt: skip
def necessary(trial: Trial) -> Lines:
    edges, parts = [], []
    for sgd, each, B, lr in _examples(trial, trial.size(150, 1500)):
        n = sgd.n
        mean = np.mean(each, 0)
        spread = np.mean([H @ H for H in each], 0) - mean @ mean
        if sgd.radius(lr, B).high <= 1:
            edges.append(sgd.curvatures[-1] / edge_of_descent(lr))
        size = lr**2 * (n - B) / (B * (n - 1)) * float(np.linalg.eigvalsh(spread)[-1])
        parts.append(size / spread_condition(each, lr, B))
    yield at_least("stable systems among the random ones", len(edges), 20)
    yield at_most("largest a over 2/η in them", max(edges), 1.0)
    yield at_most("all: largest η²(n − B)/(B(n − 1)) s² over λ_max of the condition", max(parts), 1)
    each = [np.outer(h, h) for h in STABLE]
    mean = np.mean(each, 0)
    s = np.sqrt(np.linalg.eigvalsh(np.mean([H @ H for H in each], 0) - mean @ mean)[-1])
    yield below("n=3, d=2, B=1: ρ, upper bound", _the_stable_one()[0], 1.0)
    yield printed(at_most("ηs of this stable system", STABLE_LR * s, 1.0))


fig16 = by_experiment(
    "wu2025.fig16", "Figure 16",
    "The minima that SGD selects lie in the stable region of sharpness and non-uniformity",
    "wu2025/selection", note="sgd_highdim: the region is sufficient for stability, not necessary.",
)  # fmt: skip
fig17 = by_experiment(
    "wu2025.fig17", "Figure 17",
    "Over many trained networks the non-uniformity is nearly proportional to the sharpness",
    "wu2025/selection",
)  # fmt: skip
