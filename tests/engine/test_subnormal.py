"""Subnormal numbers are zero in the engine, and only there; inactive neurons are left alone."""

import numpy as np
import pytest

from flatlab.data import xor
from flatlab.engine import compiled
from flatlab.engine.subnormal import X86, flushed
from flatlab.losses import Loss
from flatlab.models import TwoLayer
from flatlab.training.schedule import Phase
from trainers import by_engine

SMALL = np.full(8, 1e-30, np.float32)
FACTOR = np.float32(1e-10)  # the product, 1e-40, is subnormal
DATA = xor(d=6, n=24, seed=0)
SAM = Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=10**6)


@pytest.mark.skipif(not X86, reason="another processor keeps subnormal numbers")
def test_subnormal_numbers_are_zero_within_and_not_outside():
    assert (SMALL * FACTOR > 0).all()
    with pytest.raises(ZeroDivisionError), flushed():
        assert (SMALL * FACTOR == 0).all()
        raise ZeroDivisionError
    assert (SMALL * FACTOR > 0).all()


def test_what_decays_ends_at_zero():
    arch = TwoLayer(width=8, bias=False)
    params = {k: np.float32(1e-36) * v for k, v in arch.initial(DATA.d, 0).items()}
    trainer = by_engine(arch, params, Loss("mse"), DATA, 0, "float32")
    decay = Phase("sgd", lr=0.5, weight_decay=0.5, epochs=10**6, batch_size=1)
    trainer.advance(decay, 0, 2000, 0)
    for values in trainer.params().values():
        assert not ((values != 0) & (np.abs(values) < np.finfo(np.float32).tiny)).any()


@pytest.mark.parametrize("algorithm", ["sgd", "sam", "usam"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_leaving_inactive_neurons_out_changes_nothing(algorithm, decay, monkeypatch):
    rho = {} if algorithm == "sgd" else {"rho": 0.05}
    phase = SAM.changed(algorithm="sgd", rho=0.0, weight_decay=decay)
    phase = phase.changed(algorithm=algorithm, **rho)
    arch = TwoLayer(width=30, norm="batch")
    start = arch.initial(DATA.d, 1)
    start["W1"][:4], start["b1"][:4] = -1.0, -9.0  # dead on all of the cube
    start["W2"][5] = start["gamma"][5] = 0.0  # no gradient either
    ends = []
    for few in (compiled._few_active, lambda *given: False):
        monkeypatch.setattr(compiled, "_few_active", few)
        trainer = by_engine(arch, start, Loss("mse"), DATA, 0, "float64")
        assert trainer.advance(phase, 0, 300, 0) == -1
        ends.append(trainer.params())
    for name, values in ends[0].items():
        np.testing.assert_allclose(values, ends[1][name], rtol=1e-9, atol=1e-12)
        assert np.abs(values - start[name]).max() > 1e-4
