"""The compiled engine takes the same steps as torch autograd."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from flatlab import data
from flatlab.losses import Loss
from flatlab.models import Deep, Init, TwoLayer
from flatlab.training.optimizers import SPECS
from flatlab.training.schedule import Phase
from flatlab.training.session import train
from thinning import thinned
from trainers import by_engine, by_torch

# 23 points: not a multiple of the block of 20 nor of the batch of 5, so every ragged end is met.
DATA = data.xor(d=6, n=23, seed=3, n_test=10)
NORMS = (None, "layer", "batch")
STANDARD = ("standard_layer", "standard_batch")
ACTIVATIONS = ("relu", "softplus", "tanh", "identity")

ARCHITECTURES = {
    f"two_layer-{'bias' if bias else 'nobias'}-{norm}-{activation}": TwoLayer(
        # γ starts small: at the default 4/√11 Sim-BN truly diverges at this learning rate.
        width=11,
        bias=bias,
        norm=norm,
        activation=activation,
        init=Init(gamma_scale=1.0),
    )
    for bias, norm, activation in itertools.product((True, False), NORMS + STANDARD, ACTIVATIONS)
    if (bias or activation == "relu")  # the bias is only one more input
    # σ' enters the standard norms' gradients as one factor; softplus is the one without padding.
    and (norm not in STANDARD or activation in ("relu", "softplus"))
} | {
    f"deep-{depth}": Deep(depth=depth, width=9, bias_first=depth != 4, init=Init(law="normal"))
    for depth in (2, 3, 4)
}

ALGORITHMS = {
    "sgd": {},
    "sgd-decay": {"weight_decay": 0.05},
    "sam": {"rho": 0.05},
    "sam-decay-projected": {"rho": 0.05, "weight_decay": 0.02, "max_first_layer_norm": 1.5},
    "usam": {"rho": 0.02},
    "label_noise": {"noise": 0.3},
}


def both(arch, loss, phase, steps, dtype="float64"):
    """Return the parameters after so many steps by each trainer, from the same start."""
    params = arch.initial(DATA.d, seed=1)
    results = []
    for trainer in (by_engine, by_torch):
        run = trainer(arch, params, loss, DATA, 7, dtype)
        units = run.units_per_epoch(phase)
        per_epoch = -(-DATA.n // (phase.batch_size or DATA.n))
        assert steps % per_epoch == 0, "compare at the end of an epoch: blocks do not stop inside"
        assert run.advance(phase, 0, steps // per_epoch * units, 0) == -1
        results.append(run.params())
    return results


def distance(one, two):
    """Largest relative difference over the parameters, relative to each array's size."""
    assert one.keys() == two.keys()
    return max(np.abs(one[k] - two[k]).max() / np.abs(two[k]).max() for k in one)


def phase_of(name, batch_size, lr=0.005):
    # Small steps: near a minimum g/‖g‖ amplifies rounding, and the linear networks get there fast.
    options = dict(ALGORITHMS[name])
    return Phase(name.split("-")[0], lr=lr, epochs=10**6, batch_size=batch_size, **options)


