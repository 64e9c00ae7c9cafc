"""Which minima gradient descent and SGD can stay at, to first order around the minimum.

The formulas are those of Lei Wu's lecture on implicit bias, 2025, for L = (1/2n) Σ (f − y)². The
exact threshold of SGD in many dimensions is `flatlab.measures.second_moment.LinearisedSGD`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ..data.dataset import Array
from ..errors import UserError
from ..measures.second_moment import batch_noise, require_rate, symmetric


def descent_factor(lr: float, curvature: ArrayLike) -> Array:
    """Return 1 − ηλ: a step of gradient descent multiplies θ − θ* by it along an eigenvector."""
    return np.asarray(1 - require_rate(lr) * np.asarray(curvature, float))


def edge_of_descent(lr: float, momentum: float = 0.0) -> float:
    """Return 2(1 + β)/η: gradient descent with heavy-ball momentum β is stable below it.

    >>> edge_of_descent(0.1), edge_of_descent(0.1, momentum=0.5)
    (20.0, 30.0)
    """
    if not 0 <= momentum < 1:
        raise UserError(f"momentum must be in [0, 1), got {momentum!r}")
    return 2 * (1 + momentum) / require_rate(lr)


def momentum_radius(lr: float, momentum: float, curvature: float) -> float:
    """Return the growth of θ_{t+1} = (1 + β − ηλ) θ_t − β θ_{t−1} a step: its spectral radius."""
    matrix = np.array([[1 + momentum - require_rate(lr) * curvature, -momentum], [1.0, 0.0]])
    return float(np.abs(np.linalg.eigvals(matrix)).max())


def mean_square_factor(
    a: ArrayLike, s: ArrayLike, lr: float, batch_size: int, n: int, replacement: bool = False
) -> Array:
    """Return E x'²/E x² = (1 − ηa)² + η²κs² of SGD on (1/2n) Σ a_i x², eq. (6).

    a is the mean of the a_i, the sharpness, and s their deviation, the non-uniformity;
    κ = (n − B)/(B(n − 1)) for batches without replacement.

    >>> float(mean_square_factor(1.0, 1.0, lr=1.0, batch_size=1, n=5))
    1.0
    """
    kappa = batch_noise(batch_size, n, replacement)
    spread = lr**2 * kappa * np.asarray(s, float) ** 2
    return np.asarray(descent_factor(lr, a) ** 2 + spread)


def largest_nonuniformity(
    a: ArrayLike, lr: float, batch_size: int, n: int, replacement: bool = False
) -> Array:
    """Return the largest s at which SGD is stable for each a; NaN where none is, a > 2/η.

    >>> largest_nonuniformity([1.0, 3.0], lr=1.0, batch_size=1, n=5)
    array([ 1., nan])
    """
    kappa = batch_noise(batch_size, n, replacement)
    room = 1 - descent_factor(lr, a) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sqrt(room / (lr**2 * kappa)))


def spread_condition(hessians: ArrayLike, lr: float, batch_size: int) -> float:
    """Return λ_max((I − ηH)² + η²κ((1/n) Σ H_i² − H²)) for batches without replacement.

    It is the largest factor of E‖θ‖² in one step. At most 1 is sufficient for stability.
    """
    each = np.array([symmetric(f"H_{i}", H) for i, H in enumerate(np.asarray(hessians, float))])
    kappa, mean = batch_noise(batch_size, len(each)), each.mean(0)
    step = np.eye(len(mean)) - require_rate(lr) * mean
    spread = (each @ each).mean(0) - mean @ mean
    return float(np.linalg.eigvalsh(step @ step + lr**2 * kappa * spread)[-1])


def flatness_bound(lr: float, batch_size: float, mu: float) -> float:
    """Return (1/η) √(B/μ₀): ‖H‖_F is at most that at a minimum where SGD is linearly stable.

    >>> flatness_bound(lr=0.5, batch_size=4, mu=1.0)
    4.0
    """
    if not mu > 0:
        raise UserError(f"mu must be > 0, got {mu!r}: noise that is not aligned bounds nothing")
    if not batch_size > 0:
        raise UserError(f"batch_size must be > 0, got {batch_size!r}")
    return math.sqrt(batch_size / mu) / require_rate(lr)


def escape_rate(lr: float, batch_size: float, mu: float, frobenius: float) -> float:
    """Return γ₀ = η²μ₀‖H‖_F²/B: E L of linearised SGD grows at least by it in a step.

    >>> escape_rate(lr=0.5, batch_size=4, mu=1.0, frobenius=8.0)
    4.0
    """
    return (frobenius / flatness_bound(lr, batch_size, mu)) ** 2


def require_minimum(gradients: ArrayLike, tolerance: float = 1e-6) -> None:
    """Refuse a point where the gradient of an example does not vanish.

    `gradients` has a row ∇ℓ_i for each example.

    >>> require_minimum([[0.0, 0.0], [3.0, 4.0]])
    Traceback (most recent call last):
    flatlab.errors.UserError: the point must be a minimum of every example, got ‖∇ℓ_i‖ up to 5: \
train until it is at most 1e-06, or linearise elsewhere
    """
    worst = float(np.linalg.norm(np.atleast_2d(np.asarray(gradients, float)), axis=1).max())
    if not worst <= tolerance:
        raise UserError(
            f"the point must be a minimum of every example, got ‖∇ℓ_i‖ up to {worst:.3g}: train "
            f"until it is at most {tolerance:g}, or linearise elsewhere"
        )
