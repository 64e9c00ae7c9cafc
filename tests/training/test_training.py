"""The one training call: what it returns, refuses and survives, ending always in the same bits."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading

import numpy as np
import pytest
import torch

import flatlab as fl
from flatlab.engine import CompiledTrainer, predict
from flatlab.errors import StoreError, UserError
from flatlab.training import session as training
from flatlab.training import sitting
from flatlab.training.session import run_job
from flatlab.training.sitting import _next_look

DATA = fl.data.xor(d=6, n=23, seed=3, n_test=50)
ARCH = fl.models.TwoLayer(width=11)
DEEP = fl.models.Deep(depth=3, width=9)


def sam(epochs=12, lr=0.01, batch_size=1, **options):
    return fl.Phase("sam", lr=lr, rho=0.05, batch_size=batch_size, epochs=epochs, **options)


WRONG = [
    ("data", None, "data must be a Dataset such as flatlab.data.arrays.*, got NoneType"),
    ("data", ([[1.0]], [1.0], 3), r"data must be a Dataset .*, got tuple of 3"),
    ("log", 5, "log must be a LogGrid, got 5"),
    ("out", 5, "out must be a directory, got 5"),
    ("start", 5, "start must be the directory of a run, got 5"),
    ("report", 5, "report must be a function of one argument, got 5"),
    (
        "report",
        lambda: None,
        "report must be a function of one argument; called with one, it fails: .*",
    ),
    ("track", 5, "track must be a Tracker such as .*, got 5"),
    ("track", "lambda_max", "track must be a Tracker such as .*, got 'lambda_max'"),
]


@pytest.mark.parametrize("name, value, message", WRONG)
def test_an_argument_of_another_kind_is_refused_in_one_line(name, value, message):
    pattern = message.replace("(x, y)", r"\(x, y\)")
    with pytest.raises(UserError, match=f"^{pattern}$"):
        fl.train(**{"arch": ARCH, "data": DATA, "schedule": [sam()], name: value})


def test_a_second_batch_needs_more_examples_than_the_batch_whatever_the_data():
    again = fl.data.arrays(DATA.x_train, DATA.y_train)
    for data in (DATA, again):
        with pytest.raises(UserError, match="another part of the 23 examples, and batch_size=23"):
            fl.train(ARCH, data, schedule=[sam(batch_size=23, second_batch="other")])


def assert_same_bits(one, two):
    """Equal parameters and equal histories, bit by bit."""
    for mine, yours in ((one.params, two.params), (one.columns, two.columns)):
        assert list(mine) == list(yours)
        for name, value in mine.items():
            assert value.dtype == yours[name].dtype
            assert value.tobytes() == yours[name].tobytes(), name


def is_finite(run):
    values = [*run.params.values(), *run.columns.values()]
    return all(np.isfinite(value).all() for value in values)


def first_layer_norm(params):
    return math.hypot(*(float(np.linalg.norm(params[name].astype(float))) for name in ("W1", "b1")))


@pytest.fixture
def one_unit_at_a_time(monkeypatch):
    """Look at the signals, and call `report`, after every unit."""
    monkeypatch.setattr(sitting, "CHUNK_SECONDS", 0.0)


def interrupt_at(epoch):
    """Send this process Ctrl-C when the run has got so far."""

    def report(info):
        if info["epoch"] >= epoch:
            os.kill(os.getpid(), signal.SIGINT)

    return report


def never(info):
    raise AssertionError("a finished run must be returned at once")


# What it returns.


def test_the_example_of_the_readme():
    run = fl.train(ARCH, DATA, loss="mse", seed=0, dtype="float32", schedule=[sam(epochs=20)])
    assert run.status == "done"
    assert run.notes == () and run.diverged_at is None and run.path is None
    columns = ["epoch", "step", "train_loss", "train_error", "trace", "trace_ggn"]
    columns += [
        "test_loss",
        "test_error",
        "memorisation",
        "features",
    ]  # xor knows its relevant coordinates
    assert list(run.history.columns) == columns
    assert run.history["epoch"].dtype == np.int64
    assert run.history["epoch"].iloc[-1] == 20
    assert run.final == {name: run.history[name].iloc[-1] for name in columns}
    assert {name: p.shape for name, p in run.params.items()} == ARCH.shapes(DATA.d)
    assert all(type(p) is np.ndarray and p.dtype == np.float32 for p in run.params.values())
    assert run.seconds > 0
    assert is_finite(run)


@pytest.mark.parametrize("arch", [ARCH, fl.models.TwoLayer(width=11, norm="batch"), DEEP])
def test_the_module_is_the_network_that_was_measured(arch):
    run = fl.train(arch, DATA, schedule=[sam(lr=0.003)])
    with torch.no_grad():
        f = run.module()(torch.tensor(DATA.x_test, dtype=torch.float32)).numpy()
    # Float32 sums of a dozen terms of order one, in two orders.
    np.testing.assert_allclose(f, predict(arch, run.params, DATA.x_train, DATA.x_test), atol=1e-5)
    assert run.final["test_loss"] == pytest.approx(((f - DATA.y_test) ** 2).mean(), rel=1e-4)


def test_the_history_starts_with_the_initial_weights():
    run = fl.train(ARCH, DATA, schedule=[sam()], dtype="float64", seed=4)
    start = ARCH.initial(DATA.d, seed=4)
    f = predict(ARCH, start, DATA.x_train, DATA.x_train)
    expected = ((f - DATA.y_train) ** 2).mean()
    assert run.columns["train_loss"][0] == pytest.approx(expected, rel=1e-12)
    assert run.columns["train_loss"][-1] != pytest.approx(expected, rel=1e-3)


def test_the_history_has_the_epochs_of_the_log_grid():
    log = fl.LogGrid(per_decade=2, regular=4)
    run = fl.train(ARCH, DATA, schedule=[sam(epochs=10), sam(epochs=20, batch_size=5)], log=log)
    # Ends 0, 10, 30; decades 1, 3.16, 10; quarters 7.5 and 22.5 (rounded to even), 15.
    assert run.columns["epoch"].tolist() == [0, 1, 3, 8, 10, 15, 22, 30]


def test_logging_does_not_touch_the_training():
    often = fl.train(ARCH, DATA, schedule=[sam()], log=fl.LogGrid(per_decade=0, regular=12))
    seldom = fl.train(ARCH, DATA, schedule=[sam()], log=fl.LogGrid(per_decade=0, regular=0))
    assert often.columns["epoch"].tolist() == list(range(13))
    assert seldom.columns["epoch"].tolist() == [0, 12]
    assert all(often.params[k].tobytes() == seldom.params[k].tobytes() for k in often.params)


def test_same_seed_same_bits_and_another_seed_others():
    one, two, other = (fl.train(ARCH, DATA, schedule=[sam()], seed=s) for s in (1, 1, 2))
    assert_same_bits(one, two)
    assert all((one.params[k] != other.params[k]).any() for k in one.params)


def test_a_phase_continues_the_one_before():
    """Two phases of one kind are one phase of both lengths: orders are keyed by the run's epoch."""
    split = fl.train(ARCH, DATA, schedule=[sam(epochs=5), sam(epochs=7)])
    whole = fl.train(ARCH, DATA, schedule=[sam(epochs=12)])
    assert all(split.params[k].tobytes() == whole.params[k].tobytes() for k in whole.params)


