"""The one BLAS call that numba's `np.dot` does not offer: a product added to a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

_PLAIN, _TRANSPOSED = np.int8(ord("n")), np.int8(ord("t"))
_KINDS = {types.float32: np.int8(ord("s")), types.float64: np.int8(ord("d"))}


def add_product(C: Any, A: Any, B: Any, factors: Any) -> None:
    """C ← factors[0] AᵀB + factors[1] C, in place, over C-contiguous arrays of one dtype.

    Compared with a product into a buffer this saves a pass over C. It calls the `gemm` that numba
    links for `np.dot`. A row-major C is Cᵀ for BLAS, so B comes first.
    """
    C[...] = factors[0] * (A.T @ B) + factors[1] * C


@overload(add_product)
def _add_product(C, A, B, factors):
    pointer = types.CPointer(C.dtype)
    gemm: Any = types.ExternalFunction(
        "numba_xxgemm",
        types.intc(
            *(types.char,) * 3, *(types.intp,) * 3,
            pointer, pointer, types.intp, pointer, types.intp, pointer, pointer, types.intp,
        ),
    )  # fmt: skip
    kind = _KINDS[C.dtype]

    def compiled(C, A, B, factors):
        (inner, rows), columns = A.shape, B.shape[1]
        gemm(
            kind, _PLAIN, _TRANSPOSED, columns, rows, inner,
            factors.ctypes, B.ctypes, columns, A.ctypes, rows,
            factors[1:].ctypes, C.ctypes, columns,
        )  # fmt: skip

    return compiled
