"""Empirical Rademacher complexity of finite classes and of path-norm balls of networks.

R_S(F) = (1/n) E_σ sup_{f∈F} Σ_i σ_i f(x_i) over independent uniform signs σ ∈ {±1}^n. Up to
n = 16 all signs are enumerated; beyond, signs are drawn and the mean has a standard error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..data import cube
from ..data.dataset import Array
from ..errors import UserError, positive, whole_number
from ..randomness import generator
from .geometry import on_circle

ENUMERATED = 16
"""Largest n whose 2^n signs are enumerated."""
DRAWS = 1000
"""Default number of sign vectors drawn for larger n."""

_AT_ONCE, _ASCENT_STEPS = 2**22, 40


@dataclass(frozen=True)
class FiniteComplexity:
    """R_S of finitely many functions, a mean over `signs` sign vectors.

    Its standard error is 0 when all signs were enumerated.
    """

    value: float
    standard_error: float
    signs: int


@dataclass(frozen=True)
class NetworkComplexity:
    """The empirical Rademacher complexity of Θ_C.

    Attributes:
        value: R_S(Θ_C), or a lower estimate of it where `exact_supremum` is false.
        standard_error: Of the mean over drawn signs; 0 when all signs were enumerated.
        bound: 2CB/√n with B = max_i ‖x_i‖ (Lemma A.24 of Wen, Li & Ma 2023).
        restarts: Random starts of the ascent for each of them; 0 when the supremum is exact.
        exact_supremum: Whether the supremum was found by sweeping all angles (d ≤ 2). An ascent
            from finitely many starts can only fall short of it.
    """

    value: float
    standard_error: float
    bound: float
    signs: int
    restarts: int
    exact_supremum: bool


def finite_class(
    values: ArrayLike, *, draws: int | None = None, rng: np.random.Generator | None = None
) -> FiniteComplexity:
    """Return R_S of a finite class, given the values of its functions on the sample.

    Args:
        values: One row (f(x_1), …, f(x_n)) for each function.
        draws: Number of signs to draw, at least 2; None enumerates all 2^n, for n ≤ 16.
        rng: Source of the signs; a fixed one unless given.

    >>> finite_class([[1.0, 1.0], [-1.0, -1.0]])
    FiniteComplexity(value=0.5, standard_error=0.0, signs=4)
    """
    rows = _matrix("values", values)
    n = rows.shape[1]
    if draws is None and n > ENUMERATED:
        raise UserError(f"n must be <= {ENUMERATED} to enumerate 2^n signs, got {n}: give draws")
    signs = cube(n) if draws is None else _drawn(draws, n, rng)
    piece = max(1, _AT_ONCE // len(rows))
    best = [(signs[i : i + piece] @ rows.T).max(1) / n for i in range(0, len(signs), piece)]
    return FiniteComplexity(*_mean(np.concatenate(best), draws is None), len(signs))


def path_norm_ball(
    x: ArrayLike,
    C: float = 1.0,
    *,
    restarts: int = 20,
    draws: int | None = None,
    rng: np.random.Generator | None = None,
) -> NetworkComplexity:
    """Return R_S(Θ_C) of two-layer ReLU networks without bias of path norm at most C.

    With Θ_C = {Σ_j a_j relu(w_j·x) : Σ_j ‖w_j‖|a_j| ≤ C} the supremum is attained by one neuron:

        R_S(Θ_C) = (C/n) E_σ sup_{‖u‖=1} |Σ_i σ_i relu(u·x_i)|.

    In d ≤ 2 the supremum is exact: between two neighbouring kinks the sum is linear in u, largest
    along its own gradient or at an end. In higher dimension it is a lower estimate: the best of
    projected gradient ascents from many starts.

    Args:
        x: Inputs, shape (n, d).
        C: Bound on the path norm, > 0.
        restarts: Starts of the ascent for each sign vector.
        draws: Number of signs to draw; None enumerates all for n ≤ 16 and d ≤ 2, or draws 1,000.
        rng: Source of signs and starts; a fixed one unless given.

    >>> found = path_norm_ball([[3.0, 4.0]], C=2.0)
    >>> round(found.value, 12), found.bound, found.exact_supremum
    (10.0, 20.0, True)
    """
    points = _matrix("x", x)
    n, d = points.shape
    C = positive("C", C)
    restarts = whole_number("restarts", restarts, least=1)
    rng = generator(0, "rademacher") if rng is None else rng
    plane = d <= 2
    enumerated = draws is None and plane and n <= ENUMERATED
    signs = cube(n) if enumerated else _drawn(DRAWS if draws is None else draws, n, rng)
    piece = max(1, _AT_ONCE // (n * (8 * n if plane else restarts)))
    suprema = [
        _sweep(points, part) if plane else _ascend(points, part, restarts, rng)
        for part in (signs[i : i + piece] for i in range(0, len(signs), piece))
    ]
    value, error = _mean(C * np.concatenate(suprema) / n, enumerated)
    bound = 2 * C * float(np.sqrt(np.max(np.sum(points**2, 1)))) / math.sqrt(n)
    return NetworkComplexity(value, error, bound, len(signs), 0 if plane else restarts, plane)


def _sweep(x: Array, signs: Array) -> Array:
    """Return sup_{‖u‖=1} |Σ σ_i relu(u·x_i)| for every σ, exactly, in the plane."""
    x = np.pad(x, ((0, 0), (0, 2 - x.shape[1])))
    across = np.arctan2(x[:, 1], x[:, 0])[:, None] + np.array([0.5, -0.5]) * math.pi
    kinks = np.unique(np.mod(across, 2 * math.pi))
    middles = (kinks + np.append(kinks[1:], kinks[0] + 2 * math.pi)) / 2
    active = (on_circle(middles) @ x.T > 0).astype(float)
    gradients = np.einsum("an,sn,nk->sak", active, signs, x)
    lengths = np.linalg.norm(gradients, axis=2, keepdims=True)
    along = gradients / np.where(lengths > 0, lengths, 1.0)
    ends = np.abs(signs @ np.maximum(x @ on_circle(kinks).T, 0)).max(1)
    best = np.maximum(ends, np.abs(_sums(along, x, signs)).max(1))
    # −gradient is where −sum is largest.
    return np.asarray(np.maximum(best, np.abs(_sums(-along, x, signs)).max(1)))


def _ascend(x: Array, signs: Array, restarts: int, rng: np.random.Generator) -> Array:
    """Return the largest |Σ σ_i relu(u·x_i)| that an ascent finds for every σ."""
    count = (len(signs), restarts, x.shape[1])
    u = rng.normal(size=count)
    u /= np.linalg.norm(u, axis=2, keepdims=True)
    side = np.where(np.arange(restarts) % 2, 1.0, -1.0)[None, :, None]
    best = np.zeros(len(signs))
    for step in range(_ASCENT_STEPS):
        h = u @ x.T
        weighted = side * signs[:, None, :]
        sums = np.sum(weighted * np.maximum(h, 0), 2)
        best = np.maximum(best, sums.max(1))
        gradient = (weighted * (h > 0)) @ x
        length = np.linalg.norm(gradient, axis=2, keepdims=True)
        # Long steps reach the top of the current cone; shrinking ones settle on a ridge.
        size = 2.0 * 0.9**step
        u = u + size * gradient / np.where(length > 0, length, 1.0)
        length = np.linalg.norm(u, axis=2, keepdims=True)
        u /= np.where(length > 0, length, 1.0)
    return best


def _sums(u: Array, x: Array, signs: Array) -> Array:
    return np.asarray(np.sum(signs[:, None, :] * np.maximum(u @ x.T, 0), 2))


def _mean(values: Array, enumerated: bool) -> tuple[float, float]:
    error = 0.0 if enumerated else float(values.std(ddof=1) / math.sqrt(values.size))
    return float(values.mean()), error


def _drawn(draws: int, n: int, rng: np.random.Generator | None) -> Array:
    draws = whole_number("draws", draws, least=2)
    rng = generator(0, "rademacher") if rng is None else rng
    return rng.choice([-1.0, 1.0], size=(draws, n))


def _matrix(name: str, given: ArrayLike) -> Array:
    try:
        made = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a matrix of numbers") from None
    if made.ndim != 2 or 0 in made.shape:
        raise UserError(f"{name} must be 2-D and not empty, got shape {made.shape}")
    if not np.isfinite(made).all():
        raise UserError(f"{name} must hold finite numbers only")
    return made