def test_a_run_keeps_the_parameters_at_the_ends_of_its_phases(tmp_path, one_unit_at_a_time):
    phases = [sam(epochs=k) for k in (2, 3, 4)]
    whole = fl.train(ARCH, DATA, schedule=phases, out=tmp_path / "whole")
    assert len(whole.ends) == 2
    for k, end in enumerate(whole.ends, 1):
        alone = fl.train(ARCH, DATA, schedule=phases[:k])
        assert list(end) == list(alone.params)
        assert all(end[name].tobytes() == alone.params[name].tobytes() for name in end)
    for stop in (1, 2, 4, 6):  # in the first phase, at its end, in the second, in the third
        out = tmp_path / f"stopped{stop}"
        with pytest.raises(KeyboardInterrupt):
            fl.train(ARCH, DATA, schedule=phases, out=out, report=interrupt_at(stop))
        resumed = fl.train(ARCH, DATA, schedule=phases, out=out)
        for run in (resumed, fl.load_run(out)):
            assert [{k: v.tobytes() for k, v in end.items()} for end in run.ends] == [
                {k: v.tobytes() for k, v in end.items()} for end in whole.ends
            ]


def test_progress_is_reported(one_unit_at_a_time):
    seen = []
    fl.train(ARCH, DATA, schedule=[sam(epochs=3)], report=seen.append)
    epochs = [info["epoch"] for info in seen]
    assert epochs == sorted(epochs) and epochs[-1] == 3
    assert {"epochs", "train_loss", "trace", "test_error"} <= set(seen[0])
    assert all(info["epochs"] == 3 for info in seen)


