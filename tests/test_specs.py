"""Specs: a mistake reads as one line, and a value survives every way of writing it down."""

from __future__ import annotations

import dataclasses
import json
import tomllib

import numpy as np
import pytest
import tomli_w
import torch

from flatlab.errors import UserError
from flatlab.losses import MSE, Loss
from flatlab.models import CNN, MLP, VGG11, Deep, Init, Module, TwoLayer
from flatlab.specs import digest, from_dict, to_dict
from flatlab.training.config import RunConfig, Tracked, config_digest, upgraded
from flatlab.training.optimizers import SGD as SGD_
from flatlab.training.optimizers import SAMSpec
from flatlab.training.schedule import FirstLayer, LogGrid, Phase

SGD = {"algorithm": "sgd", "lr": 0.1, "epochs": 1}
RUN = {"arch": {}, "data": {"name": "xor"}, "schedule": [SGD]}

MISTAKES = [
    # Phase
    (lambda: Phase("sgd", -1.0, 5), "lr must be > 0, got -1.0"),
    (lambda: Phase("sgd", lr=0, epochs=5), "lr must be > 0, got 0"),
    (lambda: Phase("sgd", lr="0.1", epochs=5), "lr: input should be a valid number, got '0.1'"),
    (lambda: Phase("sgd", lr=True, epochs=5), "lr: input should be a valid number, got True"),
    (lambda: Phase("sgd", lr=float("nan"), epochs=5), "lr: input should be a finite number"),
    (lambda: Phase("sgd", lr=float("inf"), epochs=5), "lr: input should be a finite number"),
    (lambda: Phase("sgd", lr=0.1), "Phase needs epochs"),
    (lambda: Phase("sgd", lr=0.1, epochs=0), "epochs must be > 0, got 0"),
    (lambda: Phase("sgd", lr=0.1, epochs=2.5), "epochs: input should be a valid integer, got 2.5"),
    (lambda: Phase("sgd", lr=0.1, epochs=True), "epochs: input should be a valid integer"),
    (
        lambda: Phase("sgd", lr=0.1, epoch=5),
        "Phase has no field 'epoch': did you mean 'epochs'",
    ),
    (
        lambda: Phase("adamm", lr=0.1, epochs=5),
        "unknown optimizer 'adamm': did you mean 'adam'",
    ),
    (lambda: Phase("sam", lr=0.1, epochs=5, rho=-0.1), "rho must be >= 0, got -0.1"),
    (
        lambda: Phase("sgd", lr=0.1, epochs=5, rho=0.1),
        "'sgd' has no option 'rho', which is one of sam, usam,",
    ),
    (
        lambda: Phase("sam", lr=0.1, epochs=5, noise=0.1),
        "'sam' has no option 'noise', which is one of label_noise: drop",
    ),
    (lambda: Phase("sgd", lr=0.1, epochs=5, batch_size=0), "batch_size must be > 0 or left out"),
    (lambda: Phase("sgd", lr=0.1, epochs=5, weight_decay=-1.0), "weight_decay must be >= 0"),
    (
        lambda: Phase("sgd", lr=2.0, epochs=5, weight_decay=0.5),
        "lr * weight_decay must be <= 1 - 1e-6 (each step multiplies θ by 1 − lr·weight_decay), "
        "got 2 * 0.5",
    ),
    (
        lambda: Phase("sgd", lr=0.1, epochs=5, max_first_layer_norm=0.0),
        "max_norm must be >= 1e-15, got 0.0",
    ),
    (
        lambda: Phase("sgd", 0.1, 5, order="sorted"),
        "order must be 'replacement' or 'fixed', got 'sorted'",
    ),
    (
        lambda: Phase("sgd", 0.1, 5, 1, *[None] * 4, 9),
        "Phase takes 8 fields: optimizer, lr, epochs, batch_size, order, until, first_layer,",
    ),
    (lambda: Phase("sgd", 0.1, 5, optimizer="sam"), "optimizer is given twice, 'sgd' and 'sam'"),
    (lambda: Phase("sgd", 0.1, 5, algorithm="sam"), "two optimizers are given, 'sgd' and 'sam'"),
    (
        lambda: Phase("sgd", 0.1, 5, first_layer=5, bias_lr=0.1),
        "first_layer must be a table of fields (FirstLayer), got 5",
    ),
    # Architectures and losses
    (lambda: MSE(3), "MSE has no fields, got 3: drop it"),
    (lambda: Loss("mse", 3), "Loss takes a name and options by name, got 'mse', 3"),
    (lambda: CNN(channels=[]), "channels must have at least 1 entry, got []"),
    (lambda: TwoLayer(width=0), "width must be > 0, got 0"),
    (lambda: TwoLayer(bias="False"), "bias: input should be a valid boolean, got 'False'"),
    (lambda: TwoLayer(bias=1), "bias: input should be a valid boolean, got 1"),
    *[
        (
            lambda given=given: Module("f.py:g", {"o": given}),
            "options: o must be True, False, a whole number, a finite number or a string, got",
        )
        for given in (None, [1], float("nan"), {})
    ],
    (lambda: Module("f.py:g", {1: 2}), "the names in options must be strings, got 1"),
    (lambda: Module("f.py:g", 3), "options must be a dict of names and plain values, got 3"),
    (lambda: TwoLayer(norm="group"), "norm must be 'batch', 'layer', 'standard_batch' or"),
    (lambda: TwoLayer(activation="gelu"), "activation must be 'relu', 'softplus', 'tanh' or"),
    (lambda: TwoLayer(ln_epsilon=0.0), "ln_epsilon must be >= 1e-15, got 0.0"),
    (lambda: TwoLayer(init=3), "init must be a table of fields (Init), got 3"),
    (lambda: Deep(depth=1), "depth must be >= 2, got 1"),
    (lambda: Init(gamma_scale=-1), "gamma_scale must be > 0, got -1"),
    (lambda: Phase("sgd", 0.1, 5, until={"accuracy": 0}), "accuracy must be > 0 or left out, got"),
    (lambda: Phase("sgd", 0.1, 5, until={}), "until needs a training accuracy in (0, 1] or a"),
    (lambda: Phase("sgd", 0.1, 5, nesterov=True), "nesterov needs a momentum > 0, got 0"),
    (lambda: Phase("sgd", 0.1, 5, base="adam"), "'sgd' takes the steps itself and has no base"),
    (lambda: Phase("sam", 0.1, 5, base=3), "base is a name such as 'sgd', a table or a spec, got"),
    (lambda: Phase("sam", 0.1, 5, base="lbfgs"), "unknown base optimizer 'lbfgs': allowed: adam,"),
    (lambda: Phase("sam", 0.1, 5), "'sam' needs rho, the radius of its ascent, e.g. rho=0.05;"),
    (lambda: Phase("sam", 0.1, 5, rho=None), "'sam' needs rho, the radius of its ascent"),
    (lambda: Phase({"name": "usam"}, 0.1, 5), "'usam' needs rho, the factor of its ascent, e.g."),
    (lambda: Phase("label_noise", 0.1, 5), "'label_noise' needs noise, the size of the noise"),
    (lambda: Phase("sgd", 0.1, 5).changed(algorithm="sam"), "'sam' needs rho"),
    (lambda: Loss("hinge"), "unknown loss 'hinge': allowed: cross_entropy, half_mse, logistic,"),
    (lambda: MLP(widths=(0,)), "widths must be > 0, got 0"),
    (lambda: VGG11(channels=0.0), "channels must be > 0, got 0.0"),
    (lambda: Loss("logistic", smoothing=0.5), "smoothing must be < 0.5, got 0.5"),
    (lambda: LogGrid(per_decade=-1), "per_decade must be >= 0, got -1"),
    # From plain values
    (lambda: from_dict(TwoLayer, [1]), "TwoLayer must be a table of fields, got [1]"),
    (lambda: from_dict(TwoLayer, {"init": 3}), "init must be a table of fields (Init), got 3"),
    (
        lambda: from_dict(TwoLayer, {"init": {"lw": "torch"}}),
        "Init has no field 'lw': did you mean 'law'? Allowed: first_layer_scale, gamma_scale, law",
    ),
    (
        lambda: from_dict(TwoLayer, {"init": {"law": "cauchy"}}),
        "law must be 'torch' or 'normal', got 'cauchy'",
    ),
    (lambda: RunConfig.from_dict({}), "a run needs 'arch': give it as a table"),
    (lambda: RunConfig.from_dict({"arch": {}, "data": {}}), "a run needs 'schedule'"),
    (lambda: RunConfig.from_dict({"arhc": 1}), "unknown key 'arhc': did you mean 'arch'?"),
    (lambda: RunConfig.from_dict({**RUN, "arch": 3}), "arch must be a table with a kind, got 3"),
    (
        lambda: RunConfig.from_dict({**RUN, "arch": {"kind": "resnet"}}),
        "unknown architecture 'resnet': allowed: cnn, deep, mlp, module, two_layer, vgg11",
    ),
    (
        lambda: RunConfig.from_dict({**RUN, "arch": {"kind": ["deep"]}}),
        "unknown architecture \"['deep']\"",
    ),
    (lambda: RunConfig.from_dict({**RUN, "data": 3}), "data must be a table with a name, got 3"),
    (
        lambda: RunConfig.from_dict({**RUN, "schedule": "sam"}),
        "schedule must be a list of phases, got 'sam'",
    ),
    (
        lambda: RunConfig.from_dict({**RUN, "schedule": [3]}),
        "Phase must be a table of fields, got 3",
    ),
    (lambda: RunConfig.from_dict({**RUN, "schedule": []}), "schedule must be a non-empty list"),
    (
        lambda: RunConfig.from_dict({**RUN, "loss": 3}),
        "loss must be a name or a Loss, got 3",
    ),
    (lambda: RunConfig.from_dict({**RUN, "seed": "x"}), "seed must be an integer >= 0, got 'x'"),
    (
        lambda: RunConfig.from_dict({**RUN, "dtype": "half"}),
        "dtype must be float32 or float64, got 'half'",
    ),
]


