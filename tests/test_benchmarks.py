"""The benchmarks compare like with like, and answer in the documented shape. Nothing is timed."""

import dataclasses
import doctest
import importlib.util
import json
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[1] / "benchmarks" / "run.py"
_SPEC = importlib.util.spec_from_file_location("benchmarks_run", _FILE)
run = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(run)

from benchmarks import cases, eager, jax_scan, memory, rows, scaling, steps  # noqa: E402

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
            phase = dataclasses.replace(case.phase, rho=0.0)
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


def test_jax_is_skipped_with_one_line_when_it_is_not_installed(monkeypatch, capsys):
    monkeypatch.setattr(jax_scan, "installed", lambda: False)
    [row] = run.main(["--only", "jax"])["benchmarks"]
    assert row["what"] == "skipped: jax is not installed"
    assert [row[key] for key in KEYS[2:]] == [None] * 5
    assert "skipped: jax is not installed" in capsys.readouterr().out


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