def test_training_works_outside_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(fl.train(ARCH, DATA, schedule=[sam()])))
    thread.start()
    thread.join()
    assert_same_bits(found[0], fl.train(ARCH, DATA, schedule=[sam()]))


# What it refuses.

BAD = {
    "batch_size must be <= n = 23, got 24: leave it out for the full batch": {
        "schedule": [sam(batch_size=24)]
    },
    "schedule must be a non-empty list of Phase, got ()": {"schedule": []},
    "schedule must be a non-empty list of Phase, got ('sam',)": {"schedule": ["sam"]},
    "dtype must be float32 or float64, got 'float16'": {"dtype": "float16"},
    "unknown loss 'msee': did you mean 'mse'": {"loss": "msee"},
    "loss must be a name or a Loss, got 3": {"loss": 3},
    "seed must be an integer >= 0, got -1": {"seed": -1},
    "seed must be an integer >= 0, got True": {"seed": True},
    "seed must be an integer >= 0, got 1.5": {"seed": 1.5},
    "unknown backend 'jax': allowed: auto, engine, torch": {"backend": "jax"},
    "the engine compiles the losses mse, logistic, not truncated_mse: use backend 'auto' or": {
        "loss": "truncated_mse",
        "backend": "engine",
    },
}


@pytest.mark.parametrize("message", BAD)
def test_a_mistake_is_told(message):
    with pytest.raises(UserError) as caught:
        fl.train(ARCH, DATA, **{"schedule": [sam()], **BAD[message]})
    assert message in str(caught.value)


def test_an_architecture_of_another_kind_is_refused():
    with pytest.raises(
        UserError,
        match="arch must be one of TwoLayer, Deep, MLP, CNN, VGG11, Module, got 'two_layer'",
    ):
        fl.train("two_layer", DATA, schedule=[sam()])


# Two trainers.


def test_a_loss_that_is_not_compiled_falls_back_to_torch_and_says_so():
    loss = fl.Loss("truncated_mse", cutoff=0.5)
    run = fl.train(ARCH, DATA, loss=loss, schedule=[sam(epochs=2)])
    assert run.status == "done"
    assert run.notes == (
        "trained by torch autograd, not the compiled engine: "
        "the engine compiles the losses mse, logistic, not truncated_mse",
    )
    asked = fl.train(ARCH, DATA, loss=loss, schedule=[sam(epochs=2)], backend="torch")
    assert asked.notes == ()  # no surprise, no note
    assert_same_bits(run, asked)


def test_torch_trains_what_the_engine_trains():
    """Float64, a hundred steps: rounding apart, as the contract of the two trainers has it."""
    schedule = [sam(epochs=3), sam(epochs=5, batch_size=5, max_first_layer_norm=2.0)]
    one, two = (
        fl.train(ARCH, DATA, schedule=schedule, dtype="float64", backend=backend)
        for backend in ("engine", "torch")
    )
    for mine, yours in ((one.params, two.params), (one.columns, two.columns)):
        for name, value in mine.items():
            np.testing.assert_allclose(value, yours[name], rtol=1e-8, atol=1e-8, err_msg=name)


def test_label_noise_and_projection():
    """The last step ends in the ball, whatever the noise; without a limit the run leaves it."""

    def norm(**options):
        phase = fl.Phase("label_noise", lr=0.02, noise=0.5, batch_size=1, epochs=20, **options)
        return first_layer_norm(fl.train(ARCH, DATA, schedule=[phase], dtype="float64").params)

    free, limit = norm(), 1.5
    assert free > limit + 0.1
    assert limit - 0.1 < norm(max_first_layer_norm=limit) <= limit + 1e-5


@pytest.mark.parametrize("batch_size", [1, 5, None])
@pytest.mark.parametrize("arch", [ARCH, DEEP])
def test_projection_in_float32(arch, batch_size):
    """Within 1e-5 of the limit: the blocked kernel updates ‖W‖² instead of summing it anew."""
    phase = sam(batch_size=batch_size, epochs=30, max_first_layer_norm=1.0)
    run = fl.train(arch, DATA, schedule=[phase])
    assert first_layer_norm(arch.initial(DATA.d, 0)) > 1.1
    assert first_layer_norm(run.params) <= 1 + 1e-5


