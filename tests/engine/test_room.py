"""Arrays have room between them, so no loop's code path depends on their addresses."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from flatlab import data
from flatlab.engine.room import room, with_room
from flatlab.losses import Loss
from flatlab.models import TwoLayer
from trainers import by_engine

ROUND = 4 * 64  # bytes: four vectors of AVX-512


@njit
def made(rows, columns, like):
    first, second = room(rows, columns, like), room(rows, columns, like)
    return first, second, abs(first.ctypes.data - second.ctypes.data)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_of_a_kernel_end_a_round_before_the_next(dtype):
    for rows, columns in ((1, 1), (1, 11), (3, 16), (20, 500)):
        first, second, apart = made(rows, columns, np.zeros(1, dtype))
        assert first.shape == second.shape == (rows, columns)
        assert first.dtype == dtype and first.flags.c_contiguous and not first.any()
        assert apart >= first.nbytes + ROUND


@pytest.mark.parametrize("norm", [None, "layer", "batch", "standard_layer", "standard_batch"])
def test_weights_that_kernels_write_and_read_have_room(norm):
    dataset, arch = data.xor(d=6, n=12, seed=0, n_test=0), TwoLayer(width=11, norm=norm)
    start = arch.initial(dataset.d, seed=1)
    trainer = by_engine(arch, start, Loss("mse"), dataset, 7, "float32")
    for part in (trainer.weights.a, trainer.weights.gamma, trainer.weights.beta):
        whole = part
        while whole.base is not None:
            whole = whole.base
        assert whole.nbytes >= part.nbytes + ROUND


def test_a_copy_with_room_is_a_copy():
    source = np.arange(6.0).reshape(2, 3)
    copy = with_room(source)
    assert np.array_equal(copy, source) and copy.flags.c_contiguous
    copy[0] = 9
    assert source[0, 0] == 0
