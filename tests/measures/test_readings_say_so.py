"""A reading names its measure, its limit, its precision, its matrix and its parameters."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import flatlab as fl
from flatlab.errors import UserError
from flatlab.measures import CATALOGUE, About, Measured, measuring, named
from flatlab.measures.catalogue import choose, name_of
from flatlab.measures.eigenvalues import LambdaMax
from flatlab.measures.explaining import facts
from flatlab.measures.measuring import seconds_left
from flatlab.measures.trace import Trace
from flatlab.outside import progress
from flatlab.outside.progress import time_left

CE = nn.CrossEntropyLoss()


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def case(n=60, width=8, dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3)).to(dtype)
        return model, (torch.randn(n, 5).to(dtype), torch.randint(0, 3, (n,)))


@dataclasses.dataclass(frozen=True)
class Mine:
    """A measure of one's own."""

    factor: float = 1.0
    about = About(
        "m",
        "mine",
        "m",
        "nothing",
        "nothing",
        exact="yes",
        permutation="moves",
    )

    def read(self, problem, effort):
        return Measured(self.factor, exact=True, method="mine")


class Plain:
    """A measure that is no dataclass."""

    about = Mine.about

    def read(self, problem, effort):
        return Measured(3.0, complete=False, method="plain")


def test_two_measures_of_one_class_keep_their_names():
    model, data = case()
    two = [LambdaMax(tolerance=1e-2), LambdaMax(tolerance=1e-5), Mine(), Mine(factor=2.0)]
    found = fl.measure(model, CE, data, two)
    assert list(found) == [
        "lambda_max:tolerance=0.01", "lambda_max:tolerance=1e-05", "Mine", "Mine:factor=2.0",
    ]  # fmt: skip
    assert found["Mine:factor=2.0"].value == 2.0
    with pytest.raises(UserError, match="two different measures are called 'Plain'"):
        fl.measure(model, CE, data, [Plain(), Plain()])
    assert "stopped early" in str(fl.measure(model, CE, data, Plain())["Plain"])


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_name_reads_back(name):
    assert named(name_of(CATALOGUE[name])) == CATALOGUE[name]


def test_what_may_be_written_for_measures():
    assert list(choose({"a": "trace", "b": Trace()})) == ["a", "b"]
    assert list(choose("trace,margin")) == ["trace", "margin"]
    assert list(choose(name for name in ["trace"])) == ["trace"]
    assert set(choose(["all", "top_k:k=2"])) == {*CATALOGUE, "top_k:k=2"}
    assert list(choose(["trace", Trace()])) == ["trace"]


def test_numbers_of_numpy_are_numbers():
    model, data = case()
    for budget in (np.float32(60), np.int64(60), fl.Budget(products=np.int64(500))):
        found = fl.measure(model, CE, data, "trace", budget=budget, seed=np.int64(3))
        assert found["trace"].complete


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_16_bits_is_measured_in_32(dtype):
    model, data = case(dtype=dtype)
    names = ["trace", "lambda_max", "frobenius", "average_sharpness"]
    found = fl.measure(model, CE, data, names)
    raised = fl.measure(case(dtype=dtype)[0].float(), CE, data, names)
    for name in names:
        assert found[name].value == raised[name].value
    card = found["trace"].card
    assert (card.dtype, card.model_dtype) == ("float32", str(dtype).removeprefix("torch."))
    assert f"float32 (the model is {card.model_dtype})" in str(found)
    assert json.loads(found.to_json())["trace"]["card"]["model_dtype"] == card.model_dtype
    assert next(model.parameters()).dtype == dtype
    tracker = fl.Tracker("trace", loss=CE, data=data)
    assert tracker(model, 0)["trace"].value == raised["trace"].value
    assert fl.measure(model, CE, data, "trace", dtype="float64")["trace"].card.dtype == "float64"


def test_which_limit_stopped_it():
    model, data = case()
    own = "average_sharpness:max_products=10"
    assert fl.measure(model, CE, data, own)[own].stopped == "max_products=10 was reached"
    cut = fl.measure(model, CE, data, own, budget=fl.Budget(products=5))
    assert cut[own].stopped == "the budget of 5 products was spent"
    assert "stopped early: the budget of 5 products was spent" in cut.rows()[0]["method"]
    own = "spectrum:method=lanczos"  # 8 × 40 products
    whole = fl.measure(model, CE, data, own, budget=fl.Budget(products=320))[own]
    assert whole.card.products == 320 and whole.complete and not whole.stopped


