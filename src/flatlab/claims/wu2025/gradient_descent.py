"""Stability of gradient flow and gradient descent, and SGD on two functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import expm

from ...theory.solution import Array
from ...theory.stability import descent_factor, edge_of_descent
from ...theory.two_functions import TwoFunctions
from ..contract import Trial, claim, printed
from ..lines import Lines, above, at_least, at_most, below, equal, near_zero, true

# Table 1 of the slides: η → (sharpness, standard error), as printed.
FASHION = {0.01: (53.5, 4.3), 0.05: (39.3, 0.5), 0.1: (19.6, 0.15), 0.5: (3.9, 0.0), 1: (1.9, 0.0)}
CIFAR = {0.01: (198.9, 0.6), 0.05: (39.8, 0.2), 0.1: (19.8, 0.1), 0.5: (3.6, 0.4)}
# At this distance from a critical point the next order of its Taylor series is as small again.
NEAR = 1e-6


def _flow(gradient: Callable[[Array], Array], start: Array, time: float, steps: int) -> Array:
    """Return the gradient flow after a time, by Runge and Kutta's method of order four."""
    x, h = start, time / steps
    for _ in range(steps):
        k1 = -gradient(x)
        k2 = -gradient(x + h / 2 * k1)
        k3 = -gradient(x + h / 2 * k2)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 - gradient(x + h * k3))
    return x


@claim("wu2025.gf_stability", "Stability of gradient flow", "identity",
       "Of the critical points gradient flow is stable at minima and leaves saddles: perturbations "
       "evolve by e^{−Ht} to first order",
       note="On (x² − 1)²/4 + ½yᵀAy, which has a saddle at 0 and minima at x = ±1.")  # fmt: skip
def gradient_flow(trial: Trial) -> Lines:
    rng = trial.rng("gf")
    root = rng.normal(size=(3, 3))
    A = root @ root.T / 3 + 0.3 * np.eye(3)

    def gradient(z: Array) -> Array:
        return np.append(z[0] ** 3 - z[0], A @ z[1:])

    for name, x, bend in (("minimum", 1.0, 2.0), ("saddle", 0.0, -1.0)):
        point, H = np.array([x, 0, 0, 0]), np.zeros((4, 4))
        H[0, 0], H[1:, 1:] = bend, A
        away = rng.normal(size=4)
        away *= NEAR / np.linalg.norm(away)
        moved = _flow(gradient, point + away, 3.0, 600) - point
        expected = expm(-3 * H) @ away
        error = np.linalg.norm(moved - expected) / np.linalg.norm(away)
        yield near_zero(f"{name}: |δ(3) − e^(−3H)δ(0)| over |δ(0)|", error, 1e-4)
        long = _flow(gradient, point + NEAR * np.array([1.0, 0, 0, 0]), 25.0, 2500) - point
        if name == "minimum":
            yield below("minimum: distance at t = 25, from 1e-6", np.linalg.norm(long), NEAR)
        else:
            yield equal("saddle: x at t = 25, from 1e-6", long[0], 1.0, rel=1e-6)


@claim("wu2025.gd_stability", "The linear stability analysis", "identity",
       "Linearised gradient descent has θ_{t+1} − θ* = (I − ηH)^{t+1}(θ_0 − θ*). For H ⪰ 0, "
       "‖I − ηH‖ ≤ 1 if and only if λ_1 ≤ 2/η; otherwise θ_t − θ* grows like |1 − ηλ_1|^t",
       as_printed="θ_{t+1} − θ* = (I − ηH)^t (θ_0 − θ*)", errata=("W15",))  # fmt: skip
