"""The compiled softplus is right to the last bits, and does not hide divergence."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from flatlab.engine.softplus import softplus


@njit(fastmath={"reassoc", "contract", "arcp", "nsz"})  # as the kernels that call it
def filled(h):
    u, slopes = np.empty_like(h), np.empty_like(h)
    for t in range(len(h)):
        u[t], slopes[t] = softplus(h[t])
    return u, slopes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_equals_the_definition_to_three_units_in_the_last_place(dtype):
    info = np.finfo(dtype)
    lost = np.log(float(info.tiny))
    near = np.random.default_rng(0).normal(0, 3, 20_000)
    cut = np.ceil(lost)
    h = np.concatenate([near, np.linspace(cut, -lost, 20_000), [0.0, -0.0]]).astype(dtype)

    u, slopes = filled(h)

    x = h.astype(np.longdouble)
    expected = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    assert np.max(np.abs(u - expected) / expected) < 3 * info.eps
    expected = 1 / (1 + np.exp(-x))
    assert np.max(np.abs(slopes - expected) / expected) < 3 * info.eps


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_far_below_zero_it_is_zero_and_above_it_is_the_identity(dtype):
    lost = float(np.log(np.finfo(dtype).tiny))
    below = np.nextafter(np.ceil(lost), -np.inf, dtype=dtype)
    h = np.array([-np.inf, 10 * lost, below, -lost + 1, -10 * lost, np.inf], dtype)
    u, slopes = filled(h)
    np.testing.assert_array_equal(u, np.maximum(h, 0))
    np.testing.assert_array_equal(slopes, [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_weight_that_is_not_a_number_shows(dtype):
    u, slopes = filled(np.array([np.nan, 1.0], dtype))
    np.testing.assert_array_equal(np.isnan(u), [True, False])
    np.testing.assert_array_equal(np.isnan(slopes), [True, False])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiled_it_is_what_it_is_in_python(dtype):
    h = np.linspace(-20, 20, 101).astype(dtype)
    np.testing.assert_allclose(filled(h), np.transpose([softplus(x) for x in h]), rtol=1e-6)
