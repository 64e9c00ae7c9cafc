"""The benchmarks compare like with like, and answer in the documented shape. Nothing is timed."""

import dataclasses
import doctest
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

_FILE = Path(__file__).parents[1] / "benchmarks" / "run.py"
_SPEC = importlib.util.spec_from_file_location("benchmarks_run", _FILE)
run = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(run)

from benchmarks import (  # noqa: E402
    cases,
    costs,
    eager,
    figures,
    idle,
    jax_scan,
    measure_memory,
    measures,
    memory,
    ray_jobs,
    rows,
    sam_step,
    scaling,
    steps,
    trainers,
    vgg,
)

from flatlab.data.catalogue import make  # noqa: E402
from flatlab.engine import CompiledTrainer  # noqa: E402
from flatlab.experiments import CATALOGUE  # noqa: E402
from flatlab.jobs import costs as flatlab_costs  # noqa: E402
from flatlab.training.torch_trainer import TorchTrainer  # noqa: E402

# Rounding in float64 over at most 100 steps; weights are of order 1.
TOLERANCE = 1e-9
KEYS = ["name", "what", "value", "unit", "ratio", "target", "reached"]


def after(contender, epochs):
    with run.one_thread():
        contender.reset()
        contender.run(epochs)
    contender.check()
    return contender.params()


