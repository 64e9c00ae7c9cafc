"""Two-layer networks, any batch size and normalisation: two matrix products per gradient.

For a batch with weights g_i = ℓ'(f_i)/B the gradient in the first layer is Dᵀ X, where row k of D
holds ∂(Σ_i g_i f_i)/∂h_k. Without normalisation and with LayerNorm only the batch's rows matter.
With simplified BatchNorm every training point enters through rms_j = (Σ_k u_kj²/n)^{1/2}:

    f_i = Σ_j a_j γ_j u_ij / rms_j
    D_kj = a_j γ_j σ'(h_kj) ( [k ∈ batch] g_k / rms_j − u_kj q_j / (n rms_j³) ),
    q_j = Σ_i g_i u_ij.

A neuron that is dead on the whole training set (rms_j = 0) outputs 0 and has no gradient.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .philox import OTHERS, batch_of, visits
from .scalar import (
    BATCH,
    BIAS_DECAY,
    BIAS_LR,
    BIAS_ROW,
    CONSTANT,
    DECAY,
    FAST,
    FIXED,
    GAMMA,
    LAYER,
    LN_EPSILON,
    LR,
    MAX_NORM,
    MOMENTUM,
    ONE,
    OTHER,
    PLAIN,
    RELU,
    SHARED,
    ZERO,
    activate,
    ascent_length,
    descend,
    dot,
    gather,
    of_gamma,
    project,
    shifted,
    slope,
)


@njit(cache=True, fastmath=FAST, inline="always")
def _normalise_rows(U, S, a, D, f, epsilon, zero, one):
    """LayerNorm: scale rows of U to u/N in place; fill D = σ'(h) ∂f/∂u and the outputs f."""
    for i in range(U.shape[0]):
        u, s, d = U[i], S[i], D[i]
        size = np.sqrt(dot(u, u, zero))
        outside = size > epsilon
        inverse = one / (size if outside else epsilon)
        f[i] = dot(a, u, zero) * inverse
        pull = f[i] * inverse if outside else zero
        for t in range(a.shape[0]):
            u[t] *= inverse
            d[t] = s[t] * (a[t] * inverse - pull * u[t])


@njit(cache=True, fastmath=FAST, inline="always")
def _gradient_rows(X, y, W, a, activation, norm, loss, hyper, H, U, D, f, G_W, G_a):
    """Gradient of the mean loss over the rows of X, without BatchNorm; return whether finite."""
    zero, one = hyper[ZERO], hyper[ONE]
    np.dot(X, W, H)
    activate(activation, H.ravel(), U.ravel(), D.ravel(), zero, one)
    if norm == LAYER:
        _normalise_rows(U, D, a, D, f, hyper[LN_EPSILON], zero, one)
    else:
        np.dot(U, a, f)
    finite = True
    batch = X.dtype.type(X.shape[0])
    for i in range(D.shape[0]):
        finite = finite and np.isfinite(f[i])
        g = slope(loss, f[i], y[i], hyper) / batch
        f[i] = g
        d = D[i]
        if norm == LAYER:
            for t in range(a.shape[0]):
                d[t] *= g
        else:
            for t in range(a.shape[0]):
                d[t] *= g * a[t]
    if D.shape[0] == 1:  # an outer product; BLAS is slow here
        x, d, u = X[0], D[0], U[0]
        for i in range(G_W.shape[0]):
            row = G_W[i]
            for t in range(a.shape[0]):
                row[t] = x[i] * d[t]
        for t in range(a.shape[0]):
            G_a[t] = u[t] * f[0]
    else:
        np.dot(X.T, D, G_W)
        np.dot(U.T, f, G_a)
    return finite


