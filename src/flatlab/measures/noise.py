"""SGD's noise: its alignment with the geometry (α, β, μ), and the spread of examples' Hessians."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..problem import Problem
from ..problem.examples import ROOM, every_row, hessian_spread, pieces
from ..problem.losses import slopes
from ..problem.shaking import shaken
from ..specs import spec
from .contract import About, Measured
from .effort import Effort
from .eigenvalues import Limit, Tolerance
from .lanczos import HOW, largest
from .probes import sample, skewness_of, widening
from .rounding import MARGIN, lost, settled

Moments = NDArray[np.float64]  # Tr ΣG, ‖Σ‖_F², ‖G‖_F²


def alphabet(moments: Moments, scale: float) -> NDArray[np.float64]:
    """Return α, β and μ; α is NaN without noise, β and μ are NaN where all ∂ℓ_i/∂f vanish."""
    mixed, noise, gram = moments
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = mixed / np.sqrt(noise * gram)
        beta = np.sqrt(noise / gram) / np.float64(scale)
        return np.array([alpha, beta, mixed / (gram * scale)])


def _power(problem: Problem) -> float:
    """Return E‖∂ℓ_i/∂f‖²."""
    u = (slopes(problem.loss, f, y) for _, f, y in pieces(problem))
    return sum(float(part.double().square().sum()) for part in u) / problem.n


def _exact(problem: Problem, tick: Callable[[], None] = lambda: None) -> Moments:
    """Form all per-example gradients, and products on the shorter side."""
    (R, _), (J, _) = every_row(problem, "fisher"), every_row(problem, "gram", tick)
    R = R - R.mean(0)
    if problem.size <= len(J):
        S, G = R.T @ R, J.T @ J
        found = [(S * G).sum(), (S * S).sum(), (G * G).sum()]
    else:
        found = [(A @ B.T).square().sum() for A, B in ((R, J), (R, R), (J, J))]
    return np.array([float(value) for value in found]) / problem.n**2


def _settled(problem: Problem, moments: Moments, scale: float) -> tuple[Moments, Moments]:
    """Return α, β and μ with their rounding; a Σ that rounding alone explains is zero."""
    given = shaken(problem, lambda part: [*_exact(part), _power(part)])
    clean, moved = (part.numpy() for part in given)
    if np.abs(moved[:, 1]).max() > clean[1] / 2:
        rest = np.append(np.abs(moved[:, :2]).max(0) + moments[:2], moments[2])
        values, away = alphabet(moments * [0, 0, 1], scale), alphabet(rest, scale)
    else:
        apart = [alphabet(row[:3], row[3]) for row in clean + moved]
        values = alphabet(moments, scale)
        away = np.abs(np.array(apart) - alphabet(clean[:3], clean[3])).max(0)
    return values, MARGIN * np.nan_to_num(away)


@spec
class Alignment:
    """α, β and μ = αβ of the noise covariance Σ against the Gram matrix G = (1/n) Σ J_iᵀ J_i.

    Σ = (1/n) Σ ∇ℓ_i ∇ℓ_iᵀ − ∇L ∇Lᵀ is the covariance of the gradient of one random example, and

        α = Tr(ΣG) / (‖Σ‖_F ‖G‖_F),   β = ‖Σ‖_F / (2L ‖G‖_F),   μ = αβ = Tr(ΣG) / (2L ‖G‖_F²)

    2L stands for E‖∂ℓ_i/∂f‖². For ℓ = ½‖f − y‖² that is 2L; the factors are then the same for every
    multiple of a loss, and defined for other losses too. If Σ = 2L G, all three are 1. They are
    exact if all per-example gradients fit in memory and there is no budget. Otherwise they are
    estimated with random signs v, since E vᵀABv = Tr AB for symmetric A and B.
    """

    tolerance: Tolerance = 0.1
    max_products: Limit = 1000
    exact: bool | None = None
    about: ClassVar[About] = About(
        "α, β, μ",
        "the alignment of SGD's noise with the geometry of the model, and its size",
        "α = Tr(ΣG)/(‖Σ‖_F‖G‖_F), β = ‖Σ‖_F/(2L‖G‖_F), μ = αβ, with 2L = E‖∂ℓ_i/∂f‖²",
        "exact: a backward pass for each output; otherwise about 100 products with both matrices",
        "Σ is centred: with equal gradients it vanishes, μ is 0 and α undefined (NaN); all are NaN "
        "where every example is fitted exactly",
        exact="yes for small problems; otherwise a standard error",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        problem = problem.precise
        scale = _power(problem)
        labels, rows = ("α", "β", "μ"), problem.n * (problem.outputs[0][0].numel() + 1)
        fits = rows * problem.size <= ROOM and effort.affordable(0, 1) >= rows
        if fits if self.exact is None else self.exact:
            values, error = _settled(problem, _exact(problem, effort.spend), scale)
            return settled(values, error, "exact, per-example gradients", labels=labels)
        fisher, gram = problem.matrix("fisher"), problem.matrix("gram")
        slope = problem.value_and_gradient()[1].to("cpu", torch.float64)
        effort.expect(200)

        def probe(i: int) -> Moments:
            v = effort.signs("alignment", i, problem.size)
            S, G = fisher @ v - slope * (slope @ v), gram @ v
            effort.spend()
            return np.array([float(S @ G), float(S @ S), float(G @ G)])

        def wish(mean: Moments, error: Moments) -> tuple[float, float]:
            return np.max(error / np.abs(mean)), self.tolerance

        drawn = sample(probe, effort, wish, self.max_products)
        mean, pilot, n = drawn.mean, drawn.pilot, len(drawn.rows)
        values = alphabet(mean, scale)
        # The jackknife, which sees that the factors are ratios: every probe left out once.
        count = len(pilot)
        means = (pilot.sum(0) - pilot) / (count - 1)
        away = np.array([alphabet(each, scale) for each in means])
        away = away.mean(0) - away
        stderr = np.sqrt((away**2).sum(0) * (count - 1) / n)
        stderr = stderr * widening(skewness_of(away), n, drawn.dof)
        return drawn.measured(values, stderr, f"{n} probes", labels=labels)


@spec
class NonUniformity:
    """λ_max(E[H_i²] − H²) with H_i = ∇²ℓ_i and H = E H_i, by Lanczos; s is its square root.

    In one dimension it is the variance of the curvatures. With learning rate η and batch size B,
    SGD near an interpolating minimum has E‖θ‖² contract if
    λ_max((I − ηH)² + η²(n−B)/(B(n−1)) (E[H_i²] − H²)) ≤ 1, which needs
    s ≤ (1/η) √(B(n−1)/(n−B)).
    """

    tolerance: Tolerance = 1e-3
    max_products: Limit = 100
    about: ClassVar[About] = About(
        "s²",
        "the non-uniformity: the largest eigenvalue of the variance of the examples' Hessians",
        "λ_max(E[H_i²] − H²), H_i = ∇²ℓ_i; details['s'] is its root, in units of the sharpness",
        "about 20 to 50 products, each with two per-example Hessian products for all examples",
        "the condition on s is necessary for that inequality, not for SGD to be stable. ReLU kinks "
        "are not seen",
        exact="no: a bound that holds with probability 1 − 10⁻⁶",
    )

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        effort.expect(30)
        exact = problem.precise
        top = largest(hessian_spread(exact), effort, self.tolerance, self.max_products)
        g = effort.normal("size", 0, exact.size)
        noise = lost(exact, lambda part: hessian_spread(part) @ g)
        error = top.error + float(np.linalg.norm(noise))
        details = {"vector": top.vector, "s": math.sqrt(max(top.value, 0.0))}
        return Measured(top.value, error, False, HOW, complete=top.complete, details=details)