@pytest.mark.parametrize("made, message", MISTAKES, ids=[message[:50] for _, message in MISTAKES])
def test_a_mistake_reads_as_one_line(made, message):
    with pytest.raises(UserError) as caught:
        made()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None  # pydantic's own report is not shown


VALUES = [
    MLP(widths=(3, 4), dropout=0.5),
    CNN(channels=(2, 3)),
    VGG11(batch_norm=True, channels=0.25),
    TwoLayer(),
    TwoLayer(
        width=7,
        bias=False,
        norm="batch",
        activation="tanh",
        init=Init(law="normal", first_layer_scale=1 / 3, gamma_scale=2.0),
    ),
    Deep(depth=5, width=3, bias_first=False, init=Init(gamma_scale=0.1)),
    Init(),
    Loss("truncated_mse", cutoff=0.7),
    LogGrid(per_decade=0, regular=3),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_spec_survives_plain_values_json_and_toml(value):
    plain = to_dict(value)
    assert None not in plain.values()
    for copy in (plain, json.loads(json.dumps(plain)), tomllib.loads(tomli_w.dumps(plain))):
        again = from_dict(type(value), copy)
        assert again == value
        assert hash(again) == hash(value)
        assert digest(to_dict(again)) == digest(plain)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_spec_is_frozen(value):
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, getattr(value, name))