def gradient_descent(trial: Trial) -> Lines:
    rng, agree = trial.rng("gd"), 0
    count, lr = 300, 0.1
    for _ in range(count):
        root = rng.normal(size=(5, int(rng.integers(1, 6))))
        H = root @ root.T
        top = np.linalg.eigvalsh(H)[-1]
        # Not at the threshold itself, which rounding decides.
        H *= rng.choice([rng.uniform(0.1, 0.99), rng.uniform(1.01, 3)]) * 2 / lr / top
        inside = np.linalg.eigvalsh(H)[-1] <= edge_of_descent(lr)
        agree += (np.linalg.norm(np.eye(5) - lr * H, 2) <= 1 + 1e-12) == inside
    yield equal(f"{count} random H ⪰ 0: ‖I − ηH‖ ≤ 1 ⇔ λ_1 ≤ 2/η", agree, count)
    root = rng.normal(size=(5, 5))
    values, vectors = np.linalg.eigh(root @ root.T)
    values *= 2.2 / lr / values[-1]
    H = (vectors * values) @ vectors.T
    start, t = vectors @ np.ones(5), 7
    theta = start
    for _ in range(t + 1):
        theta = theta - lr * H @ theta
    along = float(vectors[:, -1] @ theta)
    factor = float(descent_factor(lr, values[-1]))
    what = f"η = 1.1·2/λ_1: component of θ_{t + 1} along the top direction, from 1"
    yield equal(what, along, factor ** (t + 1))
    yield printed(equal(f"{what}, (1 − ηλ_1)^{t}", along, factor**t))
    yield above("growth a step |1 − ηλ_1|", abs(factor), 1.0)


@claim("wu2025.table_eos", "Table 1", "text",
       "The sharpness of GD's solutions is at most 2/η in all nine cells, and within a tenth of it "
       "in all but FashionMNIST at η = 0.01",
       note="Whether the printed numbers say so. The experiment wu2025/edge-of-stability trains "
       "the networks; kaur2022.eos checks small ones.")  # fmt: skip
def table_of_edges(trial: Trial) -> Lines:
    ratios = {}
    for name, table in (("FashionMNIST", FASHION), ("CIFAR-10", CIFAR)):
        for lr, (sharpness, _) in table.items():
            ratios[name, lr] = sharpness / edge_of_descent(lr)
    yield equal("cells", len(ratios), 9)
    yield at_most("largest sharpness over 2/η", max(ratios.values()), 1.0)
    early = ratios.pop(("FashionMNIST", 0.01))
    yield at_least("least sharpness over 2/η in the other eight cells", min(ratios.values()), 0.9)
    yield below("FashionMNIST at η = 0.01: sharpness over 2/η", early, 0.5)


@claim("wu2025.two_functions", "What affects the stability of SGD", "identity",
       "With f_i = min(x², c_i(x − 1)²), c = (0.1, 1.9) and η = 0.7, GD has the factor −0.4 at "
       "both minima while SGD leaves x = 1, where its factors are 0.86 and −1.66",
       as_printed="With f_i = ½min(x², c_i(x − 1)²) SGD with η = 0.7 is not stable at x = 1: "
       "stable for f_1 but unstable for f_2", errata=("W1",))  # fmt: skip
def two_functions(trial: Trial) -> Lines:
    count, steps = 200, 600
    good, slide = TwoFunctions(1.0), TwoFunctions(0.5)
    yield near_zero("GD: factors at x = 0 and x = 1, less −0.4",
                    [good.factors(each).mean() + 0.4 for each in (0, 1)], 1e-12)  # fmt: skip
    first, second = good.factors(1)
    yield equal("SGD at x = 1: factor of f_1", first, 0.86)
    yield equal("SGD at x = 1: factor of f_2", second, -1.66)
    yield above("E factor², growth of E (x − 1)²", np.mean(good.factors(1) ** 2), 1.0)
    yield above("E log |factor|, growth of a typical run", _typical(good), 0.0)
    start = 1 - 1e-5
    ends = good.walk(start, steps, count, trial.rng("two-functions"))[-1]
    yield equal(f"of {count} runs from x = 1 − 1e-5: at x = 0 in the end",
                np.sum(np.abs(ends) < 1e-6), count)  # fmt: skip
    stay = good.walk(1e-5, steps, count, trial.rng("two-functions", 1))[-1]
    yield equal(f"of {count} runs from x = 1e-5: at x = 0", np.sum(np.abs(stay) < 1e-6), count)
    yield printed(above("|factor| of f_2 at x = 1", abs(slide.factors(1)[1]), 1.0))
    yield printed(above("E factor² at x = 1", np.mean(slide.factors(1) ** 2), 1.0))
    walk = slide.walk(start, steps, count, trial.rng("two-functions", 2))
    left = np.sum(np.abs(walk[-1] - 1) > 1e-5)
    yield printed(equal(f"of {count} runs from x = 1 − 1e-5: away in the end", left, count))
    yield true("with the ½ they stay for every draw: both |factors| are below 1",
               np.all(np.abs(slide.factors(1)) < 1))  # fmt: skip


def _typical(functions: TwoFunctions) -> float:
    return float(np.mean(np.log(np.abs(functions.factors(1)))))
