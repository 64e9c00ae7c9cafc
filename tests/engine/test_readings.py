"""Other readings of a step (momentum, second batches, norms, γ): by hand, torch and engine."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flatlab import data, train
from flatlab.engine import unsupported
from flatlab.engine.philox import key_words, permutation
from flatlab.errors import UserError
from flatlab.losses import Loss
from flatlab.models import Deep, Init, TwoLayer
from flatlab.randomness import key
from flatlab.training.config import RunConfig
from flatlab.training.schedule import Phase
from thinning import thinned
from trainers import by_engine, by_torch

# 23 points: not a multiple of the block of 20 nor of the batch of 5, so every ragged end is met.
DATA = data.xor(d=6, n=23, seed=3, n_test=10)
SMALL = Init(gamma_scale=1.0)  # at the default Sim-BN diverges at this learning rate
NETWORKS = {
    "relu": TwoLayer(width=11),
    "softplus": TwoLayer(width=11, activation="softplus"),
    "no bias": TwoLayer(width=11, bias=False),
    "layer": TwoLayer(width=11, norm="layer"),
    "batch": TwoLayer(width=11, norm="batch", init=SMALL),
    "batch, tanh": TwoLayer(width=11, norm="batch", activation="tanh", init=SMALL),
    "batch, one γ": TwoLayer(width=11, norm="batch", gamma="shared", init=SMALL),
}
BATCH = [name for name in NETWORKS if name.startswith("batch")]
ROWS = [name for name in NETWORKS if name not in BATCH]
ALGORITHMS = {
    "sgd, decay": {"weight_decay": 0.05},
    "sam": {"rho": 0.05},
    "usam": {"rho": 0.02, "weight_decay": 0.05},
}
# Reading → networks, batch sizes, algorithms and fields.
READINGS = {
    "momentum": (NETWORKS, (1, None), ALGORITHMS, {"momentum": 0.6}),
    "second batch": (NETWORKS, (1, 5), ("sam", "usam"), {"second_batch": "other"}),
    "both": (NETWORKS, (1, 5), ("sam",), {"second_batch": "other", "momentum": 0.6}),
    "held": (
        ROWS,
        (1,),
        ALGORITHMS,
        {"norm_rule": "held", "max_first_layer_norm": 2.5},
    ),
    "each": (
        [name for name in ROWS if name != "no bias"],
        (1,),
        ALGORITHMS,
        {"norm_rule": "each", "max_first_layer_norm": 0.9},
    ),
    "constant statistics": (BATCH, (1, 5), ALGORITHMS, {"statistics": "constant"}),
    "γ unperturbed": (BATCH, (1, 5), ("sam", "usam"), {"gamma": "unperturbed"}),
    "γ fixed": (BATCH, (1, 5), ALGORITHMS, {"gamma": "fixed"}),
    "γ fixed, momentum": (BATCH, (5,), ALGORITHMS, {"gamma": "fixed", "momentum": 0.6}),
    "one γ": (["batch, one γ"], (1, 5, None), ALGORITHMS, {}),
}
CASES = [
    (reading, network, batch_size, algorithm)
    for reading, (networks, sizes, algorithms, _) in READINGS.items()
    for network in networks
    for batch_size in sizes
    for algorithm in algorithms
]


def phase_of(reading, batch_size, algorithm):
    fields = ALGORITHMS[algorithm] | READINGS[reading][3]
    name = algorithm.partition(",")[0]
    return Phase(name, lr=0.003, epochs=10**6, batch_size=batch_size, **fields)


def trainer_of(kind, arch, dtype="float64"):
    return kind(arch, arch.initial(DATA.d, seed=1), Loss("mse"), DATA, 7, dtype)


def trained(kind, arch, phase, epochs, dtype="float64"):
    run = trainer_of(kind, arch, dtype)
    assert run.advance(phase, 0, epochs * run.units_per_epoch(phase), 0) == -1
    return run.params()


def distance(one, two):
    assert one.keys() == two.keys()
    return max(np.abs(one[k] - two[k]).max() / np.abs(two[k]).max() for k in two)


# By hand: finite differences of the definition


def orders(seed, use, epochs):
    out = np.empty((epochs, DATA.n), np.int64)
    for epoch, order in enumerate(out):
        permutation(key_words(key(seed, use)), epoch, order)
    return out


def loss_at(arch, p, x, y, statistics=None):
    """Return (f(x) − y)² from the definition; statistics are those of p unless given."""

    def hidden(p, x):
        return np.maximum(x @ p["W1"].T + (p["b1"] if arch.bias else 0), 0)

    u = hidden(p, x)
    if arch.norm == "batch":
        rms = np.sqrt((hidden(statistics or p, DATA.x_train) ** 2).mean(0))
        u = p["gamma"] * u / rms
    return float((u @ p["W2"] - y) ** 2)


def gradient(arch, p, x, y, constant):
    """Differentiate by central differences, in each coordinate."""
    found, step = {}, 1e-6
    for name, value in p.items():
        found[name] = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = {k: v.copy() for k, v in p.items()}
                moved[name][index] += sign * step
                ends.append(loss_at(arch, moved, x, y, p if constant else None))
            found[name][index] = (ends[0] - ends[1]) / (2 * step)
    return found


def by_hand(arch, phase, steps):
    """Take the steps that the docstring of `Phase` says, with one example in each."""
    p, v = arch.initial(DATA.d, seed=1), {}
    first, second = orders(7, "order", 1)[0], orders(7, "second_order", 1)[0]
    constant = phase.variation.statistics == "constant"
    for i, j in zip(first[:steps], second[:steps], strict=True):
        g = gradient(arch, p, DATA.x_train[i], DATA.y_train[i], constant)
        climbs = {
            k: value for k, value in g.items() if k != "gamma" or phase.variation.gamma is None
        }
        norm = np.sqrt(sum((part**2).sum() for part in climbs.values()))
        up = {k: p[k] + phase.rho / norm * climbs.get(k, 0) for k in p}
        at = j if phase.variation.second_batch == "other" else i
        g = gradient(arch, up, DATA.x_train[at], DATA.y_train[at], constant)
        for name in p:
            if name == "gamma" and phase.variation.gamma == "fixed":
                continue
            v[name] = (phase.momentum or 0) * v.get(name, 0) + g[name]
            p[name] = p[name] - phase.lr * v[name]
        limit = phase.first_layer.max_norm
        if limit is not None:
            for group in (
                (("W1",), ("b1",)) if phase.first_layer.norm_rule == "each" else (("W1", "b1"),)
            ):
                norm = np.sqrt(sum((p[name] ** 2).sum() for name in group))
                if norm > limit or phase.first_layer.norm_rule == "held":
                    for name in group:
                        p[name] = p[name] * (limit / norm)
    return p


@pytest.mark.parametrize(
    "reading, network",
    [
        ("momentum", "relu"),
        ("second batch", "relu"),
        ("held", "relu"),
        ("each", "relu"),
        ("one γ", "batch, one γ"),
        ("constant statistics", "batch"),
        ("γ unperturbed", "batch"),
        ("γ fixed", "batch"),
        ("second batch", "batch"),
    ],
)
def test_torch_takes_the_step_that_is_said(reading, network):
    """Six steps against finite differences, whose error is about 1e-9 of a gradient."""
    arch = dataclasses.replace(NETWORKS[network], width=3)
    phase = phase_of(reading, 1, "sam")
    run = trainer_of(by_torch, arch)
    assert run.advance(phase, 0, 6, 0) == -1
    found, said = run.params(), by_hand(arch, phase, 6)
    assert distance(found, said) < 1e-9
    if reading != "one γ":
        plain = {"momentum": None, "second_batch": None, "norm_rule": None, "gamma": None}
        plain |= {"statistics": None, "max_first_layer_norm": None}
        other = trainer_of(by_torch, arch)
        other.advance(phase.changed(**plain), 0, 6, 0)
        assert distance(found, other.params()) > 1e-6  # the reading is one


# By the engine


@pytest.mark.parametrize("reading, network, batch_size, algorithm", thinned(CASES))
def test_engine_equals_autograd(reading, network, batch_size, algorithm):
    """The tolerances of `test_contract`: 1e-12 after an epoch, 1e-8 after many steps."""
    arch, phase = NETWORKS[network], phase_of(reading, batch_size, algorithm)
    assert unsupported(Loss("mse"), arch, (phase,)) is None
    for epochs, tolerance in ((1, 1e-12), (5, 1e-8)):
        engine, autograd = (trained(kind, arch, phase, epochs) for kind in (by_engine, by_torch))
        assert distance(engine, autograd) < tolerance


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "reading, network, kind",
    [
        ("both", "relu", by_engine),
        ("momentum", "batch, one γ", by_engine),
        ("each", "relu", by_engine),
        ("held", "layer", by_engine),
        ("γ unperturbed", "batch", by_engine),
        ("one γ", "batch, one γ", by_engine),
        ("both", "relu", by_torch),
        ("momentum", "batch", by_torch),
    ],
)
def test_bits_do_not_depend_on_chunks(reading, network, kind, dtype):
    arch, phase = NETWORKS[network], phase_of(reading, 1, "sam")
    whole = trained(kind, arch, phase, 3, dtype)
    cut = trainer_of(kind, arch, dtype)
    for unit in range(3 * cut.units_per_epoch(phase)):
        assert cut.advance(phase, unit, unit + 1, 0) == -1
        cut.load(cut.state())  # as a checkpoint would
    assert all(cut.params()[k].tobytes() == whole[k].tobytes() for k in whole)


def velocity(run):
    """Return the names in a trainer's state beside parameters and buffers."""
    return [name for name in run.state() if not name.startswith(("params/", "buffers/"))]