PHASES = [
    Phase("sam", lr=0.1, epochs=3, rho=0.05),
    Phase("label_noise", lr=1e-300, epochs=3, noise=0.1, batch_size=1, max_first_layer_norm=10.0),
    Phase("sam", lr=0.1, epochs=3, rho=0.1, base="adam", beta1=0.5, until={"accuracy": 0.99}),
    Phase("sam", lr=0.1, epochs=3, rho=0.1, momentum=0.9, second_batch="other", batch_size=2),
]


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.algorithm)
def test_a_phase_survives_plain_values_json_and_toml(phase):
    plain = phase.to_dict()
    for copy in (plain, json.loads(json.dumps(plain)), tomllib.loads(tomli_w.dumps(plain))):
        assert Phase(**copy) == phase and hash(Phase(**copy)) == hash(phase)


def test_a_phase_may_be_written_in_groups_or_side_by_side():
    short = Phase("sam", lr=0.1, epochs=3, rho=0.05, weight_decay=0.1, bias_lr=0.2)
    whole = Phase(
        SAMSpec(rho=0.05, base=SGD_(weight_decay=0.1)), 0.1, 3, first_layer=FirstLayer(bias_lr=0.2)
    )
    assert short == whole
    assert (short.rho, short.weight_decay, short.of_bias) == (0.05, 0.1, (0.2, 0.1))
    other = short.changed(algorithm="usam", rho=0.1)
    assert (other.algorithm, other.rho, other.weight_decay) == ("usam", 0.1, 0.1)


