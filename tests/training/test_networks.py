"""Any network: the torch trainer's steps, state, targets, tracked measures and refusals."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

import flatlab as fl
from conftest import bits
from flatlab.engine.philox import key_words, visits
from flatlab.errors import StoreError, UserError
from flatlab.models import CNN, MLP, MODELS, VGG11, Module, TwoLayer
from flatlab.optim import SAM
from flatlab.randomness import key
from flatlab.training import session
from networks_for_tests import ARCHS, PHASES, N, images, outputs, phase, train

DATA = images()


class Stop(Exception):
    pass


def same(one, two):
    """Assert that two runs came to the same bits, history included."""
    for a, b in ((one.params, two.params), (one.buffers, two.buffers), (one.columns, two.columns)):
        assert list(a) == list(b)
        for name in a:
            assert a[name].dtype == b[name].dtype
            assert a[name].tobytes() == b[name].tobytes(), name


def stopped_and_resumed(path, epoch, **options):
    """Train, stop after an epoch without a last checkpoint, and train on."""

    def stop(info):
        if info["epoch"] >= epoch:
            raise Stop

    with pytest.raises(Stop):
        train(**options, out=path, report=stop)
    return train(**options, out=path)


@pytest.fixture(autouse=True)
def a_checkpoint_after_every_chunk(monkeypatch):
    monkeypatch.setattr(session, "CHECKPOINT_SECONDS", 0.0)


# Steps


def bare_loop(arch, make, epochs, dtype):
    """Train as a user would in plain PyTorch, in the order that the seed gives."""
    net = arch.module(DATA, 5).to(getattr(torch, dtype))
    x, y = torch.tensor(DATA.x_train.astype(dtype)), torch.tensor(DATA.y_train)
    optimizer, order = make(net.parameters()), np.empty(N, np.int64)
    for epoch in range(epochs):
        visits(np.stack([key_words(key(5, "order"))]), epoch, order)
        for start in range(0, N, 10):
            rows = torch.from_numpy(order[start : start + 10].copy())

            def closure(rows=rows):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(x[rows]), y[rows])
                loss.backward()
                return loss

            optimizer.step(closure)
    return net


@pytest.mark.parametrize("name", ["mlp", "cnn", "batch norm", "vgg11"])
@pytest.mark.parametrize("algorithm", ["momentum", "adam", "sam"])
def test_the_steps_are_those_of_a_bare_loop(name, algorithm):
    makers = {
        "momentum": lambda p: torch.optim.SGD(
            p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01
        ),
        "adam": lambda p: torch.optim.Adam(p, lr=0.01),
        "sam": lambda p: SAM(p, rho=0.1, lr=0.05, momentum=0.9),
    }
    run = train(name, algorithm, dtype="float64")
    net = bare_loop(ARCHS[name], makers[algorithm], 4, "float64")
    stored = {**run.params, **run.buffers}
    for key_of, value in net.state_dict().items():
        # The same sums in another order of memory (channels last), over 20 steps in float64. A bias
        # before BatchNorm has no gradient but rounding's, which Adam divides by its own size.
        np.testing.assert_allclose(stored[key_of], value.numpy(), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", ARCHS)
def test_the_stored_network_is_the_one_that_was_measured(name, tmp_path):
    run = train(name, "sam", out=tmp_path / "run")
    again = dataclasses.replace(fl.load_run(tmp_path / "run"), data=DATA)
    f = outputs(again.module(), DATA.x_test)
    assert float((f.argmax(1) != torch.tensor(DATA.y_test)).float().mean()) == pytest.approx(
        run.final["test_error"]
    )
    y = torch.tensor(DATA.y_test)
    loss = torch.nn.functional.cross_entropy(f, y)
    assert run.final["test_loss"] == pytest.approx(float(loss), rel=1e-5)
    assert run.columns["step"].tolist() == [5 * e for e in run.columns["epoch"]]


@pytest.mark.parametrize("name", ARCHS)
def test_the_size_is_the_number_of_parameters(name):
    size = ARCHS[name].size(DATA.shape, DATA.outputs)
    counted = sum(p.numel() for p in ARCHS[name].module(DATA, 0).parameters())
    assert size in (None, counted)
    assert (size is None) == (name == "own")


@pytest.mark.parametrize("sides", [(32, 16), (5, 1), (40, 7), (80, 80)])
@pytest.mark.parametrize("arch", [CNN(channels=(4, 4)), VGG11(batch_norm=True, channels=0.02)])
def test_the_size_of_networks_on_images_that_are_not_square(arch, sides):
    data = fl.data.arrays(np.zeros((4, 3, *sides), np.float32), [0, 1, 2, 1], classes=3)
    counted = sum(p.numel() for p in arch.module(data, 0).parameters())
    assert arch.size(data.shape, data.outputs) == counted


def test_global_random_numbers_are_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    train("dropout", "sam")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seed_decides_masks_and_weights():
    one, two, other = (train("dropout", "sgd", seed=seed) for seed in (1, 1, 2))
    same(one, two)
    assert one.final["train_loss"] != other.final["train_loss"]


def test_dropout_is_drawn_anew_in_every_step():
    """With masks of one seed for all steps the runs would be those of a smaller network."""
    plain = train(MLP(widths=(16,)), "sgd")
    dropped = train(MLP(widths=(16,), dropout=0.3), "sgd")
    w = dropped.params["0.weight" if "0.weight" in dropped.params else "1.weight"]
    start = ARCHS["dropout"].module(DATA, 5).state_dict()
    moved = np.abs(w - next(v.float().numpy() for k, v in start.items() if k.endswith("1.weight")))
    assert (moved.max(1) > 0).all()  # every neuron was kept in some step
    assert plain.final["train_loss"] != dropped.final["train_loss"]


def test_outputs_for_targets_that_are_numbers():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(40, 6)), rng.normal(size=(6, 2))
    data = fl.data.arrays(x, x @ w)
    run = fl.train(MLP(widths=(20,)), data, loss="half_mse",
                   schedule=[fl.Phase("adam", lr=0.01, epochs=200, batch_size=10)])  # fmt: skip
    assert run.final["train_loss"] < 0.05 * run.columns["train_loss"][0]
    assert "train_error" not in run.columns


def test_labels_of_two_signs_have_an_error():
    data = fl.data.xor(d=6, n=40, seed=0, n_test=20)
    run = fl.train(MLP(widths=(30,)), data, loss="logistic",
                   schedule=[fl.Phase("adam", lr=0.01, epochs=100, batch_size=10)])  # fmt: skip
    assert run.final["train_error"] == 0


def test_images_of_bytes_are_trained_on(tmp_path):
    x = (np.arange(40 * 3 * 16).reshape(40, 3, 4, 4) % 251).astype(np.uint8)
    run = train(CNN(channels=(4,)), "sgd", fl.data.arrays(x, np.arange(40) % 2, classes=2))
    assert np.isfinite(run.final["train_loss"])


# State


@pytest.mark.parametrize("algorithm", PHASES)
def test_a_run_that_was_stopped_ends_in_the_same_bits(algorithm, tmp_path):
    whole = train("own", algorithm)
    again = stopped_and_resumed(tmp_path / "run", 2, arch="own", algorithm=algorithm)
    same(again, whole)
    assert again.status == "done"


@pytest.mark.parametrize("name", ["batch norm", "dropout"])
def test_tracked_measures_are_columns_and_survive_a_stop(name, tmp_path):
    measures = [fl.Tracked("lambda_max:tolerance=0.05", examples=20), "parameter_norm"]
    if name == "batch norm":  # with dropout the loss would be another in every pass
        batch = fl.Tracked("lambda_max:tolerance=0.05", mode="train", label="batch_statistics")
        measures.append(batch)
    options = {"arch": name, "algorithm": "sam", "measures": measures}
    whole = train(**options)
    again = stopped_and_resumed(tmp_path / "run", 2, **options)
    same(again, whole)
    assert np.isfinite(whole.columns["lambda_max"]).all()
    assert (whole.columns["lambda_max_stderr"] >= 0).all()
    assert ("batch_statistics" in whole.columns) == (name == "batch norm")
    norm = np.sqrt(sum((p.astype(float) ** 2).sum() for p in whole.params.values()))
    assert whole.final["parameter_norm"] == pytest.approx(norm, rel=1e-5)


def test_a_tracked_measure_is_that_of_the_stored_network(tmp_path):
    run = train("cnn", "sgd", measures=["lambda_max:tolerance=0.001"])
    read = fl.measure(run.module(), "cross_entropy", DATA, "lambda_max:tolerance=0.001")
    value = read["lambda_max:tolerance=0.001"].value
    assert run.final["lambda_max"] == pytest.approx(value, rel=0.01)


def test_the_engine_tracks_measures_too(tmp_path):
    data = fl.data.xor(d=6, n=20, seed=0, n_test=10)
    schedule = [fl.Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=3)]
    tracked = fl.Tracked("trace", label="measured_trace")
    run = fl.train(TwoLayer(width=10), data, measures=tracked, schedule=schedule)
    assert run.final["measured_trace"] == pytest.approx(run.final["trace"], rel=1e-4)


def test_parameters_are_read_when_they_are_asked_for(tmp_path):
    train("cnn", "sgd", out=tmp_path / "run")
    run = fl.load_run(tmp_path / "run")
    assert "arrays" not in vars(run.params)
    assert run.final["train_loss"] > 0
    assert "arrays" not in vars(run.params)
    assert len(run.params) == 6 and "arrays" in vars(run.params)


def test_a_run_may_start_from_another(tmp_path):
    first = train("batch norm", "sgd", out=tmp_path / "first")
    then = train("batch norm", "sgd", start=tmp_path / "first", out=tmp_path / "then")
    assert then.columns["train_loss"][0] == first.columns["train_loss"][-1]


def test_a_tracked_measure_takes_no_column_of_the_history():
    for label in ("train_loss", "epoch", "step"):
        with pytest.raises(UserError, match=f"has a column '{label}' already"):
            train("cnn", "sgd", measures=fl.Tracked("lambda_max", label=label))
    data = fl.data.xor(d=4, n=10, seed=0, n_test=0)
    with pytest.raises(UserError, match="has a column 'trace' already"):
        fl.train(TwoLayer(width=3), data, schedule=[phase("sgd")], measures="trace")


def test_a_network_that_draws_in_evaluation_logs_the_same_again():
    arch = Module("networks_for_tests:Drawing")
    first, again = (train(arch, "sgd") for _ in range(2))
    for name, column in first.columns.items():
        np.testing.assert_array_equal(column, again.columns[name])


@pytest.mark.parametrize("factory", ["frozen", "only_evaluates", "lazy"])
def test_a_network_that_cannot_train_is_refused_before_anything_is_written(factory, tmp_path):
    with pytest.raises(UserError, match=r"no parameters to train|step fails|lazy layers"):
        train(Module(f"networks_for_tests:{factory}"), "sgd", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_last_batch_that_batchnorm_cannot_take_is_refused(tmp_path):
    deep = CNN(channels=(4, 4, 4, 4), batch_norm=True)  # ends in one pixel
    with pytest.raises(UserError, match="fails on a batch of 1 examples, the smallest"):
        train(deep, "", schedule=[phase("sgd", batch_size=N - 1)], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_widths_may_be_a_list_and_are_described_as_the_command_line_reads_them():
    assert MLP(widths=[3, 4]) == MLP(widths=(3, 4))
    assert CNN(channels=[3], batch_norm=True).describe() == "cnn:channels=[3],batch_norm=true"


@pytest.mark.parametrize("threads", [100_000, 1.5, "2"])
def test_threads_that_no_machine_has_are_refused(threads):
    with pytest.raises(UserError, match="threads must be a whole number from 1 to 1024"):
        train("mlp", "sgd", threads=threads)


@pytest.mark.parametrize("field, value", [("seconds", "x"), ("notes", 5), ("status", "foo")])
def test_a_result_with_another_type_is_damaged(field, value, tmp_path):
    train("mlp", "sgd", out=tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    run = fl.load_run(tmp_path / "run")  # the checkpoint knows better
    assert run.status == "done" and "result.json is damaged" in run.notes[0]
    without = {k: v for k, v in json.loads(path.read_text()).items() if k != "sha256"}
    path.write_text(json.dumps(without))  # as an older version wrote it
    assert "a field is missing or of another type" in fl.load_run(tmp_path / "run").notes[0]


# Targets


def test_a_phase_stops_at_its_accuracy(tmp_path):
    schedule = [phase("momentum", epochs=200, until={"accuracy": 0.9}), phase("sgd", epochs=2)]
    run = train("mlp", "", schedule=schedule, out=tmp_path / "run")
    first = int(run.columns["epoch"][-1]) - 2
    assert 0 < first < 200 and run.status == "done"
    at = run.columns["epoch"].tolist().index(first)
    assert run.columns["train_error"][at] <= 0.1
    assert (run.columns["train_error"][:at] > 0.1).all()  # and not before
    assert len(run.ends) == 1
    same(fl.load_run(tmp_path / "run"), run)  # it ended before its last epoch, and can be read
    alone = train("mlp", "", schedule=schedule[:1], out=tmp_path / "alone")
    assert alone.status == "reached" == fl.load_run(tmp_path / "alone").status
    again = stopped_and_resumed(
        tmp_path / "again", first + 1, arch="mlp", algorithm="", schedule=schedule
    )
    same(again, run)


def test_a_reached_run_whose_end_is_damaged_is_trained_again(tmp_path):
    schedule = [phase("momentum", epochs=200, until={"accuracy": 0.9})]
    run = train("mlp", "", schedule=schedule, out=tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="the result says reached at epoch"):
        fl.load_run(tmp_path / "run")
    again = train("mlp", "", schedule=schedule, out=tmp_path / "run")
    assert again.status == "reached"
    same(again, run)


def test_a_run_that_misses_its_target_is_kept(tmp_path):
    schedule = [phase("sgd", epochs=2, until={"loss": 0.0, "every": 2}), phase("sgd")]
    run = train("mlp", "", schedule=schedule, out=tmp_path / "run")
    assert run.status == "missed" and run.final["epoch"] == 2
    assert "missed its target" in run.notes[-1]
    seen = []
    again = train("mlp", "", schedule=schedule, out=tmp_path / "run", report=seen.append)
    assert again.status == "missed" and not seen  # it is over
    same(again, run)


def test_the_engine_has_targets_too():
    data = fl.data.xor(d=6, n=40, seed=0, n_test=10)
    schedule = [fl.Phase("sgd", lr=0.05, epochs=500, batch_size=1, until={"loss": 0.01})]
    run = fl.train(TwoLayer(width=50), data, schedule=schedule)
    assert run.status == "reached" and run.final["train_loss"] <= 0.01
    assert (run.columns["train_loss"][:-1] > 0.01).all()


# Refusals

CLASSES = images()
NUMBERS = fl.data.arrays(np.zeros((8, 3, 4, 4), np.float32), np.arange(8.0))
POINTS = fl.data.xor(d=4, n=10, seed=0, n_test=0)
PHASE = fl.Phase("sgd", lr=0.1, epochs=1)
REFUSED = [
    (MLP(), CLASSES, "mse", {}, "these labels are 3 integer classes: use 'cross_entropy'"),
    (MLP(), NUMBERS, "cross_entropy", {}, "these labels are numbers: give the number of classes"),
    (TwoLayer(), CLASSES, "cross_entropy", {}, "a network of kind two_layer"),
    (CNN(), POINTS, "mse", {}, r"cnn takes images of shape \(channels, height, width\), got"),
    (VGG11(), POINTS, "mse", {}, "vgg11 takes images"),
    (Module("nowhere:make"), CLASSES, "cross_entropy", {}, "cannot import nowhere: No module"),
    (Module("networks_for_tests:nothing"), CLASSES, "cross_entropy", {}, "has no function 'noth"),
    (Module("nothing"), CLASSES, "cross_entropy", {}, "a function is written package.module:fun"),
    (Module("networks_for_tests:no_module"), CLASSES, "cross_entropy", {}, "must return a torch"),
    (Module("networks_for_tests:broken"), CLASSES, "cross_entropy", {}, "failed: RuntimeError"),
    (Module("networks_for_tests:wide"), CLASSES, "cross_entropy", {}, r"have shape \(2, 2\), and"),
    (Module("networks_for_tests:own"), NUMBERS, "mse", {}, "does not take inputs of shape"),
    (
        Module("torch.nn:Linear", {"in_features": 4, "out_features": 1}), POINTS, "mse", {},
        r"have shape \(2, 1\), and the labels need \(2,\): end the network with nn.Flatten\(0\)",
    ),
    (MLP(), CLASSES, "cross_entropy", {"device": "cuda"}, "device 'cuda' is not there"),
    (MLP(), CLASSES, "cross_entropy", {"device": "tpu"}, "device must be 'cpu' or 'cuda', got"),
    (MLP(), CLASSES, "cross_entropy", {"threads": 0}, "threads must be a whole number"),
    (MLP(), CLASSES, "cross_entropy", {"backend": "engine"}, "compiles the architectures two"),
    (MLP(), CLASSES, "cross_entropy", {"measures": "lambda"}, "unknown measure 'lambda': did you"),
    (MLP(), CLASSES, "cross_entropy", {"measures": ["trace", "trace"]}, "the history has a column"),
    (MLP(), CLASSES, "cross_entropy", {"measures": 3}, "measures must be names or tables"),
    (
        MLP(), CLASSES, "cross_entropy",
        {"schedule": [fl.Phase("label_noise", lr=0.1, epochs=1, noise=0.1)]},
        "label noise of the kind 'sign' with noise=0.1 does not fit these labels",
    ),
    (
        MLP(), CLASSES, "cross_entropy",
        {"schedule": [fl.Phase("label_noise", lr=0.1, epochs=1, noise=2.0, noise_kind="flip")]},
        "with a probability <= 1",
    ),
    (
        MLP(), CLASSES, "cross_entropy",
        {"schedule": [dataclasses.replace(PHASE, max_first_layer_norm=1.0)]},
        "first_layer needs a network with a two-layer form",
    ),
]  # fmt: skip


@pytest.mark.parametrize("arch, data, loss, options, says", REFUSED, ids=[r[-1] for r in REFUSED])
def test_a_mistake_is_one_line_and_nothing_is_written(
    arch, data, loss, options, says, tmp_path, monkeypatch
):
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    options = {"schedule": [PHASE], **options}
    with pytest.raises(UserError, match=says) as caught:
        fl.train(arch, data, loss=loss, out=tmp_path / "run", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_accuracy_needs_classes():
    with pytest.raises(UserError, match="until accuracy needs labels that are classes or ±1"):
        fl.train(MLP(), NUMBERS, schedule=[fl.Phase("sgd", 0.001, 2, until={"accuracy": 1.0})])


def test_every_architecture_is_described_as_the_command_line_takes_it():
    for kind, cls in MODELS.items():
        made = cls("a:b") if kind == "module" else cls()
        assert made.describe().startswith(kind)


# Kills

KILLS = {
    "momentum": ("cnn:channels=[4,6]", "sgd:momentum=0.9,lr=0.05"),
    "adam": ("cnn:channels=[4,6]", "adam:lr=0.01"),
    "batch norm": ("cnn:channels=[4,6],batch_norm=true", "sgd:lr=0.05"),
    "dropout": ("mlp:widths=[32],dropout=0.3", "sgd:lr=0.05"),
    "sam": ("cnn:channels=[4,6],batch_norm=true", "sam:lr=0.05,rho=0.1,momentum=0.9"),
    "label noise": ("cnn:channels=[4,6]", "label_noise:lr=0.05,noise=0.2,noise_kind=flip"),
    "tracked": ("cnn:channels=[4,6]", "sam:lr=0.05,rho=0.1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLS)
def test_a_network_killed_twenty_times_ends_in_the_same_bits(name, tmp_path):
    from test_resume import KILLER

    data = DATA
    np.savez(tmp_path / "images.npz", x_train=data.x_train, y_train=data.y_train,
             x_test=data.x_test, y_test=data.y_test, classes=3)  # fmt: skip
    arch, optimizer = KILLS[name]
    arguments = ["train", "--arch", arch, "--data", str(tmp_path / "images.npz")]
    arguments += ["--loss", "cross_entropy", "--log", "per_decade=0,regular=20"]
    arguments += ["--phase", f"{optimizer},batch_size=8,epochs=400"]
    arguments += ["--phase", f"{optimizer},batch_size=16,epochs=200"]
    arguments += ["--measure", "lambda_max:tolerance=0.1"] if name == "tracked" else []
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    ended = subprocess.run(
        [sys.executable, "-c", KILLER, whole, killed, *arguments],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ended.stderr == "" and ended.returncode == 0
    kills, _, ends = json.loads(ended.stdout)
    assert kills >= 20 and set(ends) == {0}
    for i in range(len(ends)):
        assert bits(tmp_path / f"killed-{i}") == bits(whole)


OWN = """
from torch import nn
def make(width=3):
    return nn.Sequential(nn.Flatten(), nn.Linear({inputs}, width), nn.ReLU(), nn.Linear(width, 3))
