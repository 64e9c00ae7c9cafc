"""The Gauss–Newton matrix of two-layer ReLU networks without bias, and norms that it compares to.

For f(x) = Σ_j a_j σ(w_j·x), L̂ = (1/2n) Σ (f − y)² and inputs on the sphere of radius √d,

    G = (1/n) Σ_i ∇f(x_i) ∇f(x_i)ᵀ    and    N_q = Σ_j (‖w_j‖² + q a_j²)

satisfy Tr G ~ N_d, ‖G‖_F ~ N_{√d} and ‖G‖_2 ~ N_1 with constants that depend on nothing, once n is
large (Wu's lecture, Theorem 2). `limits` returns constants between which the ratios lie at n = ∞.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from ..errors import UserError, whole_number
from .solution import Array


def weighted_norm(W1: Array, W2: Array, q: float) -> float:
    """Return N_q = Σ_j (‖w_j‖² + q a_j²), without the root that the lecture's definition has.

    >>> weighted_norm(np.array([[3.0, 4.0]]), np.array([2.0]), 10.0)
    65.0
    """
    if not (math.isfinite(q) and q >= 0):
        raise UserError(f"q must be >= 0 and finite, got {q!r}")
    return float(np.sum(W1**2) + q * np.sum(W2**2))


def gradients(W1: Array, W2: Array, x: Array) -> Array:
    """Return ∇f(x_i) in (a, w), a row for each input: σ(w_j·x) and a_j 1[w_j·x > 0] x."""
    h = x @ W1.T
    inner = ((h > 0) * W2)[:, :, None] * x[:, None]
    return np.hstack([np.maximum(h, 0), inner.reshape(len(x), -1)])


@dataclass(frozen=True)
class Ratios:
    """Tr G/N_d, ‖G‖_F/N_{√d} and ‖G‖_2/N_1."""

    trace: float
    frobenius: float
    operator: float


def ratios(W1: Array, W2: Array, x: Array) -> Ratios:
    """Return the three norms of G over those of θ, on the inputs x."""
    J = gradients(W1, W2, x)
    gram = J @ J.T if len(J) < J.shape[1] else J.T @ J  # the same eigenvalues, apart from zeros
    values = np.linalg.eigvalsh(gram / len(x))
    d = x.shape[1]
    return Ratios(
        float(values.sum()) / weighted_norm(W1, W2, d),
        math.sqrt(float(np.sum(values**2))) / weighted_norm(W1, W2, math.sqrt(d)),
        float(values[-1]) / weighted_norm(W1, W2, 1),
    )


def single_neuron(w: float, a: float, d: int) -> Ratios:
    """Return the ratios of one neuron at n = ∞, with ‖w‖ = `w`.

    Tr G = ½(w² + d a²), ‖G‖_F = ½√(w⁴ + d a⁴ + 2a²w²), ‖G‖_2 = ½(w² + a²).

    >>> single_neuron(1.0, 1.0, 4)
    Ratios(trace=0.5, frobenius=0.44095855184409843, operator=0.5)
    """
    frobenius = math.sqrt(w**4 + d * a**4 + 2 * a**2 * w**2) / (w**2 + math.sqrt(d) * a**2)
    return Ratios(0.5, frobenius / 2, 0.5)


def limits(d: int) -> dict[str, tuple[float, float]]:
    """Return between which constants each ratio lies at n = ∞, for every width and every θ.

    With c = E σ(x_1), which tends to 1/√(2π) as d grows:

    - Tr G/N_d = ½, as E σ(x_1)² = E σ'(x_1)² = ½.
    - ½ ≥ ‖G‖_F/N_{√d} ≥ min(c², ¼)/√2. G is a sum over neurons, so the norms of the single
      neurons add up to at least its norm. In ‖G‖_F² = E (∇f(x)·∇f(x'))² the mean of
      (Σ_j σ(w_j·x)σ(w_j·x'))² is at least (c² Σ ‖w_j‖²)², that of the rest at least
      (√d Σ a_j²/4)², and the mixed term is not negative.
    - ½ ≥ ‖G‖_2/N_1 ≥ c²: the second by the direction with ‖w_j‖ in the place of a_j and
      a_j w_j/‖w_j‖ in that of w_j, along which ∇f is Σ_j (‖w_j‖² + a_j²) σ(w_j·x)/‖w_j‖.
    """
    d = whole_number("d", d, least=1)
    half_mean = mean_relu(d)
    return {
        "trace": (0.5, 0.5),
        "frobenius": (min(half_mean**2, 0.25) / math.sqrt(2), 0.5),
        "operator": (half_mean**2, 0.5),
    }


def mean_relu(d: int) -> float:
    """Return E σ(x_1) for x uniform on the sphere of radius √d: ½√d Γ(d/2)/(√π Γ((d+1)/2)).

    >>> round(mean_relu(1), 12), round(mean_relu(10**6) * math.sqrt(2 * math.pi), 5)
    (0.5, 1.0)
    """
    logs = special.gammaln(d / 2) - special.gammaln((d + 1) / 2)
    return 0.5 * math.sqrt(d / math.pi) * math.exp(float(logs))


def enough_examples(d: int, delta: float) -> int:
    """Return N(d, δ) = inf{n : d log(n/δ) ≤ n}, which grows like d log(d/δ).

    n − d log(n/δ) falls until n = d and rises from there. So unless n = 1 is enough, N is the first
    whole number beyond the larger zero, −d W(−δ/d) with the lower branch of Lambert's W.

    >>> enough_examples(10, 0.1)
    65
    """
    d = whole_number("d", d, least=1)
    if not 0 < delta < 1:
        raise UserError(f"delta must lie between 0 and 1, got {delta!r}")
    if d * math.log(1 / delta) <= 1:
        return 1
    n = math.ceil(float(-d * special.lambertw(-delta / d, -1).real))
    while d * math.log(n / delta) > n:  # rounding
        n += 1
    while n > d and d * math.log((n - 1) / delta) <= n - 1:
        n -= 1
    return n