@pytest.mark.parametrize("kind", [by_engine, by_torch])
def test_a_velocity_is_of_its_phase(kind):
    """It starts at zero, and a phase without momentum has none."""
    arch, phase = NETWORKS["relu"], phase_of("momentum", 1, "sam")
    run = trainer_of(kind, arch)
    assert not velocity(run)
    run.advance(phase, 0, 23, 0)
    assert len(velocity(run)) == len(arch.initial(DATA.d, 0))
    params = run.params()
    run.advance(phase, 0, 23, 1)
    again = kind(arch, params, Loss("mse"), DATA, 7, "float64")
    again.advance(phase, 0, 23, 1)
    assert distance(run.params(), again.params()) == 0
    run.advance(phase_of("held", 1, "sam"), 0, 1, 2)
    assert not velocity(run)


def test_norms_are_kept():
    arch = NETWORKS["relu"]
    held = trained(by_engine, arch, phase_of("held", 1, "sam"), 2)
    both = np.hypot(np.linalg.norm(held["W1"]), np.linalg.norm(held["b1"]))
    assert both == pytest.approx(2.5, rel=1e-12)
    each = trained(by_engine, arch, phase_of("each", 1, "sam"), 2)
    norms = [np.linalg.norm(each[name]) for name in ("W1", "b1")]
    assert max(norms) <= 0.9 * (1 + 1e-12) and np.hypot(*norms) > 1.0
    start = arch.initial(DATA.d, seed=1)
    assert np.hypot(np.linalg.norm(start["W1"]), np.linalg.norm(start["b1"])) < 2.5  # it grew


