"""The same bits, however the work is cut and wherever the kernel came from; divergence is seen."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from flatlab import data
from flatlab.losses import Loss
from flatlab.models import Deep, TwoLayer
from flatlab.training.schedule import Phase
from trainers import by_engine

DATA = data.xor(d=6, n=43, seed=3, n_test=0)  # three ragged blocks of 20, nine batches of 5

# name: architecture, batch size. All kernels, the blocked one in its three forms.
KERNELS = {
    "two-layer-single-relu": (TwoLayer(width=11), 1),
    "two-layer-single-softplus": (TwoLayer(width=11, activation="softplus"), 1),
    "two-layer-single-generic": (TwoLayer(width=11, norm="layer", activation="softplus"), 1),
    "two-layer-batch": (TwoLayer(width=11), 5),
    "two-layer-batch-norm": (TwoLayer(width=11, norm="batch"), 1),
    "two-layer-standard-layer": (TwoLayer(width=11, norm="standard_layer"), 1),
    "two-layer-standard-batch": (TwoLayer(width=11, norm="standard_batch"), 5),
    "deep-single": (Deep(depth=3, width=9), 1),
    "deep-batch": (Deep(depth=3, width=9), 5),
}


def trainer_of(name, dtype="float32"):
    arch = KERNELS[name][0]
    return by_engine(arch, arch.initial(DATA.d, seed=1), Loss("mse"), DATA, 7, dtype)


def phase_of(name, lr=0.01, **options):
    return Phase("sam", lr=lr, rho=0.05, epochs=10**6, batch_size=KERNELS[name][1], **options)


def bits(params):
    total = hashlib.sha256()
    for name, value in params.items():
        total.update(name.encode() + value.tobytes())
    return total.hexdigest()


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.01, "max_first_layer_norm": 1.5}])
@pytest.mark.parametrize("name", KERNELS)
def test_bits_do_not_depend_on_chunks(name, options):
    phase, epoch0 = phase_of(name, **options), 3
    whole = trainer_of(name)
    end = 4 * whole.units_per_epoch(phase)
    assert whole.advance(phase, 0, end, epoch0) == -1
    params = whole.params()
    assert all(p.dtype == np.float32 for p in params.values())
    assert bits(params) != bits(trainer_of(name).params())
    for pieces in (range(end + 1), [0, 1, 2, 3, 5, 8, end - 1, end], [0, end // 2 + 1, end]):
        cut = trainer_of(name)
        for first, last in itertools.pairwise(pieces):
            assert cut.advance(phase, first, last, epoch0) == -1
            cut.load(cut.state())  # as a checkpoint would
        assert bits(cut.params()) == bits(params)


def test_epochs_before_the_phase_shift_the_order():
    """The order is keyed by the epoch of the run, not of the phase."""
    name = "two-layer-single-relu"
    phase, ends = phase_of(name), []
    for epoch0 in (0, 3):
        run = trainer_of(name)
        run.advance(phase, 0, run.units_per_epoch(phase), epoch0)
        ends.append(bits(run.params()))
    assert ends[0] != ends[1]


CHILD = """
import sys, hashlib
from flatlab import data
from flatlab.engine import CompiledTrainer
from flatlab.engine.two_layer_single import kernel
from flatlab.engine.scalar import ACTIVATION_CODES, ASCENTS, LOSS_CODES, NORMS
from flatlab.losses import Loss
from flatlab.models import TwoLayer
from flatlab.training.schedule import Phase

total, hits = hashlib.sha256(), 0
for arch in (TwoLayer(width=37, activation=name) for name in ("relu", "softplus", "tanh")):
    dataset = data.xor(d=9, n=61, seed=3, n_test=0)
    start = arch.initial(dataset.d, seed=1)
    run = CompiledTrainer(arch, Loss("mse"), dataset, 7, "float32")
    run.load({f"params/{name}": value for name, value in start.items()})
    phase = Phase("sam", lr=0.01, rho=0.05, epochs=30, batch_size=1, weight_decay=0.001)
    assert run.advance(phase, 0, 30 * run.units_per_epoch(phase), 0) == -1
    for value in run.params().values():
        assert value.dtype == "float32"
        total.update(value.tobytes())
    codes = ACTIVATION_CODES[arch.activation], NORMS[None], LOSS_CODES["mse"], ASCENTS["sam"]
    hits += sum(kernel(*codes).stats.cache_hits.values())
print(hits, total.hexdigest())
"""


def test_bits_do_not_depend_on_where_the_kernel_came_from(tmp_path):
    """A process that compiles and one that loads from numba's cache train alike.

    Float32, the kernels of plain ReLU and softplus and the generic one: code that the compiler may
    order differently between the two (as with fast-math on values that one of them knows to be
    constant) shows within a few hundred steps.
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    answers = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", CHILD],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout.split())
    (fresh_hits, fresh), (cached_hits, cached) = answers
    assert (fresh_hits, cached_hits) == ("0", "3"), "the first must compile, the second load"
    assert fresh == cached


# A step this long leaves the finite numbers within a few epochs. Sim-LN's outputs are bounded by
# ‖W2‖ and cannot blow up so simply, so the generic kernel diverges without it.
HUGE = 1e12
DIVERGING = {**KERNELS, "two-layer-single-generic": (TwoLayer(width=11, activation="softplus"), 1)}


@pytest.mark.parametrize("name", DIVERGING)
def test_advance_names_the_unit_that_diverged(name):
    arch, batch_size = DIVERGING[name]
    start = arch.initial(DATA.d, seed=1)
    phase = Phase("sam", lr=HUGE, rho=0.05, epochs=10**6, batch_size=batch_size)

    def fresh():
        return by_engine(arch, start, Loss("mse"), DATA, 7, "float32")

    run = fresh()
    units = 200 * run.units_per_epoch(phase)
    failed = run.advance(phase, 0, units, 0)
    assert 0 <= failed < units
    # The same unit however the work is cut, the units before it pass, and it fails again alone.
    replay = fresh()
    for unit in range(failed):
        assert replay.advance(phase, unit, unit + 1, 0) == -1
    assert replay.advance(phase, failed, failed + 1, 0) == failed
    gentle = Phase("sam", lr=1e-3, rho=0.05, epochs=10**6, batch_size=batch_size)
    assert fresh().advance(gentle, 0, units, 0) == -1


@pytest.mark.parametrize(
    "dtype, algorithm", [("float32", "sam"), ("float64", "sam"), ("float64", "sgd")]
)
@pytest.mark.parametrize("name", KERNELS)
def test_a_nan_weight_is_seen_wherever_it_stands(name, dtype, algorithm):
    """ReLU must not hide it: max(NaN, 0) is 0 in many a language.

    Without an ascent there is one pass to see it in; with one, the second must not repair it.
    """
    arch, batch_size = KERNELS[name]
    options = {"rho": 0.05} if algorithm == "sam" else {}
    phase = Phase(algorithm, lr=0.01, epochs=10**6, batch_size=batch_size, **options)
    for parameter in arch.shapes(DATA.d):
        run = trainer_of(name, dtype)
        state = run.state()
        state[f"params/{parameter}"].ravel()[3] = np.nan
        run.load(state)
        assert run.advance(phase, 0, 1, 0) == 0, parameter