def assert_same_updates(case, contender):
    epochs = -(-10 // case.steps_per_epoch)
    ours = after(cases.Engine(case, "float64"), epochs)
    theirs = after(contender(case, "float64"), epochs)
    assert {name: value.shape for name, value in theirs.items()} == case.arch.shapes(case.d)
    assert cases.disagreement(ours, theirs) <= TOLERANCE
    # Both moved: agreement at the start would be no evidence.
    assert cases.disagreement(ours, case.start()) > 1e-4


@pytest.mark.parametrize("name", cases.CASES)
def test_eager_loop_takes_the_steps_of_the_engine(name):
    assert_same_updates(cases.CASES[name], eager.Eager)


@pytest.mark.skipif(not jax_scan.installed(), reason="jax is not installed")
def test_jax_loop_takes_the_steps_of_the_engine():
    assert_same_updates(cases.CASES["sam"], jax_scan.Scan)


def test_reset_gives_the_same_run_again():
    contenders = [cases.Engine(cases.CASES["sam"]), eager.Eager(cases.CASES["sam"])]
    for contender in contenders:
        assert cases.disagreement(after(contender, 1), after(contender, 1)) == 0


def test_a_wrong_competitor_is_not_timed():
    case = cases.CASES["sam"]

    class WithoutAscent(eager.Eager):
        def __init__(self, case, dtype):
            phase = case.phase.changed(rho=0.0)
            super().__init__(dataclasses.replace(case, phase=phase), dtype)

    with pytest.raises(RuntimeError, match="differ by"):
        steps.require_agreement(case, WithoutAscent, "a wrong loop")


def test_a_diverged_run_is_not_timed():
    case = cases.CASES["sam"]
    wild = dataclasses.replace(case, phase=cases.one_sam(lr=1e3))
    for contender in (cases.Engine(wild), eager.Eager(wild)):
        with pytest.raises(FloatingPointError, match="diverged"):
            after(contender, 1)


@pytest.mark.parametrize("size", [(500, 30), (1000, 30), (500, 100)])
def test_scaling_cases_have_the_size_they_say(size):
    case = scaling.case(*size)
    assert case.arch.shapes(case.d)["W1"] == size
    assert case.data.x_train.shape == (100, size[1])


def test_json_has_the_documented_shape(capsys):
    answer = run.main(["--only", "gd", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed == answer
    assert list(printed) == ["machine", "benchmarks"]
    assert printed["machine"]["cores"] >= 1
    assert [row["name"] for row in printed["benchmarks"]] == ["gd", "gd"]
    for row in printed["benchmarks"]:
        assert list(row) == KEYS
        assert row["value"] > 0 and row["unit"] == "µs/step"


@pytest.mark.parametrize(("name", "module"), [("jax", jax_scan), ("ray", ray_jobs)])
def test_what_is_not_installed_is_skipped_with_one_line(name, module, monkeypatch, capsys):
    monkeypatch.setattr(module, "installed", lambda: False)
    [row] = run.main(["--only", name])["benchmarks"]
    assert row["what"] == f"skipped: {name} is not installed"
    assert [row[key] for key in KEYS[2:]] == [None] * 5
    assert f"skipped: {name} is not installed" in capsys.readouterr().out


def test_jobs_that_fail_are_not_timed(monkeypatch):
    monkeypatch.setattr(ray_jobs, "JOBS", 2)
    assert ray_jobs._seconds(0) > 0
    monkeypatch.setattr(idle, "nothing", None)
    with pytest.raises(RuntimeError, match=r"a job failed: benchmarks.idle has no function"):
        ray_jobs._seconds(0)


def test_unknown_benchmark_is_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        run.main(["--only", "nothing"])
    assert refused.value.code == 2
    assert "sim_bn" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "value", "ratio", "reached"),
    [
        (rows.Target("ratio", ">=", 400), 1.0, 400.0, True),
        (rows.Target("ratio", ">=", 400), 1.0, 399.0, False),
        (rows.Target("value", "<", 2), 2.0, None, False),
        (rows.Target("ratio", "<=", 1.1), None, None, False),
        (None, 1.0, 1.0, None),
    ],
)
def test_reached(target, value, ratio, reached):
    assert rows.Row("name", "what", value, "unit", ratio, target).reached is reached


def test_examples_in_the_docstrings():
    assert doctest.testmod(rows).failed == 0


def test_peak_memory_is_at_least_the_interpreter():
    assert memory.peak_mebibytes() > 10


# Figures: extrapolated from a few epochs


def test_a_figures_seconds_are_extrapolated_to_the_papers_epochs():
    row = figures.figure(CATALOGUE["wen2023/fig4"], epochs=2)
    # 100,000 epochs of gradient descent, 200,000 and then 400,000 of 1-SAM; two of each are timed.
    assert "700,000 epochs, extrapolated from 6" in row.what and "84 hours" in row.what
    # 12 hours per 100,000 epochs; only rounding between the two forms.
    assert row.ratio * row.value == pytest.approx(84 * 3600, rel=1e-12)
    assert (row.name, row.unit) == ("figures", "s")


def test_the_trainer_is_the_one_a_run_would_have():
    for config in costs.configs():
        made = trainers.trainer_of(config, make(config.data))
        by_torch = config.loss.name == "truncated_mse"  # the engine has no kernel for it
        assert isinstance(made, TorchTrainer if by_torch else CompiledTrainer)
    made.load({name: np.nan * value for name, value in made.state().items()})
    with pytest.raises(FloatingPointError, match="diverged"):
        trainers.require_finite(made, config)


def test_an_experiment_whose_source_says_no_hours_has_no_row():
    experiment = CATALOGUE["wen2023/fig4"]
    assert figures.figure(dataclasses.replace(experiment, id="elsewhere/fig4")) is None
    assert figures.figure(dataclasses.replace(experiment, plan=lambda settings: [])) is None


# Costs: the constants of `flatlab.jobs.costs` are fitted to what is timed


def test_the_fit_finds_constants_it_was_made_from():
    exact = (500.0, 0.25, 0.01, 3.0)
    sizes = [(w, m, e) for w in (1e3, 1e4, 1e5) for m in (50, 400) for e in (1, 10, 100)]
    rows = [flatlab_costs.counts_of(*size) for size in sizes]
    seconds = [1e-9 * sum(a * b for a, b in zip(exact, row, strict=True)) for row in rows]
    found, wrong = costs.fit(rows, seconds)
    # Printed to three digits; the fit itself is exact but for rounding.
    assert found == pytest.approx(exact, rel=5e-3) and wrong < 1e-6


def test_every_kind_of_update_is_timed():
    kinds = {flatlab_costs.kind_of(config, config.schedule[0]) for config in costs.configs()}
    assert kinds == set(flatlab_costs.CONSTANTS)


MEASURING = {
    "trace": lambda: measures.trace(quiet, "He", n=12, probes=4),
    "lambda_max": lambda: measures.lambda_max(quiet, "default", n=12, starts=1),
    "sam_step": lambda: sam_step.benchmark(quiet, batch=8, rounds=1),
    "measure_memory": lambda: measure_memory.benchmark(quiet, warm_up=1, repeats=1),
}


def quiet(message):
    pass


@pytest.fixture
def noise_images(monkeypatch):
    monkeypatch.delenv("FLATLAB_DATA", raising=False)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n == "lambda_max" else ()) for n in MEASURING],
)
def test_measuring_benchmarks_run_at_a_tiny_size(name, noise_images):
    """Every row has a figure or says that it was skipped; what was judged has its target."""
    assert name in run.BENCHMARKS
    with run.one_thread():
        found = MEASURING[name]()
    assert {row.name for row in found} == {name}
    for row in found:
        assert row.what.startswith("skipped: ") or (row.value is not None and row.unit)
    if not any(row.value is None for row in found):
        assert any(row.target is not None for row in found)


