"""Simplified BatchNorm with ReLU and few examples a step: only active neurons are computed.

f_i = Σ_j a_j γ_j u_ij / rms_j, so a neuron with u_ij = 0 on every example of a batch has no
gradient there: ∂f_i/∂w_j is a sum of two terms, one with σ'(h_ij) and one with u_ij. The ascent
does not move it either, so it stays inactive. So a step gathers the neurons that are active on the
batch, computes both gradients for them (`two_layer_batch`) and puts them back: half of the neurons
at the start of training, a fourth and fewer once most of them serve one cell of the data.

Most neurons fade: a_j and γ_j shrink together, step by step, towards the smallest number of the
dtype, where a step is lost to rounding. A neuron with both below `FADED` times that number (1e-30
in float32) is too small to change the sum f, moves no weight of the first layer, and is skipped.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .philox import batch_of
from .scalar import (
    DECAY,
    FAST,
    FIXED,
    GAMMA,
    LR,
    MAX_NORM,
    ONE,
    PLAIN,
    RELU,
    SHARED,
    TINY,
    ZERO,
    ascent_length,
    descend,
    dot,
    of_gamma,
    project,
    shifted,
)
from .two_layer_batch import gradient_batch_norm

FADED = 1e8
_MULTIPLE = 8  # as the padding in `compiled`: BLAS and vector loops are slow at odd sizes


@njit(cache=True, fastmath=FAST, inline="always")
def _active(X, rows, W, a, gamma, H, found, least, zero):
    """Fill `found` with the neurons that some row activates, without faded ones; return how many.

    A neuron with a value that is not finite counts as active, so that it shows in the outputs.
    """
    np.dot(X[rows], W, H)
    count = 0
    for j in range(W.shape[1]):
        if abs(a[j]) < least and abs(gamma[j]) < least:
            continue
        sound = np.isfinite(a[j]) and np.isfinite(gamma[j])
        for i in range(H.shape[0]):
            if not (sound and H[i, j] <= zero):
                found[count] = j
                count += 1
                break
    return count


@njit(cache=True, fastmath=FAST, error_model="numpy")
def train(W, a, gamma, X, y, first, last, epoch0, batch, keys, loss, ascent, rules, hyper):
    """Run steps first..last−1 of a phase in place; return the step that diverged, or −1.

    The arguments are as in `two_layer_batch.train`.
    """
    n, (d, m) = X.shape[0], W.shape
    zero, one, lr = hyper[ZERO], hyper[ONE], hyper[LR]
    keep, least = one - lr * hyper[DECAY], W.dtype.type(FADED) * hyper[TINY]
    order, noise = np.empty(n, np.int64), np.zeros(n, np.int64)
    found, pre = np.empty(m, np.int64), np.empty((batch, m), W.dtype)
    most = (m + _MULTIPLE - 1) // _MULTIPLE * _MULTIPLE
    store = np.empty((3, n * most), W.dtype)  # H, U, and S, which ReLU does not use
    small = np.empty((4, d * most), W.dtype)  # weights, weights after the ascent, gradient, P
    lines = np.empty((9, most), W.dtype)
    rows_of = np.empty(batch * most, W.dtype)
    drawn = -1
    for step in range(first, last):
        rows, target, drawn = batch_of(step, batch, drawn, keys, epoch0, order, noise, y, hyper)
        k = _active(X, rows, W, a, gamma, pre[: len(rows)], found, least, zero)
        size = (k + _MULTIPLE - 1) // _MULTIPLE * _MULTIPLE
        H, U, S = (
            store[0, : n * size].reshape(n, size),
            store[1, : n * size].reshape(n, size),
            store[2, : n * size].reshape(n, size),
        )
        V, up_V = small[0, : d * size].reshape(d, size), small[1, : d * size].reshape(d, size)
        G, P = small[2, : d * size].reshape(d, size), small[3, : d * size].reshape(d, size)
        E = rows_of[: len(rows) * size].reshape(len(rows), size)
        b, c, up_b, up_c = lines[0, :size], lines[1, :size], lines[2, :size], lines[3, :size]
        G_b, G_c, work = lines[4, :size], lines[5, :size], lines[6:9, :size]
        for i in range(d):
            row, line = W[i], V[i]
            for t in range(k):
                line[t] = row[found[t]]
            for t in range(k, size):
                line[t] = zero
        for t in range(size):
            b[t] = a[found[t]] if t < k else zero
            c[t] = gamma[found[t]] if t < k else zero
        s, finite = zero, True
        at_V, at_b, at_c = V, b, c
        for stage in range(1 if ascent == PLAIN else 2):
            if stage == 1:
                shifted(up_V.ravel(), V.ravel(), s, G.ravel())
                shifted(up_b, b, s, G_b)
                shifted(up_c, c, s, G_c)
                at_V, at_b, at_c = up_V, up_b, up_c
            finite = finite and gradient_batch_norm(
                X, rows, target, at_V, at_b, at_c, RELU, loss, rules, hyper,
                H, U, S, E, work, P, G, G_b, G_c,
            )  # fmt: skip
            if rules[GAMMA] or rules[SHARED]:
                of_gamma(G_c, rules, stage == 0 and ascent != PLAIN, zero)
            if stage == 0:
                flat, line = G.ravel(), G_c[:1] if rules[SHARED] else G_c
                squared = dot(flat, flat, zero) + dot(G_b, G_b, zero) + dot(line, line, zero)
                s = ascent_length(ascent, squared, hyper)
        if not finite:
            return step
        descend(V.ravel(), keep, lr, G.ravel())
        descend(b, keep, lr, G_b)
        if rules[GAMMA] != FIXED:
            descend(c, keep, lr, G_c)
        if keep != one:  # weight decay shrinks the other neurons too
            W *= keep
            a *= keep
            if rules[GAMMA] != FIXED:
                gamma *= keep
        for i in range(d):
            row, line = W[i], V[i]
            for t in range(k):
                row[found[t]] = line[t]
        for t in range(k):
            a[found[t]] = b[t]
            gamma[found[t]] = c[t]
        if rules[SHARED] and k > 0:
            gamma[:] = c[0]
        if hyper[MAX_NORM] > zero:
            project(W, hyper[MAX_NORM], zero)
    return -1
