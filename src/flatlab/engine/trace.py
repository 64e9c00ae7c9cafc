"""The trace of the loss Hessian, exact and in closed form, in float64.

For L = (1/n) Σ ℓ(f(x_i), y_i),

    Tr ∇²L = (1/n) Σ_i [ ℓ''(f_i) ‖∇f(x_i)‖² + ℓ'(f_i) Tr ∇²f(x_i) ].

The second term vanishes for ReLU networks without normalisation (they are piecewise linear in each
layer's weights) and at interpolation; elsewhere it is computed, neuron by neuron. Arrays are
(examples, neurons); X has a column of ones if the first layer has a bias. At a kink of ReLU the
derivative is 0 (as in torch), and the curvature of the kink itself is ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Values = tuple[Array, Array, Array]  # f, ‖∇f‖² and Tr ∇²f, or σ, σ' and σ''


def derivatives(activation: str, h: Array) -> Values:
    """Return σ(h), σ'(h), σ''(h)."""
    if activation == "relu":
        on = (h > 0).astype(np.float64)
        return h * on, on, np.zeros_like(h)
    if activation == "softplus":
        first = np.exp(-np.logaddexp(0, -h))
        return np.logaddexp(0, h), first, first * (1 - first)
    if activation == "tanh":
        value = np.tanh(h)
        return value, 1 - value**2, -2 * value * (1 - value**2)
    return h, np.ones_like(h), np.zeros_like(h)


def plain(X: Array, W: Array, a: Array, activation: str) -> Values:
    """Return f, ‖∇f‖², Tr ∇²f for f = a·σ(W x).

    ‖∇f‖² = ‖u‖² + ‖x‖²‖a ⊙ σ'‖² and Tr ∇²f = ‖x‖² Σ_j a_j σ''_j.
    """
    u, first, second = derivatives(activation, X @ W)
    xx = (X**2).sum(1)
    return u @ a, (u**2).sum(1) + xx * (first**2 @ a**2), xx * (second @ a)


def layer_norm(X: Array, W: Array, a: Array, activation: str, epsilon: float) -> Values:
    """Return f, ‖∇f‖², Tr ∇²f for f = a·u/N, u = σ(W x), N = max(‖u‖, ε).

    Outside the ε-ball ∂f/∂u_j = a_j/N − f u_j/N² and
    ∂²f/∂u_j² = −2 a_j u_j/N³ − f/N² + 3 f u_j²/N⁴; inside, f is linear in u.
    """
    u, first, second = derivatives(activation, X @ W)
    xx = (X**2).sum(1)
    size = np.linalg.norm(u, axis=1)
    N = np.maximum(size, epsilon)[:, None]
    outside = (size > epsilon)[:, None]
    f = (u @ a)[:, None] / N
    slope = a / N - outside * f * u / N**2
    curve = outside * (-2 * a * u / N**3 - f / N**2 + 3 * f * u**2 / N**4)
    squared = ((u / N) ** 2).sum(1) + xx * ((first * slope) ** 2).sum(1)
    return f[:, 0], squared, xx * (curve * first**2 + slope * second).sum(1)


def batch_norm(
    X: Array, W: Array, a: Array, gamma: Array, activation: str, shared: bool = False
) -> Values:
    """Return f, ‖∇f‖², Tr ∇²f for f_i = Σ_j a_j γ_j u_ij/s_j, s_j² = Σ_k u_kj²/n.

    f is bilinear in (a, γ), so only the first layer has second derivatives. Per neuron, with
    t_i = u_i/s, v = s², ∇s = U/s where U = (1/n) Σ_k u_k σ'_k x_k, and
    Δv = (2/n) Σ_k (σ'_k² + u_k σ''_k)‖x_k‖²:

        ‖∇t_i‖² = σ'_i²‖x_i‖²/s² − 2 t_i σ'_i x_i·U/s³ + t_i²‖U‖²/s⁴
        Δt_i = σ''_i‖x_i‖²/s − 2σ'_i x_i·U/s³ − t_i (Δv/2 − ‖U‖²/s²)/s² + 2 t_i‖U‖²/s⁴

    A neuron dead on the training set contributes nothing. One γ, `shared` by all neurons, has the
    derivative Σ_j a_j t_ij.
    """
    u, first, second = derivatives(activation, X @ W)
    n = len(X)
    alive = (u**2).sum(0) > 0
    u, first, second = u[:, alive], first[:, alive], second[:, alive]
    a, gamma = a[alive], gamma[alive]
    xx = (X**2).sum(1)[:, None]
    s = np.sqrt((u**2).mean(0))
    t = u / s
    U = X.T @ (u * first) / n
    xU, UU = X @ U, (U**2).sum(0)
    laplacian_v = 2 * ((first**2 + u * second) * xx).mean(0)
    gradient = first**2 * xx / s**2 - 2 * t * first * xU / s**3 + t**2 * UU / s**4
    laplacian = (
        second * xx / s
        - 2 * first * xU / s**3
        - t * (laplacian_v / 2 - UU / s**2) / s**2
        + 2 * t * UU / s**4
    )
    affine = t**2 @ gamma**2 + (t @ a) ** 2 if shared else t**2 @ (a**2 + gamma**2)
    squared = affine + gradient @ (a * gamma) ** 2
    return t @ (a * gamma), squared, laplacian @ (a * gamma)