"""


def test_a_run_says_if_the_code_of_its_network_has_changed(tmp_path, monkeypatch):
    """The code is no part of a run's name; its file is stored by its whole path."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "own.py"
    file.write_text(OWN.format(inputs=math.prod(CLASSES.shape)))
    arch = Module("own.py:make")
    assert arch == Module(f"{file}:make") and arch.factory == f"{file}:make"
    phase = fl.Phase("sgd", lr=0.01, epochs=1)
    monkeypatch.chdir("/")

    def trained():
        return fl.train(arch, CLASSES, schedule=[phase], loss="cross_entropy", out=tmp_path / "run")

    assert trained().notes == () and trained().notes == ()
    file.write_text(file.read_text() + "# changed\n")
    (note,) = trained().notes
    assert note.startswith(f"the code of module:factory={file}:make has changed since this run was")
    with pytest.warns(UserWarning, match="has changed since this run was begun"):
        trained().module()


FAULTY = """
import torch
from torch import nn
class Net(nn.Module):
    calls = 0
    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.last = nn.Linear(4, 1, dtype=torch.complex64 if fault == "complex" else None)
    def get_extra_state(self):
        if self.fault == "extra":
            return {"a": 1}
        return torch.zeros(1)
    def set_extra_state(self, state):
        pass
    def forward(self, x):
        if self.fault == "late" and not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(1))
        if self.fault == "train" and self.training and torch.is_grad_enabled():
            Net.calls += 1
            if Net.calls == LIMIT:
                raise RuntimeError("enough\\nException raised from here\\n" + 99 * "frame ")
        if self.fault == "evaluate" and not self.training:
            Net.calls += 1
            if Net.calls == LIMIT:
                raise RuntimeError("word " * 400)
        return self.last(x.to(self.last.weight.dtype)).real[:, 0]
def make(fault):
    return Net(fault)
"""
FAULTS = {
    "complex": r"returns a network with complex numbers \(last\.weight\)",
    "extra": "returns a network whose state has _extra_state, dict: a checkpoint holds tensors",
    "late": "the network and its stored state differ in scale: make every parameter and buffer",
}