@pytest.mark.parametrize(
    "arch, algorithm, loss",
    thinned(itertools.product(ARCHITECTURES, ALGORITHMS, ["mse", "logistic"])),
)
def test_engine_equals_autograd(arch, algorithm, loss):
    """Float64: 1e-12 relative after one step, 1e-8 after 200, for every batch size."""
    for batch_size in (1, 5, None):
        phase = phase_of(algorithm, batch_size)
        per_epoch = -(-DATA.n // (batch_size or DATA.n))
        # One step where an epoch is one step; one epoch, at most 23 steps, where it is more.
        assert distance(*both(ARCHITECTURES[arch], Loss(loss), phase, per_epoch)) < 1e-12
        many = -(-200 // per_epoch) * per_epoch
        assert distance(*both(ARCHITECTURES[arch], Loss(loss), phase, many)) < 1e-8


@pytest.mark.parametrize(
    "arch, order", thinned(itertools.product(ARCHITECTURES, ["replacement", "fixed"]))
)
def test_other_orders_are_those_of_autograd(arch, order):
    """Float64: 1e-12 relative after two epochs, an example coming twice in a batch or block."""
    for batch_size in (1, 5):
        phase = dataclasses.replace(phase_of("sam", batch_size), order=order)
        steps = 2 * -(-DATA.n // batch_size)
        engine, torch = both(ARCHITECTURES[arch], Loss("mse"), phase, steps)
        shuffled, _ = both(ARCHITECTURES[arch], Loss("mse"), phase_of("sam", batch_size), steps)
        assert distance(engine, torch) < 1e-12 < 1e-6 < distance(engine, shuffled)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_float32_follows_float64(arch):
    """One epoch in float32 stays within 23 steps' rounding of the float64 result."""
    for batch_size in (1, 5):
        phase = phase_of("sam", batch_size)
        per_epoch = -(-DATA.n // batch_size)
        rough, _ = both(ARCHITECTURES[arch], Loss("mse"), phase, per_epoch, "float32")
        fine, _ = both(ARCHITECTURES[arch], Loss("mse"), phase, per_epoch)
        assert next(iter(rough.values())).dtype == np.float32
        assert distance(rough, fine) < 2e-4


@pytest.mark.parametrize(
    "options", [{"max_first_layer_norm": 1e-3}, {"weight_decay": 199.0}], ids=["ball", "decay"]
)
@pytest.mark.parametrize("algorithm", ["sgd", "sam"])
def test_a_first_layer_that_shrinks_within_a_block(algorithm, options):
    """The scalar beside the weights must not leave the dtype: an epoch multiplies them by 1e-52."""
    rho = {"rho": 0.05} if algorithm == "sam" else {}
    phase = Phase(algorithm, lr=0.005, epochs=1, batch_size=1, **rho, **options)
    arch = ARCHITECTURES["two_layer-bias-None-relu"]
    # Updates are a hundred times the ball: each step's rounding is amplified by the projection.
    assert distance(*both(arch, Loss("mse"), phase, DATA.n)) < 1e-9
    for params in both(arch, Loss("mse"), phase, DATA.n, "float32"):
        norm = np.sqrt((params["W1"] ** 2).sum() + (params["b1"] ** 2).sum())
        assert np.isfinite(norm) and norm <= 1e-3 * (1 + 1e-5)


# Every optimizer of the catalogue, and options that only torch has.
OPTIMIZERS = {name: {} for name in SPECS} | {
    "sam": {"rho": 0.05},
    "usam": {"rho": 0.02},
    "label_noise": {"noise": 0.3},
    "sgd with nesterov": {"momentum": 0.9, "nesterov": True},
    "sam with momentum": {"rho": 0.05, "momentum": 0.9},
    "sam with nesterov": {"rho": 0.05, "momentum": 0.9, "nesterov": True},
    "sam with adam": {"rho": 0.05, "base": "adam"},
    "label_noise with adam": {"noise": 0.3, "base": "adam"},
    "label_noise of normals": {"noise": 0.3, "noise_kind": "gaussian"},
}


@pytest.mark.parametrize("name, options", OPTIMIZERS.items(), ids=OPTIMIZERS)
@pytest.mark.parametrize("arch", [TwoLayer(width=5), Deep(depth=3, width=5)], ids=lambda a: a.kind)
def test_the_chosen_trainer_takes_every_optimizer_and_option_as_torch_does(arch, name, options):
    phase = Phase(name.split(" ")[0], lr=0.01, epochs=2, batch_size=5, **options)
    ours, theirs = (
        train(arch, DATA, schedule=[phase], dtype="float64", backend=backend)
        for backend in ("auto", "torch")
    )
    for key, value in theirs.params.items():  # 10 steps, 1e-12 each epoch and 1e-8 after 200
        np.testing.assert_allclose(ours.params[key], value, rtol=1e-9, atol=1e-12)