def standard_layer_norm(
    X: Array, W: Array, a: Array, gamma: Array, beta: Array, activation: str, epsilon: float
) -> Values:
    """Return f, ‖∇f‖², Tr ∇²f for f = a·(γ ⊙ z + β), z = (u − ū)/s, s² = mean (u − ū)² + ε.

    With c = a ⊙ γ, F = c·z and m neurons, ∂s/∂u_j = z_j/m gives
    ∂f/∂u_j = (c_j − c̄ − z_j F/m)/s =: g_j and
    ∂²f/∂u_j² = −(F (1 − 1/m − z_j²/m)/s + 2 z_j g_j)/(m s). f is linear in each of a, γ and β.
    """
    u, first, second = derivatives(activation, X @ W)
    xx, m = (X**2).sum(1), len(a)
    centred = u - u.mean(1, keepdims=True)
    s = np.sqrt((centred**2).mean(1, keepdims=True) + epsilon)
    z, c = centred / s, a * gamma
    F = (z @ c)[:, None]
    slope = (c - c.mean() - z * F / m) / s
    curve = -(F * (1 - 1 / m - z**2 / m) / s + 2 * z * slope) / (m * s)
    squared = ((gamma * z + beta) ** 2).sum(1) + z**2 @ a**2 + (a**2).sum()
    squared += xx * ((first * slope) ** 2).sum(1)
    return F[:, 0] + a @ beta, squared, xx * (curve * first**2 + slope * second).sum(1)


def standard_batch_norm(
    X: Array, W: Array, a: Array, gamma: Array, beta: Array, activation: str, epsilon: float
) -> Values:
    """Return f, ‖∇f‖², Tr ∇²f for f_i = Σ_j a_j (γ_j t_ij + β_j), t_ij = (u_ij − μ_j)/s_j.

    Per neuron, μ and v are the mean and the variance of u over the examples and s² = v + ε. With
    q_i = u_i − μ, ∇q_i = σ'_i x_i − X̄, X̄ = (1/n) Σ_k σ'_k x_k, Δq_i = σ''_i‖x_i‖² − mean,
    U = ∇v/2 = (1/n) Σ_k q_k σ'_k x_k and Δv = (2/n) Σ_k (‖∇q_k‖² + q_k Δq_k):

        ‖∇t_i‖² = ‖∇q_i‖²/s² − 2 t_i ∇q_i·U/s³ + t_i²‖U‖²/s⁴
        Δt_i = Δq_i/s − 2∇q_i·U/s³ − t_i (Δv/2 − ‖U‖²/s²)/s² + 2 t_i‖U‖²/s⁴
    """
    u, first, second = derivatives(activation, X @ W)
    n = len(X)
    xx = (X**2).sum(1)[:, None]
    q = u - u.mean(0)
    s = np.sqrt((q**2).mean(0) + epsilon)
    t = q / s
    mean_x, U = X.T @ first / n, X.T @ (q * first) / n
    UU = (U**2).sum(0)
    q_squared = first**2 * xx - 2 * first * (X @ mean_x) + (mean_x**2).sum(0)
    q_U = first * (X @ U) - (mean_x * U).sum(0)
    laplacian_q = second * xx - (second * xx).mean(0)
    half_laplacian_v = (q_squared + q * laplacian_q).mean(0)
    gradient = q_squared / s**2 - 2 * t * q_U / s**3 + t**2 * UU / s**4
    laplacian = (
        laplacian_q / s
        - 2 * q_U / s**3
        - t * (half_laplacian_v - UU / s**2) / s**2
        + 2 * t * UU / s**4
    )
    c = a * gamma
    squared = ((gamma * t + beta) ** 2).sum(1) + t**2 @ a**2 + (a**2).sum() + gradient @ c**2
    return t @ c + a @ beta, squared, laplacian @ c


def deep(X: Array, W: Array, M: Array, a: Array) -> Values:
    """Return f, ‖∇f‖², Tr ∇²f (zero) for a deep ReLU network.

    ‖∇f‖² = ‖x‖²‖δ_1‖² + Σ_l ‖u_l‖²‖δ_{l+1}‖² + ‖u_last‖².
    """
    activations = [np.maximum(X @ W, 0)]
    for middle in M:
        activations.append(np.maximum(activations[-1] @ middle.T, 0))
    f = activations[-1] @ a
    squared = (activations[-1] ** 2).sum(1)
    delta = a * (activations[-1] > 0)
    for middle, u in zip(M[::-1], activations[-2::-1], strict=True):
        squared += (delta**2).sum(1) * (u**2).sum(1)
        delta = (delta @ middle) * (u > 0)
    squared += (delta**2).sum(1) * (X**2).sum(1)
    return f, squared, np.zeros_like(f)