@njit(cache=True, fastmath=FAST, inline="always")
def _hidden_and_rms(H, activation, U, S, inverse, zero, one):
    """Fill U = σ(H), S = σ'(H) (unused for ReLU), and 1/rms_j, which is 0 for a dead neuron."""
    inverse[:] = zero
    if activation != RELU:
        activate(activation, H.ravel(), U.ravel(), S.ravel(), zero, one)
    for i in range(H.shape[0]):
        h, u = H[i], U[i]
        if activation == RELU:
            for t in range(h.shape[0]):
                u[t] = zero if h[t] <= zero else h[t]
        for t in range(h.shape[0]):
            inverse[t] += u[t] * u[t]
    n = H.dtype.type(H.shape[0])
    for t in range(inverse.shape[0]):
        inverse[t] = one / np.sqrt(inverse[t] / n) if inverse[t] != zero else zero


@njit(cache=True, fastmath=FAST, inline="always")
def gradient_batch_norm(
    X, rows, y, W, a, gamma, activation, loss, rules, hyper,
    H, U, S, E, work, P, G_W, G_a, G_gamma,
):  # fmt: skip
    """Gradient of the mean loss over `rows`, statistics over all of X; return whether finite.

    Dᵀ X is the sum of a part from the batch's own rows E and a part from the statistics, −P diag(q)
    with P = Xᵀ(u σ'). For ReLU u σ' = u, so D itself is never formed. Constant statistics have no
    such part.
    """
    zero, one = hyper[ZERO], hyper[ONE]
    inverse, weight, q = work[0], work[1], work[2]
    np.dot(X, W, H)
    _hidden_and_rms(H, activation, U, S, inverse, zero, one)
    for t in range(a.shape[0]):
        weight[t] = a[t] * gamma[t] * inverse[t]
        q[t] = zero
    finite = True
    batch = X.dtype.type(rows.shape[0])
    for i in range(rows.shape[0]):
        u, s, e = U[rows[i]], S[rows[i]], E[i]
        f = dot(weight, u, zero)
        finite = finite and np.isfinite(f)
        g = slope(loss, f, y[i], hyper) / batch
        for t in range(a.shape[0]):
            q[t] += g * u[t]
        if activation == RELU:
            for t in range(a.shape[0]):
                e[t] = zero if u[t] <= zero else g * weight[t]
        else:
            for t in range(a.shape[0]):
                e[t] = s[t] * g * weight[t]
    pulls = not rules[CONSTANT]
    if pulls:
        if activation != RELU:
            S *= U
        np.dot(X.T, U if activation == RELU else S, P)
    np.dot(X[rows].T, E, G_W)
    n = X.dtype.type(X.shape[0])
    for t in range(a.shape[0]):
        G_a[t] = gamma[t] * inverse[t] * q[t]
        G_gamma[t] = a[t] * inverse[t] * q[t]
        q[t] *= weight[t] * inverse[t] * inverse[t] / n
    if pulls:
        for i in range(G_W.shape[0]):
            row, pull = G_W[i], P[i]
            for t in range(a.shape[0]):
                row[t] -= pull[t] * q[t]
    return finite