@pytest.mark.parametrize(
    "arch", [fl.models.TwoLayer(width=11, bias=False), fl.models.MLP(widths=(11,), bias=False)]
)
def test_an_output_of_zero_is_an_error(arch):
    """Without bias f(0) = 0, whatever the weights and the label; the engine and torch say so."""
    data = fl.data.from_arrays(DATA.x_train, DATA.y_train, np.zeros((4, DATA.d)), [1, -1, 1, 1])
    run = fl.train(arch, data, schedule=[sam(epochs=2)])
    assert set(run.columns["test_error"]) == {1.0}


# Divergence.

# An output overflows, or an update within the same unit. Two phases: the second one diverges.
DIVERGING = {
    "two-layer-full-batch": (ARCH, [sam(lr=100.0, batch_size=None, epochs=200)]),
    "two-layer-single": (ARCH, [sam(lr=1e10, epochs=60)]),
    "batch-norm": (fl.models.TwoLayer(width=11, norm="batch"), [sam(lr=1e10, epochs=60)]),
    "deep": (DEEP, [sam(lr=1e10, epochs=60)]),
    "first-update": (ARCH, [sam(lr=3e38, epochs=60)]),
    "momentum": (ARCH, [sam(lr=1e4, epochs=60, momentum=0.9)]),
    "second-phase": (ARCH, [sam(epochs=5), sam(lr=1e4, epochs=60, batch_size=5)]),
}


@pytest.mark.parametrize("name", DIVERGING)
def test_divergence_ends_in_the_last_finite_state(name, monkeypatch):
    """The same one, however the work was cut."""
    arch, schedule = DIVERGING[name]
    runs = []
    for seconds in (0.0, 1e9):
        monkeypatch.setattr(sitting, "CHUNK_SECONDS", seconds)
        runs.append(fl.train(arch, DATA, schedule=schedule))
    for run in runs:
        assert run.status == "diverged"
        assert is_finite(run)
        assert run.columns["epoch"][-1] <= run.diverged_at <= run.config.epochs
        assert len(run.notes) == 1
        assert "try a smaller lr or rho" in run.notes[0]
        assert f"in epoch {run.diverged_at}" in run.notes[0]
    assert runs[0].diverged_at == runs[1].diverged_at
    assert_same_bits(*runs)
    if name == "second-phase":
        assert runs[0].diverged_at >= 5


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize(
    ("arch", "batch_size"),
    [(ARCH, 5), (ARCH, None), (DEEP, 1), (fl.models.TwoLayer(width=11, norm="batch"), 1)],
)
def test_an_update_that_overflows_a_unit_before_an_output_is_taken_back(arch, batch_size, epochs):
    """The first update does, and it may be the last: no output follows a full batch of one epoch.

    The gradient of labels ±100 times 1e38 is beyond float32; the outputs before it are not.
    """
    loud = fl.data.from_arrays(DATA.x_train, 100 * DATA.y_train)
    phase = sam(lr=1e38, batch_size=batch_size, epochs=epochs)
    run = fl.train(arch, loud, schedule=[phase])
    assert (run.status, run.diverged_at, list(run.columns["epoch"])) == ("diverged", 0, [0])
    for name, start in arch.initial(DATA.d, 0).items():
        assert np.array_equal(run.params[name], start.astype(np.float32))


def test_divergence_under_torch():
    run = fl.train(ARCH, DATA, schedule=[sam(lr=1e10, epochs=9)], backend="torch")
    assert run.status == "diverged"
    assert is_finite(run)


def test_a_diverged_run_is_kept_and_found_again(tmp_path):
    phase = fl.Phase("sgd", lr=1e10, batch_size=5, epochs=60)
    run = fl.train(ARCH, DATA, schedule=[phase], out=tmp_path / "run")
    again = fl.train(ARCH, DATA, schedule=[phase], out=tmp_path / "run", report=never)
    assert "try a smaller lr;" in run.notes[0]
    assert (again.status, again.diverged_at) == ("diverged", run.diverged_at)
    assert again.notes == run.notes
    assert_same_bits(run, again)


def test_weights_that_start_without_a_finite_loss_are_refused():
    data = fl.data.from_arrays(np.full((5, 3), 1e200), np.ones(5))
    with pytest.raises(UserError, match="not finite at the initial weights"):
        fl.train(fl.models.TwoLayer(width=11), data, schedule=[sam()], dtype="float64")


