"""Distributions on finitely many points: the KL divergence, Gibbs distributions, Donsker–Varadhan.

For a prior π and an energy V on a finite set, the Gibbs distribution is π_V ∝ π e^V, and

    log E_π e^V = max_p (E_p V − KL(p‖π)),

attained at p = π_V alone (Donsker and Varadhan). Every p has E_p V − KL(p‖π) = log E_π e^V −
KL(p‖π_V).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ..errors import UserError
from .solution import Array

ROUNDING = 1e-9
"""By how much the sum of probabilities may differ from 1."""


def probabilities(name: str, given: ArrayLike) -> Array:
    """Return one distribution: numbers >= 0 whose sum is 1.

    >>> probabilities("prior", [0.5, 0.25])
    Traceback (most recent call last):
    flatlab.errors.UserError: prior must sum to 1, got 0.75: divide it by its sum
    """
    values = numbers(name, given)
    if values.min() < 0:
        raise UserError(f"{name} must have probabilities >= 0, got {values.min():g}")
    if abs(values.sum() - 1) > ROUNDING:
        raise UserError(f"{name} must sum to 1, got {values.sum():g}: divide it by its sum")
    return values


def numbers(name: str, given: ArrayLike, like: Array | None = None) -> Array:
    """Return finite numbers in a row, as many as another row has."""
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be numbers in a row") from None
    if values.ndim != 1 or not values.size:
        raise UserError(f"{name} must be numbers in a row, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise UserError(f"{name} must be finite, got {values[~np.isfinite(values)][0]:g}")
    if like is not None and values.shape != like.shape:
        raise UserError(f"{name} must have {like.size} numbers, got {values.size}")
    return values


def divergence(p: ArrayLike, q: ArrayLike) -> float:
    """Return KL(p‖q) = Σ p log(p/q), infinite where p has mass and q has none.

    >>> divergence([0.5, 0.5], [0.5, 0.5]), divergence([0.5, 0.5], [1.0, 0.0])
    (0.0, inf)
    """
    first = probabilities("p", p)
    second = numbers("q", probabilities("q", q), like=first)
    return float(special.rel_entr(first, second).sum())


def log_mean_exp(prior: ArrayLike, energy: ArrayLike) -> float:
    """Return log E_π e^V, also where e^V overflows."""
    pi = probabilities("prior", prior)
    return float(special.logsumexp(numbers("energy", energy, like=pi), b=pi))


def gibbs(prior: ArrayLike, energy: ArrayLike) -> Array:
    """Return the Gibbs distribution π_V = π e^V / E_π e^V.

    >>> gibbs([0.5, 0.5], [0.0, 1000.0])
    array([0., 1.])
    """
    pi = probabilities("prior", prior)
    V = numbers("energy", energy, like=pi)
    with np.errstate(divide="ignore"):  # log 0 = −∞ is right
        return np.asarray(special.softmax(np.log(pi) + V))


def free_energy(p: ArrayLike, prior: ArrayLike, energy: ArrayLike) -> float:
    """Return E_p V − KL(p‖π), at most log E_π e^V and −∞ where KL is infinite."""
    at = probabilities("p", p)
    kl = divergence(at, prior)
    return float(at @ numbers("energy", energy, like=at)) - kl if math.isfinite(kl) else -math.inf