@njit(cache=True, fastmath=FAST, error_model="numpy")
def train(
    W, a, gamma, velocity, X, y, first, last, epoch0, batch, keys,
    activation, norm, loss, ascent, rules, hyper,
):  # fmt: skip
    """Run steps first..last−1 of a phase in place; return the step that diverged, or −1.

    `gamma` has length 0 unless the norm is "batch". `velocity` has the velocities of W, a and
    gamma; without momentum they may have any size. `rules` are integers at the positions named in
    `scalar`. The other arguments are as in `two_layer_single.kernel`, with steps of `batch`
    examples instead of blocks.
    """
    n = X.shape[0]
    zero, one = hyper[ZERO], hyper[ONE]
    keep = one - hyper[LR] * hyper[DECAY]
    bias, bias_keep = np.empty_like(a), one - hyper[BIAS_LR] * hyper[BIAS_DECAY]
    steps = (n + batch - 1) // batch
    order, noise = np.empty(n, np.int64), np.zeros(n, np.int64)
    others = np.empty(n, np.int64)
    G_W, G_a, G_gamma = np.empty_like(W), np.empty_like(a), np.empty_like(gamma)
    up_W, up_a, up_gamma = np.empty_like(W), np.empty_like(a), np.empty_like(gamma)
    visited = n if norm == BATCH else batch  # number of examples in one gradient
    # Three separate arrays, because loops over arrays that overlap are not vectorised.
    H = np.empty((visited, len(a)), W.dtype)
    U, D = np.empty_like(H), np.empty_like(H)
    f, work = np.empty(visited, W.dtype), np.empty((3, len(a)), W.dtype)
    E, P = np.empty((batch, len(a)), W.dtype), np.empty_like(W)
    drawn = -1
    for step in range(first, last):
        if rules[OTHER] and step // steps != drawn:
            visits(keys[OTHERS:], epoch0 + step // steps, others)
        rows, target, drawn = batch_of(step, batch, drawn, keys, epoch0, order, noise, y, hyper)
        s, finite = zero, True
        at_W, at_a, at_gamma = W, a, gamma
        for stage in range(1 if ascent == PLAIN else 2):
            if stage == 1:
                shifted(up_W.ravel(), W.ravel(), s, G_W.ravel())
                shifted(up_a, a, s, G_a)
                shifted(up_gamma, gamma, s, G_gamma)
                at_W, at_a, at_gamma = up_W, up_a, up_gamma
                if rules[OTHER]:
                    start = (step - drawn * steps) * batch
                    rows = others[start : start + batch]
                    target = y[rows]
            if norm == BATCH:
                finite = finite and gradient_batch_norm(
                    X, rows, target, at_W, at_a, at_gamma, activation, loss, rules, hyper,
                    H, U, D, E[: len(rows)], work, P, G_W, G_a, G_gamma,
                )  # fmt: skip
            else:
                k = len(rows)
                finite = finite and _gradient_rows(
                    X[rows], target, at_W, at_a, activation, norm, loss, hyper,
                    H[:k], U[:k], D[:k], f[:k], G_W, G_a,
                )  # fmt: skip
            if rules[GAMMA] or rules[SHARED]:
                of_gamma(G_gamma, rules, stage == 0 and ascent != PLAIN, zero)
            if stage == 0:
                flat, line = G_W.ravel(), G_gamma[:1] if rules[SHARED] else G_gamma
                squared = dot(flat, flat, zero) + dot(G_a, G_a, zero) + dot(line, line, zero)
                s = ascent_length(ascent, squared, hyper)
        if not finite:
            return step
        if hyper[MOMENTUM] > zero:
            V_W, V_a, V_gamma = velocity
            gather(V_W.ravel(), hyper[MOMENTUM], G_W.ravel(), hyper[DECAY], W.ravel())
            gather(V_a, hyper[MOMENTUM], G_a, hyper[DECAY], a)
            gather(V_gamma, hyper[MOMENTUM], G_gamma, hyper[DECAY], gamma)
            descend(W.ravel(), one, hyper[LR], V_W.ravel())
            descend(a, one, hyper[LR], V_a)
            if rules[GAMMA] != FIXED:
                descend(gamma, one, hyper[LR], V_gamma)
        else:
            if rules[BIAS_ROW] >= 0:
                bias[:] = W[rules[BIAS_ROW]]
            descend(W.ravel(), keep, hyper[LR], G_W.ravel())
            if rules[BIAS_ROW] >= 0:
                descend(bias, bias_keep, hyper[BIAS_LR], G_W[rules[BIAS_ROW]])
                W[rules[BIAS_ROW]] = bias
            descend(a, keep, hyper[LR], G_a)
            if rules[GAMMA] != FIXED:
                descend(gamma, keep, hyper[LR], G_gamma)
        if hyper[MAX_NORM] > zero:
            project(W, hyper[MAX_NORM], zero)
    return -1