def test_a_norm_held_far_above_the_start():
    """The scalar beside the weights grows a thousandfold in the first step."""
    arch = TwoLayer(width=11, init=Init(first_layer_scale=1e-3))
    phase = phase_of("held", 1, "sam")
    engine, autograd = (trained(kind, arch, phase, 1) for kind in (by_engine, by_torch))
    assert distance(engine, autograd) < 1e-10


def test_gamma_stays_where_it_is_said_to():
    arch = NETWORKS["batch"]
    start = arch.initial(DATA.d, seed=1)["gamma"]
    for algorithm in ("sam", "sgd, decay"):
        for batch_size in (1, 5):
            fixed = trained(by_engine, arch, phase_of("γ fixed", batch_size, algorithm), 2)
            assert (fixed["gamma"] == start).all()


# What is said


def test_fields_left_out_do_not_enter_the_digest():
    config = RunConfig(
        TwoLayer(norm="batch"), DATA.spec, (Phase("sam", lr=0.01, rho=0.05, epochs=9),)
    )
    assert config.digest() == "4154cada1f55"
    assert not {"gamma", "momentum"} & (config.to_dict()["arch"].keys())


@pytest.mark.parametrize(
    "arch, fields, part",
    [
        (Deep(width=5), {"momentum": 0.5}, "momentum and second_batch"),
        (TwoLayer(width=5, norm="standard_layer"), {"second_batch": "other"}, "standard norm"),
        (TwoLayer(width=5, norm="standard_batch"), {"statistics": "constant"}, "norm='batch'"),
        (TwoLayer(width=5, norm="standard_layer"), {"gamma": "fixed"}, "norm='batch'"),
        (TwoLayer(width=5), {"momentum": 0.5, "bias_lr": 0.1}, "with momentum"),
        (TwoLayer(width=5), {"momentum": 0.5, "input_noise": 0.1}, "without momentum"),
        (
            TwoLayer(width=5, norm="batch"),
            {"norm_rule": "held", "max_first_layer_norm": 1.0},
            "norm_rule",
        ),
    ],
)
def test_what_the_engine_cannot_is_trained_by_torch_and_says_so(arch, fields, part):
    phase = Phase("sam", lr=0.003, rho=0.05, batch_size=1, epochs=2, **fields)
    assert part in unsupported(Loss("mse"), arch, (phase,))
    run = train(arch, DATA, schedule=[phase])
    assert run.status == "done" and part in run.notes[0]