def test_arrays_and_tensors_are_a_data_set():
    """As for `measure`: (x, y), or with test points; labels of cross_entropy are classes."""
    x, y = np.random.default_rng(0).normal(size=(2, 12, 4)), np.arange(12) % 3
    phase = fl.Phase("sgd", lr=0.1, epochs=3)
    signs = 1.0 - 2 * (y > 0)
    for given, data in (
        ((x[0], signs), fl.data.arrays(x[0], signs)),
        ([torch.tensor(x[0]), torch.tensor(signs)], fl.data.arrays(x[0], signs)),
        ((x[0], signs, x[1], -signs), fl.data.arrays(x[0], signs, x[1], -signs)),
    ):
        runs = [fl.train(ARCH, d, schedule=[phase]) for d in (given, data)]
        assert_same_bits(*runs)
        assert runs[0].config == runs[1].config
    options = {"schedule": [phase], "loss": "cross_entropy"}
    made = fl.train(fl.models.MLP(), (x[0], torch.tensor(y)), **options)
    assert made.dataset().classes == 3 and "test_error" not in made.columns
    bad = np.where(y == 1, np.nan, y)
    with pytest.raises(UserError, match=r"y_train\[1\] is nan: every value must be finite"):
        fl.train(fl.models.MLP(), (x[0], bad), **options)


def test_whole_numbers_of_numpy_and_whole_floats_are_whole_numbers():
    plain = fl.Phase("look_sam", lr=0.5, rho=0.25, epochs=10, batch_size=4, k=2)
    options = {"epochs": 1e1, "batch_size": np.int64(4), "k": np.float32(2)}
    options["rho"] = np.float32(0.25)
    assert fl.Phase("look_sam", np.float64(0.5), **options) == plain
    assert repr(fl.Phase("look_sam", np.float64(0.5), **options)) == repr(plain)
    assert fl.models.TwoLayer(np.int32(9)) == fl.models.TwoLayer(width=9)
    assert fl.models.MLP(widths=[np.int64(5), 4.0]) == fl.models.MLP(widths=(5, 4))
    assert fl.LogGrid(per_decade=0.0, regular=np.uint8(3)) == fl.LogGrid(per_decade=0, regular=3)
    assert fl.data.xor(d=np.int64(8), n=2e1, seed=np.int8(1)).spec == fl.data.xor(8, 20, 1).spec
    four, whole = fl.data.gaussian_mixture(3, 5, clusters=4.0), fl.data.gaussian_mixture(3, 5)
    assert four.spec == whole.spec
    runs = [
        fl.train(ARCH, DATA, schedule=[sam(epochs=e)], seed=s, threads=t)
        for e, s, t in ((2, 3, 1), (2.0, np.int64(3), np.int64(1)))
    ]
    assert runs[0].config.digest() == runs[1].config.digest()
    assert_same_bits(*runs)
    for wrong in (2.5, np.float64(2.5), True, "2", float("inf")):
        with pytest.raises(UserError, match="epochs"):
            fl.Phase("sgd", lr=0.1, epochs=wrong)


# Interruption and resumption.

NOISY = fl.Phase("label_noise", lr=0.01, noise=0.3, batch_size=5, epochs=6)
SCHEDULES = {
    "two-layer": (ARCH, "float32", [sam(epochs=4), sam(epochs=6, batch_size=5), sam(epochs=3)]),
    "deep": (DEEP, "float32", [sam(epochs=4, batch_size=5), sam(epochs=6)]),
    "noise": (ARCH, "float64", [sam(epochs=4), NOISY, sam(epochs=2, batch_size=None)]),
    "momentum": (ARCH, "float32", [sam(epochs=4), sam(epochs=6, momentum=0.9), sam(epochs=3)]),
}


