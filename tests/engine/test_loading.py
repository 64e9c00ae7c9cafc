"""A kernel is compiled or loaded by one process at a time, and ready at its first call."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
from numba import njit

from flatlab.engine.loading import load
from flatlab.engine.scalar import ACTIVATION_CODES, ASCENTS, LOSS_CODES
from flatlab.engine.two_layer_single import kernel
from flatlab.files.durable import in_turn


@njit(cache=True)
def doubled(x, k):
    return x * k


def test_it_waits_for_who_is_compiling():
    lock = Path(doubled.stats.cache_path) / f"{__name__}.doubled.lock"
    args = (np.ones(3, np.float32), 2)
    loading = threading.Thread(target=load, args=(doubled, "float32", args), daemon=True)
    with in_turn(lock):
        loading.start()
        loading.join(0.3)
        assert loading.is_alive() and not doubled.signatures
    loading.join(60)
    assert len(doubled.signatures) == 1
    assert np.array_equal(doubled(*args), [2, 2, 2])
    assert len(doubled.signatures) == 1  # the call needed no other


def test_kernels_of_one_definition_have_files_of_their_own():
    """Numba numbers the forms of one function; different kernels must not share the numbers."""
    made = [
        kernel(ACTIVATION_CODES[activation], 0, LOSS_CODES["mse"], ASCENTS[ascent], apart, noisy)
        for activation in ("relu", "softplus", "tanh")
        for ascent in ("sgd", "sam")
        for apart in (False, True)
        for noisy in (False, True)
    ]
    names = {each.py_func.__qualname__ for each in made}
    assert len(names) == len({id(each) for each in made}) == 20  # one kernel serves tanh


def test_without_a_place_for_compiled_kernels_it_says_what_to_set():
    """As where neither the package nor the home directory can be written."""
    child = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from flatlab.errors import UserError\n"
        "try:\n"
        "    import flatlab.engine\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, text=True, timeout=120
    )
    assert "set NUMBA_CACHE_DIR to one that can" in done.stdout, done.stderr


def test_where_no_lock_can_be_made_it_goes_on(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with in_turn(tmp_path / "file" / "lock"):
        pass
    assert (tmp_path / "file").read_text() == "no folder"