@pytest.mark.parametrize(
    "algorithm, fields, message",
    [
        ("sgd", {"momentum": 1.0}, "momentum must be < 1"),
        ("sgd", {"second_batch": "other"}, "second_batch='other' is for the two gradients"),
        ("label_noise", {"gamma": "unperturbed"}, "gamma='unperturbed' is for the two gradients"),
        ("sam", {"second_batch": "other"}, "the full batch is all of them: give a batch_size"),
        (
            "sam",
            {"second_batch": "other", "batch_size": 1, "input_noise": 0.1},
            "takes them on two batches: drop one",
        ),
        ("sam", {"norm_rule": "each"}, "norm_rule='each' says how max_first_layer_norm is meant"),
        ("sam", {"statistics": "batch"}, "statistics must be 'constant'"),
    ],
)
def test_bad_values_are_refused(algorithm, fields, message):
    with pytest.raises(UserError, match=message):
        size = {"sam": {"rho": 0.1}, "label_noise": {"noise": 0.1}}.get(algorithm, {})
        Phase(algorithm, lr=0.1, epochs=1, **size, **fields)


@pytest.mark.parametrize(
    "arch, fields, message",
    [
        (
            TwoLayer(bias=False),
            {"norm_rule": "each", "max_first_layer_norm": 1.0},
            "norm_rule='each' needs a network with a bias",
        ),
        (TwoLayer(), {"gamma": "fixed"}, "gamma='fixed' needs a network with a γ"),
        (TwoLayer(norm="layer"), {"statistics": "constant"}, "needs a network with BatchNorm"),
        (Deep(), {"statistics": "constant"}, "needs a network with BatchNorm"),
    ],
)
def test_what_a_network_has_not_cannot_be_trained_in_a_way(arch, fields, message):
    with pytest.raises(UserError, match=message):
        RunConfig(arch, DATA.spec, (Phase("sam", lr=0.1, rho=0.1, epochs=1, **fields),))


def test_a_second_batch_needs_other_examples():
    phase = Phase("sam", lr=0.1, rho=0.1, epochs=1, second_batch="other", batch_size=DATA.n)
    with pytest.raises(UserError, match="takes all of them: give a smaller one or drop it"):
        train(TwoLayer(width=4), DATA, schedule=[phase])


def test_one_gamma_is_for_simplified_batch_norm():
    for norm in (None, "layer", "standard_batch"):
        with pytest.raises(UserError, match="drop gamma or set norm='batch'"):
            TwoLayer(norm=norm, gamma="shared")
    assert TwoLayer(width=9, norm="batch", gamma="shared").initial(4, 0)["gamma"] == 4 / 3
