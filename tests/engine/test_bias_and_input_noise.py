"""A bias with separate steps, and noise on the inputs: by hand, by torch and by the engine."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

from flatlab import data, train
from flatlab.engine import unsupported
from flatlab.engine.philox import key_words, normals, permutation
from flatlab.errors import UserError
from flatlab.losses import Loss
from flatlab.models import Deep, Init, TwoLayer
from flatlab.randomness import key
from flatlab.training.config import RunConfig
from flatlab.training.schedule import Phase
from thinning import thinned
from trainers import by_engine, by_torch

# 23 points: not a multiple of the block of 20, so that its ragged end is met.
DATA = data.xor(d=6, n=23, seed=3, n_test=10)
NETWORKS = {
    "relu": TwoLayer(width=11),
    "tanh": TwoLayer(width=11, activation="tanh"),
    "layer": TwoLayer(width=11, norm="layer"),
}
FIELDS = {
    "bias_lr": {"bias_lr": 0.001},
    "frozen bias": {"bias_lr": 0.0},
    "bias decay": {"bias_weight_decay": 3.0},
    "both decays": {"weight_decay": 0.4, "bias_weight_decay": 0.0},
    "noise": {"input_noise": 0.2},
    "all": {"weight_decay": 0.1, "bias_lr": 0.02, "bias_weight_decay": 2.0, "input_noise": 0.3},
}
ALGORITHMS = {
    "sgd": {},
    "sam": {"rho": 0.05},
    "usam": {"rho": 0.02},
    "label_noise": {"noise": 0.3},
}


def phase_of(algorithm, fields, batch_size=1):
    options = ALGORITHMS[algorithm] | FIELDS.get(fields, {})
    return Phase(algorithm, lr=0.005, epochs=10**6, batch_size=batch_size, **options)


def trained(kind, arch, phase, epochs, dtype="float64"):
    run = kind(arch, arch.initial(DATA.d, seed=1), Loss("mse"), DATA, 7, dtype)
    assert run.advance(phase, 0, epochs * run.units_per_epoch(phase), 0) == -1
    return run.params()


def distance(one, two):
    return max(np.abs(one[k] - two[k]).max() / np.abs(two[k]).max() for k in two)


def noise_of(seed, epoch, shape):
    out = np.empty(shape)
    normals(key_words(key(seed, "input_noise")), epoch, out)
    return out


# By hand


def gradient(p, x, y):
    """Return the gradient of (f(x) − y)² for a ReLU network, written out."""
    h = p["W1"] @ x + p["b1"]
    u, on = np.maximum(h, 0), h > 0
    slope = 2 * (p["W2"] @ u - y)
    c = slope * p["W2"] * on
    return {"W1": np.outer(c, x), "b1": c, "W2": slope * u}


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("algorithm", ["sgd", "sam", "usam"])
def test_torch_takes_the_step_written_by_hand(algorithm, fields):
    arch, phase = NETWORKS["relu"], phase_of(algorithm, fields)
    p = arch.initial(DATA.d, seed=1)
    order = np.empty(DATA.n, np.int64)
    permutation(key_words(key(7, "order")), 0, order)
    noise = noise_of(7, 0, (DATA.n, DATA.d))
    rates = {"W1": phase.lr, "W2": phase.lr, "b1": FIELDS[fields].get("bias_lr", phase.lr)}
    decay = dict.fromkeys(rates, phase.weight_decay)
    decay["b1"] = FIELDS[fields].get("bias_weight_decay", phase.weight_decay)
    for visit, i in enumerate(order):
        x = DATA.x_train[i] + FIELDS[fields].get("input_noise", 0.0) * noise[visit]
        g = gradient(p, x, DATA.y_train[i])
        if algorithm != "sgd":
            norm = np.sqrt(sum((part**2).sum() for part in g.values()))
            s = phase.rho / norm if algorithm == "sam" else phase.rho
            g = gradient({k: p[k] + s * g[k] for k in p}, x, DATA.y_train[i])
        p = {k: p[k] - rates[k] * (g[k] + decay[k] * p[k]) for k in p}
    # Float64 over 23 steps, in two orders of summation.
    assert distance(trained(by_torch, arch, phase, 1), p) < 1e-12


# By the engine


@pytest.mark.parametrize(
    "arch, algorithm, fields", thinned(itertools.product(NETWORKS, ALGORITHMS, FIELDS))
)
def test_engine_equals_autograd(arch, algorithm, fields):
    """The tolerances of `test_contract`: 1e-12 after an epoch, 1e-8 after 200 steps or more."""
    network, phase = NETWORKS[arch], phase_of(algorithm, fields)
    for epochs, tolerance in ((1, 1e-12), (9, 1e-8)):
        engine, autograd = (trained(kind, network, phase, epochs) for kind in (by_engine, by_torch))
        assert distance(engine, autograd) < tolerance


@pytest.mark.parametrize(
    "norm, fields, batch_size",
    thinned(
        itertools.product(
            [None, "layer", "batch"],
            [name for name in FIELDS if "input_noise" not in FIELDS[name]],
            [1, 5, None],
        )
    ),
)
def test_steps_of_the_bias_in_batches_and_beside_a_norm_limit(norm, fields, batch_size):
    arch = TwoLayer(width=11, norm=norm, init=Init(gamma_scale=1.0))
    for limit in (None, 1.5):
        phase = dataclasses.replace(phase_of("sam", fields, batch_size), max_first_layer_norm=limit)
        assert unsupported(Loss("mse"), arch, (phase,)) is None
        engine, autograd = (trained(k, arch, phase, 3) for k in (by_engine, by_torch))
        assert distance(engine, autograd) < 1e-11  # up to 69 steps, each rescaled


@pytest.mark.parametrize("arch", [*NETWORKS.values(), TwoLayer(width=11, bias=False)])
def test_noise_with_projection_and_without_bias(arch):
    phase = dataclasses.replace(phase_of("sam", "noise"), max_first_layer_norm=1.5)
    engine, autograd = (trained(k, arch, phase, 3) for k in (by_engine, by_torch))
    assert distance(engine, autograd) < 1e-11  # 69 steps, each rescaled


@pytest.mark.parametrize("fields", FIELDS)
def test_bits_do_not_depend_on_chunks(fields):
    arch, phase = NETWORKS["relu"], phase_of("sam", fields)
    whole = trained(by_engine, arch, phase, 3, "float32")
    cut = by_engine(arch, arch.initial(DATA.d, seed=1), Loss("mse"), DATA, 7, "float32")
    for unit in range(3 * cut.units_per_epoch(phase)):
        assert cut.advance(phase, unit, unit + 1, 0) == -1
    assert all(cut.params()[k].tobytes() == whole[k].tobytes() for k in whole)


def test_a_bias_without_a_learning_rate_stays():
    arch = NETWORKS["relu"]
    start = arch.initial(DATA.d, seed=1)["b1"]
    for kind in (by_engine, by_torch):
        assert (trained(kind, arch, phase_of("sam", "frozen bias"), 2)["b1"] == start).all()


def test_a_bias_that_decays_falls_by_its_factor_where_nothing_else_moves():
    """Dead neurons have no gradient: b is multiplied by 1 − 0.005·3 in each of 46 steps."""
    arch = NETWORKS["relu"]
    params = {name: 0 * value for name, value in arch.initial(DATA.d, seed=1).items()}
    params["b1"] -= 1.0
    run = by_engine(arch, params, Loss("mse"), DATA, 7, "float64")
    phase = phase_of("sam", "bias decay")
    run.advance(phase, 0, 2 * run.units_per_epoch(phase), 0)
    assert run.params()["b1"] == pytest.approx(-((1 - 0.015) ** 46), rel=1e-13)


# Noise


def test_noise_is_standard_normal_and_independent():
    values = noise_of(0, 5, (200, 31)).ravel()  # an odd number: the last block is cut
    # A pure function of its seed; a fair generator misses these once in a million.
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / np.sqrt(len(values))
    assert (values == noise_of(0, 5, (200, 31)).ravel()).all()
    for other in (noise_of(0, 6, (200, 31)), noise_of(1, 5, (200, 31))):
        assert not np.isin(values, other.ravel()).any()


# What is said


def test_fields_left_out_do_not_enter_the_digest():
    config = RunConfig(
        TwoLayer(), DATA.spec, (Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=9),)
    )
    (stored,) = config.to_dict()["schedule"]
    assert stored.keys() == {"optimizer", "lr", "epochs", "batch_size"}
    assert config.digest() == "1e3c0d4493ed"


@pytest.mark.parametrize(
    "arch, options, part",
    [
        (TwoLayer(width=5), {"batch_size": 5, "input_noise": 0.1}, "batch_size=1 alone"),
        (TwoLayer(width=5, norm="batch"), {"batch_size": 1, "input_noise": 0.1}, "BatchNorm"),
        (Deep(width=5), {"batch_size": 1}, "two-layer"),
        (TwoLayer(width=5, norm="standard_layer"), {"batch_size": 1}, "standard norm"),
        (
            TwoLayer(width=5),
            {"batch_size": 1, "max_first_layer_norm": 2.0, "input_noise": 0.1},
            "a norm limit on a bias",
        ),
    ],
)
def test_what_the_engine_cannot_is_trained_by_torch_and_says_so(arch, options, part):
    phase = Phase("sam", lr=0.005, rho=0.05, epochs=2, bias_lr=0.001, **options)
    assert part in unsupported(Loss("mse"), arch, (phase,))
    run = train(arch, DATA, schedule=[phase])
    assert run.status == "done" and part in run.notes[0]


def test_what_the_engine_can_it_takes():
    for fields in FIELDS:
        assert unsupported(Loss("mse"), TwoLayer(), (phase_of("sam", fields),)) is None


@pytest.mark.parametrize(
    "options, message",
    [
        ({"bias_lr": -0.1}, "bias_lr must be >= 0"),
        ({"input_noise": 0.0}, "input_noise must be > 0"),
        ({"bias_lr": 0.5, "bias_weight_decay": 2.0}, "the bias's lr"),
        ({"bias_lr": 2.0, "weight_decay": 0.6}, "the bias's lr"),
    ],
)
def test_bad_values_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        Phase("sgd", lr=0.1, epochs=1, **options)


def test_a_network_without_bias_has_no_steps_of_the_bias():
    phase = Phase("sgd", lr=0.1, epochs=1, bias_lr=0.1)
    for arch in (TwoLayer(bias=False), Deep(bias_first=False)):
        with pytest.raises(UserError, match="need a network with a bias"):
            RunConfig(arch, DATA.spec, (phase,))
