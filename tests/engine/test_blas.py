import numpy as np
import pytest
from numba import njit

from flatlab.engine.blas import add_product


@njit
def compiled(C, A, B, factors):
    add_product(C, A, B, factors)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("add", [add_product, compiled])
@pytest.mark.parametrize("factors", [(-1.0, 1.0), (0.5, -0.25), (2.0, 0.0)])
def test_a_product_is_added_in_place(dtype, add, factors):
    draw = np.random.default_rng(0)
    A, B, C = (draw.normal(size=shape).astype(dtype) for shape in [(3, 5), (3, 7), (5, 7)])
    expected = factors[0] * A.T.astype(float) @ B + factors[1] * C.astype(float)
    add(C, A, B, np.array(factors, dtype))
    np.testing.assert_allclose(C, expected, rtol=20 * np.finfo(dtype).eps, atol=1e-6)