@pytest.mark.parametrize("stops", [(6.5,), (4.0, 4.5, 7.0, 9.9)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_an_interrupted_run_ends_in_the_same_bits(name, stops, tmp_path, one_unit_at_a_time):
    """Interrupted in the second phase, at the end of an epoch and inside one, once and often."""
    arch, dtype, schedule = SCHEDULES[name]
    log = fl.LogGrid(per_decade=3, regular=7)
    options = {"schedule": schedule, "dtype": dtype, "log": log, "seed": 2}
    whole = fl.train(arch, DATA, **options)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for stop in stops:
        with pytest.raises(KeyboardInterrupt, match=f"interrupted at epoch .*{tmp_path}/run has"):
            fl.train(arch, DATA, **options, out=tmp_path / "run", report=interrupt_at(stop))
        read = fl.load_run(tmp_path / "run")
        assert read.status == "interrupted"
        assert read.columns["epoch"][-1] <= stop + 1
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    seen = []
    done = fl.train(arch, DATA, **options, out=tmp_path / "run", report=seen.append)
    assert done.status == "done"
    assert seen[0]["epoch"] > stops[-1]  # it went on, it did not start again
    assert_same_bits(done, whole)
    assert_same_bits(fl.load_run(tmp_path / "run"), whole)


def test_seconds_are_those_of_all_sittings_and_of_no_pause(tmp_path, clock, one_unit_at_a_time):
    """Each look at the progress takes a second, each pause between two sittings a thousand."""
    watch, sittings = clock(sitting), []
    options = {"schedule": [sam(epochs=9)], "out": tmp_path / "run"}

    def looked(interrupt):
        sittings.append(0)

        def report(info):
            watch.now += 1
            sittings[-1] += 1
            interrupt(info)

        return report

    for stop in (2, 5, 99):
        with contextlib.suppress(KeyboardInterrupt):
            fl.train(ARCH, DATA, **options, report=looked(interrupt_at(stop)))
        run = fl.load_run(tmp_path / "run")
        assert run.seconds == sum(sittings)
        watch.now += 1000
    assert run.status == "done" and min(sittings) > 0


def test_sigterm_is_an_interrupt_too(tmp_path, one_unit_at_a_time):
    def terminate(info):
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        fl.train(ARCH, DATA, schedule=[sam()], out=tmp_path / "run", report=terminate)
    assert fl.load_run(tmp_path / "run").status == "interrupted"


def test_a_run_in_memory_can_be_interrupted(one_unit_at_a_time):
    with pytest.raises(KeyboardInterrupt, match=r"at epoch 2 of .*give `out` a directory"):
        fl.train(ARCH, DATA, schedule=[sam()], report=interrupt_at(2))


def test_ctrl_c_ends_a_loop_over_seeds(tmp_path, one_unit_at_a_time):
    """Also when it comes in the last epoch, after which the run is done."""
    for epoch, status in ((2, "interrupted"), (sam().epochs, "done")):
        made = []
        with pytest.raises(KeyboardInterrupt):
            for seed in range(3):
                out = tmp_path / f"{epoch}-{seed}"
                options = {"schedule": [sam()], "seed": seed, "out": out}
                made.append(fl.train(ARCH, DATA, **options, report=interrupt_at(epoch)))
        assert made == []
        assert fl.load_run(tmp_path / f"{epoch}-0").status == status


def test_a_job_that_is_interrupted_returns_what_it_has(tmp_path, one_unit_at_a_time):
    config = fl.train(ARCH, DATA, schedule=[sam()]).config.to_dict()
    payload = {"config": config, "out": str(tmp_path / "run"), "fresh": False}
    assert run_job(payload, interrupt_at(2))["status"] == "interrupted"
    assert run_job(payload, lambda info: None)["status"] == "done"


def test_an_interrupt_waits_for_one_piece_of_work(clock, monkeypatch):
    """Pieces grow to CHUNK_SECONDS, and shrink again when the work becomes slower."""
    watch, pieces, advance = clock(sitting), [], CompiledTrainer.advance

    def timed(self, phase, start, stop, epoch0):
        before = watch.now
        watch.now += (stop - start) * (0.001 if before < 5 else 0.01)
        pieces.append((before, watch.now - before))
        return advance(self, phase, start, stop, epoch0)

    def report(info):
        if watch.now > 10:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(CompiledTrainer, "advance", timed)
    log = fl.LogGrid(per_decade=0, regular=0)  # no epoch to log cuts the work short
    with pytest.raises(KeyboardInterrupt):
        fl.train(ARCH, DATA, schedule=[sam(epochs=10**7, lr=1e-4)], report=report, log=log)
    assert sum(seconds for _, seconds in pieces) == pytest.approx(watch.now, rel=1e-9)
    limit = sitting.CHUNK_SECONDS * (1 + 1e-9)
    for half in (
        [seconds for begun, seconds in pieces if begun < 5],
        [seconds for begun, seconds in pieces if begun >= 5][1:],  # the first cannot know
    ):
        assert sitting.CHUNK_SECONDS / 2 < max(half) <= limit
    assert watch.now <= 10 + 2 * limit  # one piece passes ten seconds, none follows the signal


def test_a_finished_run_is_returned_at_once(tmp_path):
    options = {"schedule": [sam()], "out": tmp_path / "run"}
    first = fl.train(ARCH, DATA, **options)
    again = fl.train(ARCH, DATA, **options, report=never)
    assert again.status == "done"
    assert again.path == first.path == tmp_path / "run"
    assert_same_bits(first, again)
    seen = []
    fresh = fl.train(ARCH, DATA, **options, fresh=True, report=seen.append)
    assert seen
    assert_same_bits(first, fresh)


def test_a_finished_run_knows_the_data_it_was_given(tmp_path):
    """Arrays in memory have no spec from which to make them again."""
    own = fl.data.from_arrays(DATA.x_train, DATA.y_train, DATA.x_test, DATA.y_test)
    for _ in range(2):
        run = fl.train(ARCH, own, schedule=[sam()], out=tmp_path / "run")
        assert run.dataset() is own
        assert run.module()(torch.tensor(own.x_test, dtype=torch.float32)).shape == (50,)


def test_another_configuration_is_not_mixed_in(tmp_path):
    fl.train(ARCH, DATA, schedule=[sam()], out=tmp_path / "run")
    with pytest.raises(UserError, match=r"holds another run \(seed is 0 there, 1 here\)"):
        fl.train(ARCH, DATA, schedule=[sam()], seed=1, out=tmp_path / "run")


def test_a_run_is_continued_by_the_trainer_that_began_it(tmp_path, one_unit_at_a_time):
    """Progress is counted in the trainer's units: a block of examples here, a step there."""
    options = {"schedule": [sam()], "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        fl.train(ARCH, DATA, **options, report=interrupt_at(2))
    with pytest.raises(UserError, match="begun with backend 'engine', not 'torch'"):
        fl.train(ARCH, DATA, **options, backend="torch")
    assert fl.train(ARCH, DATA, **options).status == "done"


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    tmp_path, monkeypatch, one_unit_at_a_time
):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)  # after every unit
    options = {"schedule": [sam(), sam(epochs=6, batch_size=5)], "out": tmp_path / "run"}
    whole = fl.train(ARCH, DATA, schedule=options["schedule"])
    with pytest.raises(KeyboardInterrupt):
        fl.train(ARCH, DATA, **options, report=interrupt_at(14.5))
    flip_a_byte(tmp_path / "run" / "checkpoint.safetensors")
    done = fl.train(ARCH, DATA, **options)
    assert done.status == "done"
    assert len(done.notes) == 1
    assert str(tmp_path / "run" / "checkpoint.safetensors") in done.notes[0]
    assert "is damaged" in done.notes[0]
    assert "checkpoint.previous.safetensors" in done.notes[0]
    assert_same_bits(done, whole)


def test_a_finished_run_whose_end_is_damaged_is_finished_again(tmp_path, one_unit_at_a_time):
    options = {"schedule": [sam()], "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        fl.train(ARCH, DATA, **options, report=interrupt_at(5))
    whole = fl.train(ARCH, DATA, **options)
    flip_a_byte(tmp_path / "run" / "checkpoint.safetensors")
    with pytest.raises(StoreError, match="run the same command again to finish it"):
        fl.load_run(tmp_path / "run")
    seen = []
    again = fl.train(ARCH, DATA, **options, report=seen.append)
    assert again.status == "done"
    assert seen[0]["epoch"] > 5
    assert "is damaged" in again.notes[0]
    assert_same_bits(again, whole)
    assert_same_bits(fl.load_run(tmp_path / "run"), whole)


def test_checkpoints_are_written_on_the_way(tmp_path, monkeypatch, one_unit_at_a_time):
    """A run that is killed, not interrupted, goes on from its last checkpoint."""

    class Killed(BaseException):
        pass

    def kill(info):
        if info["epoch"] >= 7:
            raise Killed

    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    options = {"schedule": [sam()], "out": tmp_path / "run"}
    with pytest.raises(Killed):
        fl.train(ARCH, DATA, **options, report=kill)
    assert fl.load_run(tmp_path / "run").status == "interrupted"
    seen = []
    done = fl.train(ARCH, DATA, **options, report=seen.append)
    assert seen[0]["epoch"] >= 6.5
    assert_same_bits(done, fl.train(ARCH, DATA, schedule=[sam()]))


def test_run_job_is_the_same_call_by_plain_values(tmp_path):
    whole = fl.train(ARCH, DATA, schedule=[sam()], seed=5)
    payload = {"config": whole.config.to_dict(), "out": str(tmp_path / "run"), "fresh": False}
    seen = []
    result = training.run_job(payload, seen.append)
    assert result["status"] == "done"
    assert result["path"] == payload["out"]
    assert result["final"] == whole.final
    assert seen
    assert_same_bits(fl.load_run(tmp_path / "run"), whole)


def test_constant_statistics_end_with_their_phase():
    arch = fl.models.TwoLayer(width=6, norm="batch")
    schedule = [sam(epochs=3, batch_size=5, statistics="constant"), sam(epochs=3, batch_size=5)]
    ours, torchs = (
        fl.train(arch, DATA, schedule=schedule, dtype="float64", backend=backend)
        for backend in ("engine", "torch")
    )
    for name, value in ours.params.items():
        # Rounding differs by about 1e-13; constant statistics in both phases differ by 1e-3.
        assert np.allclose(value, torchs.params[name], rtol=1e-8, atol=1e-10)


def test_the_loss_and_data_of_a_tracker_count():
    other = fl.data.xor(d=DATA.d, n=7, seed=3, n_test=0)
    own = fl.Tracker("trace", every=4, loss="half_mse", data=other)
    plain = fl.Tracker("trace", every=4)
    run = fl.train(ARCH, DATA, schedule=[sam(4)], dtype="float64", track=own)
    fl.train(ARCH, DATA, schedule=[sam(4)], dtype="float64", track=plain)
    wanted = fl.measure(run.module(), "half_mse", other, "trace")["trace"].value
    assert own.history["trace"].iloc[-1] == pytest.approx(wanted, rel=1e-12)
    assert plain.history["trace"].iloc[-1] == pytest.approx(run.final["trace"], rel=1e-9)


def test_a_single_phase_and_dtypes_of_numpy_and_torch_are_taken(tmp_path):
    wanted = fl.train(ARCH, DATA, schedule=[sam(2)], dtype="float64")
    for k, dtype in enumerate((np.dtype("float64"), np.float64, torch.float64)):
        run = fl.train(ARCH, DATA, schedule=sam(2), dtype=dtype, out=tmp_path / str(k))
        assert run.config == wanted.config and type(run.config.dtype) is str
        assert_same_bits(run, wanted)


def test_the_next_look_is_that_of_a_list_of_all():
    """The stops of a phase are made one by one, so a huge one costs no memory."""
    for every, epochs in ((1, 6), (4, 10), (5, 10), (20, 10)):
        for marks in ([], [1, 4, 9], [3]):
            phase = sam(epochs, until={"loss": 0.1, "every": every})
            marks = [mark for mark in marks if mark < epochs]
            looks = sorted({epochs, *marks, *range(every, epochs, every)})
            for done in range(epochs):
                wanted = next(look for look in looks if look > done)
                assert _next_look(phase, marks, done) == wanted
    huge = sam(10**9, until={"loss": 100.0})
    assert fl.train(ARCH, DATA, schedule=[huge]).final["epoch"] == 1


def test_the_home_of_the_user_is_meant_by_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = fl.train(ARCH, DATA, schedule=[sam(2)], out="~/runs/x")
    assert run.path == tmp_path / "runs" / "x" and fl.load_run("~/runs/x").final == run.final
    assert not (tmp_path / "~").exists()
    on = fl.train(ARCH, DATA, schedule=[sam(2)], start="~/runs/x")
    assert on.config.start["run"] == str(run.path)


def test_a_text_that_no_file_holds_is_refused_before_anything_is_written(tmp_path):
    measures = fl.Tracked("lambda_max", label="\udcff")
    with pytest.raises(UserError, match=r"UTF-8 text, which cannot hold .*label.*udcff"):
        fl.train(ARCH, DATA, schedule=[sam(2)], measures=measures, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_pipe_in_place_of_the_result_costs_nothing(tmp_path):
    run = fl.train(ARCH, DATA, schedule=[sam(2)], out=tmp_path)
    (tmp_path / "result.json").unlink()
    os.mkfifo(tmp_path / "result.json")
    found = fl.load_run(tmp_path)
    assert found.final == run.final and "result.json is damaged (a pipe" in found.notes[0]
    assert fl.train(ARCH, DATA, schedule=[sam(2)], out=tmp_path).status == "done"
    assert (tmp_path / "result.json").is_file()