@pytest.mark.parametrize("fault, message", FAULTS.items(), ids=FAULTS)
def test_a_network_that_cannot_be_kept_is_refused(fault, message, tmp_path):
    (tmp_path / "own.py").write_text(FAULTY)
    arch = Module(f"{tmp_path / 'own.py'}:make", {"fault": fault})
    with pytest.raises(UserError, match=message) as caught:
        fl.train(arch, POINTS, schedule=[PHASE], out=tmp_path / "run")
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("fault", ["train", "evaluate"])
def test_a_network_that_fails_late_is_one_line_and_its_run_continues(fault, tmp_path):
    own, out = tmp_path / "own.py", tmp_path / "run"
    # Two calls check the network; a row of the history is one call in evaluation.
    own.write_text(FAULTY.replace("LIMIT", {"train": "9", "evaluate": "4"}[fault]))
    arch = Module(f"{own}:make", {"fault": fault})
    schedule, log = [fl.Phase("sgd", 0.1, 6, batch_size=5)], fl.LogGrid(per_decade=0, regular=3)
    where = {"train": r"in step \d of epoch \d: RuntimeError: enough \(in", "evaluate": "in eval"}
    with pytest.raises(UserError, match=f"^the network failed {where[fault]}") as caught:
        fl.train(arch, POINTS, schedule=schedule, log=log, out=out)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    own.write_text(FAULTY.replace("LIMIT", "-1"))
    assert fl.train(arch, POINTS, schedule=schedule, log=log, out=out).status == "done"