def test_defaults_are_left_out_and_come_back():
    assert to_dict(TwoLayer()) == {}
    assert to_dict(TwoLayer(init=Init(law="normal"))) == {"init": {"law": "normal"}}
    assert from_dict(TwoLayer, {}) == TwoLayer()


def test_an_integer_for_a_real_number_is_that_number():
    one, two = Phase("sgd", lr=1, epochs=1), Phase("sgd", lr=1.0, epochs=1)
    assert one == two
    assert type(one.lr) is float
    assert digest(one.to_dict()) == digest(two.to_dict())
    assert Phase("sgd", lr=np.float64(0.5), epochs=1) == Phase("sgd", lr=0.5, epochs=1)


def test_a_digest_sees_every_bit_and_no_order():
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    nearby = float(np.nextafter(0.1, 1))
    assert digest({"a": 0.1}) != digest({"a": nearby})
    assert len({digest({"a": value}) for value in (1, 1.0, True, "1", [1])}) == 5
    assert len(digest({})) == 12
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest({"a": float("nan")})


CONFIG = RunConfig(
    arch=TwoLayer(width=7, norm="layer", init=Init(law="normal")),
    data={"name": "xor", "d": 6, "n": 20, "seed": 3, "distinct": True},
    schedule=(
        Phase("sgd", lr=1e-3, epochs=10),
        Phase("sam", lr=1 / 3, rho=0.05, epochs=2, batch_size=1, weight_decay=1e-4),
    ),
    loss=Loss("logistic", smoothing=0.1),
    seed=2**40,
    dtype="float64",
    log=LogGrid(per_decade=3, regular=0),
)


@pytest.mark.parametrize(
    "config", [CONFIG, dataclasses.replace(CONFIG, arch=Deep(depth=4)), RunConfig.from_dict(RUN)]
)
def test_a_run_survives_toml(config):
    text = tomli_w.dumps(config.to_dict())
    again = RunConfig.from_dict(tomllib.loads(text))
    assert again == config
    assert again.digest() == config.digest()
    assert tomli_w.dumps(again.to_dict()) == text


def test_the_digest_of_a_run_sees_every_field():
    changes = {
        "arch": TwoLayer(width=8, norm="layer", init=Init(law="normal")),
        "data": {**CONFIG.data, "n": 21},
        "schedule": CONFIG.schedule[:1],
        "loss": Loss("logistic", smoothing=0.2),
        "seed": 0,
        "dtype": "float32",
        "log": LogGrid(per_decade=3, regular=1),
        "start": {"construction": "memorising"},
        "measures": (Tracked("lambda_max"),),
    }
    assert set(changes) == {field.name for field in dataclasses.fields(RunConfig)}
    others = {dataclasses.replace(CONFIG, **{k: v}).digest() for k, v in changes.items()}
    assert len(others | {CONFIG.digest()}) == len(changes) + 1


def test_where_a_file_lies_does_not_name_a_run():
    """A path is a hint where the content's hash is there, and all there is where it is not."""
    here, there = ({"name": "file", "path": path, "sha256": "ab"} for path in ("a.npz", "b.npz"))
    one, two = (dataclasses.replace(CONFIG, data=data) for data in (here, there))
    assert one.digest() == two.digest() == config_digest(one.to_dict())
    start = {"run": "x", "sha256": "cd"}
    moved = dataclasses.replace(CONFIG, start={**start, "run": "y"})
    assert dataclasses.replace(CONFIG, start=start).digest() == moved.digest()