def test_an_unknown_error_is_not_left_out():
    model, data = case()
    cut = fl.measure(model, CE, data, "trace")["trace"]
    endless = dataclasses.replace(cut, stderr=float("inf"), exact=False)
    assert endless.text().endswith("± ∞")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lambda_max", "vᵀ∇²L v"),
        ("fisher_lambda_max", "vᵀA v, with A = (1/n) Σ ∇ℓ_i ∇ℓ_iᵀ"),
        ("gram_trace", "Tr A, with A = (1/n) Σ J_iᵀ J_i"),
        ("ggn_diagonal", "A_jj for every parameter j, with A = (1/n) Σ J_iᵀ (∂²ℓ_i/∂f²) J_i"),
        ("gram_spectrum", "N(λ; λ_i, σ²), with λ_i the eigenvalues of A and A = (1/n) Σ J_iᵀ J_i"),
        ("lambda_max:matrix=fisher", "the empirical Fisher"),
    ],
)
def test_a_formula_names_its_own_matrix(name, says):
    formula = facts(name)["formula"]
    assert says in formula
    assert name == "lambda_max" or ("∇²L" not in formula and "∂²L" not in formula)


def test_the_tracker_says_which_parameters():
    model, data = case()
    for readings in (
        fl.Tracker("trace", loss=CE, data=data, params="0.*")(model, 0),
        fl.measure(model, CE, data, "trace", params="0.*"),
    ):
        assert "parameters '0.*' (48 numbers)" in readings.footnote()


def test_the_tracker_takes_a_reference_and_skips():
    model, data = case()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    tracker = fl.Tracker(["distance", "path_norm"], loss=CE, data=data, reference=start)
    with torch.no_grad():
        model[0].weight += 0.5
    assert tracker(model, 0)["distance"].value == pytest.approx(0.5 * 40**0.5, rel=1e-5)
    tracker = fl.Tracker(["distance", "trace"], loss=CE, data=data, skip=True)
    found = tracker(model, 0)
    assert list(found) == ["trace"] and "reference" in found.skipped["distance"]
    assert list(tracker.history) == ["step", "trace", "trace_stderr"]
    assert "distance" in tracker.readings[0][1].skipped


def test_the_tracker_follows_a_model_that_changes_its_size():
    _, data = case()
    tracker = fl.Tracker("lambda_max:tolerance=1e-6", loss=CE, data=data, dtype="float64")
    for step, width in enumerate((8, 11, 8)):
        model, _ = case(width=width)
        (found,) = tracker(model, step).values()
        (cold,) = fl.measure(model, CE, data, "lambda_max:tolerance=1e-6", dtype="float64").values()
        assert found.value == pytest.approx(cold.value, rel=1e-5)


def test_the_time_left():
    assert seconds_left(10.0, 5, 20, guess=99.0) == 30.0  # at its own pace
    assert seconds_left(0.1, 0, 20, guess=1.0) == 20.0  # before the first product
    assert time_left(3700.0, 0.0) == "1:01:40 left"


def test_the_bar_shows_a_time_left_from_the_start_to_the_end(capsys, clock, monkeypatch):
    """The end is known before the first product and when more come than were expected."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    watch, told = clock(measuring, progress), []

    @dataclasses.dataclass(frozen=True)
    class Growing(Mine):
        def read(self, problem, effort):
            effort.expect(2)
            for i in range(4):
                watch.now += 1
                effort.spend()
                effort.expect(4 + i)
            return Measured(1.0, exact=True)

    model, data = case()
    fl.measure(model, CE, data, Growing(), progress=True)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().err)  # without colours
    assert "4 products 00:03 left" in shown
    fl.measure(model, CE, data, Growing(), report=told.append)
    assert capsys.readouterr().err == ""  # the caller draws
    assert len(told) == 9 and None not in [info["left"] for info in told]
    assert [info["products"] for info in told][-1] == 4 and told[0]["of"] == 1
    with pytest.raises(UserError, match="report must be a function"):
        fl.measure(model, CE, data, Growing(), report=5)


def test_every_printed_number_of_an_estimate_has_its_error():
    model, given = case()
    wanted = ["layer_trace:method=probes", "diagonal:method=probes", "layer_trace", "diagonal"]
    layers, entries, *exact = fl.measure(model, CE, given, wanted).values()
    assert layers.text().count("±") == len(layers.labels) == 2
    assert f"each ± at most {np.max(entries.stderr):.1g}" in entries.text()
    assert not any("±" in reading.text() for reading in exact)


def test_an_exact_negative_number_has_error_zero_not_minus_zero():
    found = fl.measure(*case()[:1], CE, case()[1], "lambda_min:method=dense")
    assert found["lambda_min:method=dense"].value < 0
    assert str(found["lambda_min:method=dense"].stderr) == "0.0"
