"""Softplus and its slope, in arithmetic that vectorises.

The library's exp and log1p work number by number, and took most of the time of a softplus network.
With e = exp(−|h|) in (0, 1]:

    softplus(h) = max(h, 0) + log(1 + e),   softplus'(h) = 1/(1 + e) if h > 0 else e/(1 + e).

e = 2ᵏ exp(r) with k the integer nearest to −|h|/log 2, so |r| ≤ log(2)/2, and exp(r) is a Taylor
polynomial. log(1 + e) = 2 artanh(v) with v = e/(2 + e) ≤ 1/3, and artanh(v)/v is a Taylor
polynomial in v². Both end with the first term below a fourth of the dtype's epsilon. If e would
leave the normal numbers (|h| above 87 in float32, 708 in float64), it is zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

# No sum may be reordered, since log 2 is in two pieces. Inlined, since calls prevent vectorising.
_OPTIONS: Any = {"fastmath": {"contract"}, "forceinline": True, "error_model": "numpy"}
_LOG2 = math.log(2)
_LOG2_REST = 2.3190468138462996e-17  # log 2 minus the float64 above


@intrinsic
def _power_of_two(_context: Any, k: Any) -> Any:
    """Return 2ᵏ from its bits, for an integer k as wide as the float."""
    result: Any = {32: types.float32, 64: types.float64}[k.bitwidth]
    info = np.finfo(str(result))

    def code(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        (exponent,) = arguments
        kind = exponent.type
        biased = builder.add(exponent, kind(1 - int(info.minexp)))
        return builder.bitcast(
            builder.shl(biased, kind(int(info.nmant))), context.get_value_type(result)
        )

    return result(k), code


@njit(cache=True, **_OPTIONS)
def _polynomial(even, odd, x):
    """Return Σ even_i x²ⁱ + x Σ odd_i x²ⁱ, highest powers first; the short loops unroll."""
    square, low, high = x * x, even[0], odd[0]
    for c in even[1:]:
        low = low * square + c
    for c in odd[1:]:
        high = high * square + c
    return low + x * high


def softplus(h: Any) -> tuple[Any, Any]:
    """Return the softplus of a number and its slope; compiled, in arithmetic that vectorises."""
    e = np.exp(-abs(h))
    return max(h, 0) + np.log1p(e), (1 if h > 0 else e) / (1 + e)


@overload(softplus, jit_options=_OPTIONS)
def _softplus(h):
    real = np.dtype(str(h)).type
    info = np.finfo(real)
    whole = {32: np.int32, 64: np.int64}[info.bits]
    zero, half, one, two = real(0), real(0.5), real(1), real(2)
    # log 2 in two pieces; the first has few enough bits that its product with k is exact.
    first = real(math.floor(_LOG2 * 2 ** (info.nmant - 11)) / 2 ** (info.nmant - 11))
    second, per_log2 = real(_LOG2 - float(first) + _LOG2_REST), real(1 / _LOG2)
    least = real(math.ceil(math.log(info.tiny)))
    exp = _taylor(lambda n: 1 / math.factorial(n), _LOG2 / 2, real)
    artanh = _taylor(lambda n: 2 / (2 * n + 1), 1 / 9, real)
    (exp_even, exp_odd), (artanh_even, artanh_odd) = exp, artanh

    def value_and_slope(h):
        z = -abs(h)
        lost = z < least  # false for NaN, which stays in r, so a diverged weight shows
        z = least if lost else z
        exponent = whole(z * per_log2 - half)
        k = real(exponent)
        r = (z - k * first) - k * second
        e = _polynomial(exp_even, exp_odd, r) * _power_of_two(exponent)  # type: ignore[call-arg]
        e = zero if lost else e
        inverse, v = one / (one + e), e / (two + e)
        off = h <= zero
        value = (zero if off else h) + v * _polynomial(artanh_even, artanh_odd, v * v)
        return value, (e * inverse if off else inverse)

    return value_and_slope


@njit(cache=True)
def replaced(h):
    """Replace the numbers of a flat array by their softplus."""
    for t in range(h.shape[0]):
        h[t] = softplus(h[t])[0]


def _taylor(coefficient: Any, largest: float, real: Any) -> tuple[tuple[Any, ...], ...]:
    """Return the even and the odd coefficients, highest first, that matter in the dtype `real`."""
    terms = [coefficient(0)]
    while terms[-1] * largest ** (len(terms) - 1) > np.finfo(real).eps / 4:
        terms.append(coefficient(len(terms)))
    return tuple(tuple(map(real, terms[start::2][::-1])) for start in (0, 1))