def test_a_configuration_of_the_first_format_is_read():
    old = {
        "seed": 3,
        "dtype": "float32",
        "arch": {"kind": "two_layer", "width": 7, "bias": True, "activation": "relu",
                 "ln_epsilon": 0.001, "init": {"law": "torch", "first_layer_scale": 1.0,
                                               "gamma_scale": 4.0}},
        "data": {"name": "xor", "d": 6, "n": 20},
        "loss": {"name": "mse", "smoothing": 0.2, "cutoff": 1.0},
        "log": {"per_decade": 10, "regular": 40},
        "schedule": [{"algorithm": "sam", "lr": 0.01, "epochs": 5, "rho": 0.05, "batch_size": 1,
                      "weight_decay": 0.0, "noise": 0.0, "bias_lr": 0.1}],
    }  # fmt: skip
    phase = Phase("sam", lr=0.01, epochs=5, rho=0.05, batch_size=1, bias_lr=0.1)
    now = RunConfig(TwoLayer(width=7), {"name": "xor", "d": 6, "n": 20}, (phase,), seed=3)
    assert upgraded(old, 1) == now.to_dict()
    assert upgraded(now.to_dict(), 2) == now.to_dict()


def test_a_run_knows_its_epochs_and_defaults():
    assert CONFIG.epochs == 12
    short = RunConfig.from_dict(RUN)
    assert short.arch == TwoLayer() and short.loss == Loss("mse")
    assert (short.seed, short.dtype, short.log) == (0, "float32", LogGrid())
    assert RunConfig.from_dict({**RUN, "arch": {"kind": "deep"}}).arch == Deep()


def test_the_log_grid():
    """Ends of phases, log-spaced epochs below the total, evenly spaced ones; sorted, once each."""
    one = (Phase("sgd", lr=0.1, epochs=1000),)
    assert LogGrid(per_decade=1, regular=0).epochs(one) == [0, 1, 10, 100, 1000]
    assert LogGrid(per_decade=0, regular=4).epochs(one) == [0, 250, 500, 750, 1000]
    two = (Phase("sgd", lr=0.1, epochs=7), Phase("sgd", lr=0.1, epochs=3))
    assert LogGrid(per_decade=0, regular=0).epochs(two) == [0, 7, 10]
    assert LogGrid().epochs((Phase("sgd", lr=0.1, epochs=1),)) == [0, 1]
    many = LogGrid().epochs((Phase("sgd", lr=0.1, epochs=10**5),))
    assert many == sorted(set(many))
    assert len(many) < 95  # at most 10 · 5 + 40 and the ends


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: Phase({"name": "sam", "rho": 0.1}, rho=0.3, lr=0.1, epochs=1),
            "rho is given twice, 0.1 and 0.3: give it once",
        ),
        (
            lambda: Phase(
                {"name": "sam", "rho": 0.1, "base": {"momentum": 0.5}},
                momentum=0.9,
                lr=0.1,
                epochs=1,
            ),
            "momentum is given twice, 0.5 and 0.9: give it once",
        ),
        (
            lambda: Phase("sgd", lr=0.1, epochs=1, variation={"gamma": "fixed"}, gamma="fixed"),
            "gamma is given twice, 'fixed' and 'fixed', once as variation.gamma: give it once",
        ),
        (lambda: LogGrid().epochs(None), "schedule must be a list of phases, got None"),
        (lambda: LogGrid().epochs([3]), "schedule must be a list of phases, got list of 1"),
    ],
)
def test_a_phase_says_each_thing_once(call, message):
    with pytest.raises(UserError) as caught:
        call()
    assert str(caught.value) == message


def test_an_option_by_its_name_changes_a_spec_that_is_there():
    first = Phase("sam", lr=0.1, rho=0.5, epochs=1, max_first_layer_norm=2.0)
    then = first.changed(rho=0.1, max_first_layer_norm=3.0)
    assert (then.rho, then.first_layer.max_norm) == (0.1, 3.0)


def test_lists_of_numbers_may_be_arrays():
    assert MLP(widths=np.array([3, 4])) == MLP(widths=(3, 4))
    assert CNN(channels=np.array([8.0])) == CNN(channels=(8,))
    with pytest.raises(UserError, match="widths"):
        MLP(widths=np.array([[3, 4]]))


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_options_of_numpy_and_torch_keep_their_kind(kind):
    options = Module("f.py:g", {"a": kind(3), "b": kind(True), "c": kind(0.5)}).options
    assert options == {"a": 3, "b": True, "c": 0.5}
    assert [type(value) for value in options.values()] == [int, bool, float]