@pytest.mark.parametrize(
    ("module", "names", "peer"),
    [
        pytest.param(measures, ["trace", "lambda_max"], "pyhessian", marks=pytest.mark.slow),
        (sam_step, ["sam_step"], "pytorch_optimizer"),
    ],
)
def test_a_peer_that_is_not_installed_is_one_skipped_row(
    module, names, peer, monkeypatch, noise_images
):
    monkeypatch.setattr(module, "installed", lambda: False)
    for name in names:
        with run.one_thread():
            *ours, last = MEASURING[name]()
        assert last.what == f"skipped: {peer} is not installed" and last.value is None
        assert all(row.value > 0 for row in ours)


@pytest.mark.skipif(not sam_step.installed(), reason="pytorch_optimizer is not installed")
def test_a_sam_with_another_radius_is_not_timed(monkeypatch, noise_images):
    sam_step.require_agreement(4)
    ours = sam_step.SAM
    monkeypatch.setattr(sam_step, "SAM", lambda params, rho, lr: ours(params, rho=2 * rho, lr=lr))
    with pytest.raises(RuntimeError, match="differ by"):
        sam_step.require_agreement(4)


def test_vgg_is_seeded_and_has_the_size_it_says(noise_images):
    assert doctest.testmod(vgg).failed == 0
    assert doctest.testmod(measures).failed == 0
    x, y, what = vgg.images(5)
    assert (x.shape, y.shape, what) == ((5, 3, 32, 32), (5,), "noise images")
    assert vgg.images(5)[0].equal(x)
    one, two = (dict(vgg.network().named_parameters()) for _ in range(2))
    assert all(one[name].equal(two[name]) for name in one)


def test_images_are_cifars_where_there_are_some(tmp_path, monkeypatch):
    """Pixels of each channel have mean 0 and deviation 1."""
    x = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    y = np.arange(12, dtype=np.uint8) % 10
    np.savez(tmp_path / "cifar10_subset.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    monkeypatch.setenv("FLATLAB_DATA", str(tmp_path))
    pixels, labels, what = vgg.images(10)
    assert what == "CIFAR-10" and labels.tolist() == list(range(10))
    green = x[:10, ..., 1]
    expected = (green[2, 5, 7] - green.mean()) / green.std()
    assert pixels[2, 1, 5, 7].item() == pytest.approx(expected, abs=1e-6)  # float32
