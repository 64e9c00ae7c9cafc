"""Philox4x64-10 (Salmon et al. 2011), compiled: the sample order, label noise and input noise.

The same generator as `numpy.random.Philox`, callable from a kernel and without state: the block
of four words is a pure function of (key, counter), so any epoch's order can be computed at any
time.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from numba import config, njit, uint64

from .scalar import FAST, NOISE, ZERO

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    # numpy's own scalars warn where the products are meant to wrap around.
    warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning, module=__name__)

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_M0 = np.uint64(0xD2E7470EE14C6C93)
_M1 = np.uint64(0xCA5A826395121157)
_W0 = np.uint64(0x9E3779B97F4A7C15)
_W1 = np.uint64(0xBB67AE8584CAA73B)


@njit(cache=True, inline="always")
def _mulhi(a, b):
    """Return the upper 64 bits of the 128-bit product."""
    a_low, a_high = a & _LOW, a >> _HALF
    b_low, b_high = b & _LOW, b >> _HALF
    middle = a_high * b_low + ((a_low * b_low) >> _HALF)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF)


@njit(cache=True)
def philox(key, c0, c1):
    """Return the four words at counter (c0, 0, 0, c1) of the stream `key` (two words)."""
    x0, x1, x2, x3 = uint64(c0), uint64(0), uint64(0), uint64(c1)
    k0, k1 = key[0], key[1]
    for _ in range(10):
        high0, low0 = _mulhi(_M0, x0), _M0 * x0
        high1, low1 = _mulhi(_M1, x2), _M1 * x2
        x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
        k0, k1 = k0 + _W0, k1 + _W1
    return x0, x1, x2, x3


@njit(cache=True)
def permutation(key, epoch, order):
    """Fill `order` with this epoch's permutation of 0..n−1 (Fisher–Yates, from the top).

    The draw below i+1 is the high word of a 64-bit random number times i+1; its bias is under
    (i+1)/2⁶⁴.
    """
    n = order.shape[0]
    for i in range(n):
        order[i] = i
    i = n - 1
    counter = 0
    while i > 0:
        counter += 1
        for word in philox(key, counter, epoch):
            if i > 0:
                j = np.int64(_mulhi(word, uint64(i + 1)))
                order[i], order[j] = order[j], order[i]
                i -= 1


@njit(cache=True)
def with_replacement(key, epoch, order):
    """Fill `order` with this epoch's independent uniform draws from 0..n−1."""
    n = order.shape[0]
    for i in range(0, n, 4):
        k = i
        for word in philox(key, i // 4 + 1, epoch):
            if k < n:
                order[k] = np.int64(_mulhi(word, uint64(n)))
                k += 1


@njit(cache=True)
def visits(keys, epoch, order):
    """Fill `order` with the examples to visit in this epoch, by the rule in keys[-1, 0].

    A fixed order repeats the order of epoch 0.
    """
    rule = keys[-1, 0]
    if rule == uint64(1):
        with_replacement(keys[0], epoch, order)
    elif rule == uint64(2):
        permutation(keys[0], 0, order)
    else:
        permutation(keys[0], epoch, order)


@njit(cache=True)
def signs(key, epoch, out):
    """Fill `out` with this epoch's independent signs ±1, one for each sample visited."""
    for i in range(0, out.shape[0], 64):
        word = philox(key, i // 64 + 1, epoch)[0]
        for bit in range(min(64, out.shape[0] - i)):
            out[i + bit] = 2 * np.int64((word >> uint64(bit)) & uint64(1)) - 1


@njit(cache=True, fastmath=FAST, inline="always")
def batch_of(step, batch, drawn, keys, epoch0, order, noise, y, hyper):
    """Return the examples of a step of a phase, their labels with noise, and the epoch of the step.

    `order` and `noise` hold the draws of the epoch `drawn` of the phase; if the step is in another
    one, they are drawn anew. `epoch0` is the number of epochs before the phase.
    """
    steps = (y.shape[0] + batch - 1) // batch
    epoch = step // steps
    if epoch != drawn:
        visits(keys, epoch0 + epoch, order)
        if hyper[NOISE] > hyper[ZERO]:
            signs(keys[1], epoch0 + epoch, noise)
    start = (step - epoch * steps) * batch
    rows = order[start : start + batch]
    return rows, y[rows] + hyper[NOISE] * noise[start : start + batch].astype(y.dtype), epoch


OTHERS = 3  # row of the key for the order of second batches; the next row is the order's code
ORDERS = {None: 0, "replacement": 1, "fixed": 2}  # the codes that `visits` knows


def with_order(keys: np.ndarray, order: str | None) -> np.ndarray:
    """Return the keys of all streams, with the code of an order as the last row."""
    return np.vstack([keys, np.array([[ORDERS[order], 0]], dtype=np.uint64)])


@njit(cache=True)
def normals(key, epoch, out):
    """Fill `out` (n, d) with this epoch's independent standard normals, a row per sample visited.

    Box and Muller: two 53-bit uniform numbers in (0, 1] from a block of words give two normals.
    """
    flat = out.reshape(out.size)
    for i in range(0, flat.shape[0], 4):
        w0, w1, w2, w3 = philox(key, i // 4 + 1, epoch)
        for pair, one, two in ((0, w0, w1), (2, w2, w3)):
            u = (np.float64(one >> uint64(11)) + 1.0) / 9007199254740992.0
            angle = 2.0 * math.pi * np.float64(two >> uint64(11)) / 9007199254740992.0
            length = math.sqrt(-2.0 * math.log(u))
            if i + pair < flat.shape[0]:
                flat[i + pair] = length * math.cos(angle)
            if i + pair + 1 < flat.shape[0]:
                flat[i + pair + 1] = length * math.sin(angle)


def key_words(key: int) -> np.ndarray:
    """Split a 128-bit key into the two words the kernels take."""
    return np.array([key & (2**64 - 1), key >> 64], dtype=np.uint64)
