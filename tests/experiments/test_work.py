"""An experiment of training runs, measurements and computations, some of them after others."""

import dataclasses
import json

import numpy as np
import pytest

import flatlab as fl
from flatlab.errors import StoreError
from flatlab.experiments import (
    Computation,
    Experiment,
    Findings,
    Planned,
    catalogue,
    measurement,
    run,
)
from flatlab.experiments.judging import below
from flatlab.experiments.work import planned_work
from flatlab.files.documents import read_document, write_document
from flatlab.models import TwoLayer
from flatlab.outside.tables import markdown
from flatlab.specs import spec
from flatlab.training.config import RunConfig
from flatlab.training.run import load_run, params_digest
from flatlab.training.schedule import Phase


@spec
class Settings:
    epochs: int = 4
    x: int = 3


def config(epochs, rho=0.05):
    data = {"name": "xor", "d": 4, "n": 8, "seed": 0, "n_test": 10}
    phase = Phase("sam", lr=0.01, rho=rho, batch_size=1, epochs=epochs)
    return RunConfig(TwoLayer(width=6), data, (phase,))


def plan(s):
    """Return the work in an order in which nothing follows what it comes after."""
    return [
        Computation("sum", "computations_for_tests:add_to_result_before", {"x": 1}, after="square"),
        measurement("sharp", "second", ["trace"]),
        Planned("second", config(s.epochs, rho=0.2), after="first"),
        Planned("first", config(s.epochs)),
        Computation("square", "computations_for_tests:square", {"x": s.x}),
    ]


def analyse(s, preset, made):
    values = [made["sum"].result["sum"]] if "sum" in made else []
    verdict = below("made.sum", "the sum is small", values, 100.0, decisive=True)
    return Findings((verdict,), {}, (), finding=f"{sorted(made)}")


MIXED = Experiment(
    "made/mixed", "Nobody", "Figure 0", "a claim", {"lab": Settings()}, plan, analyse, __name__
)
NAMES = {"first", "second", "sharp", "square", "sum"}


@pytest.fixture
def mixed(monkeypatch):
    """Put an experiment into the catalogue; by default `MIXED`."""

    def put(plan=plan):
        entry = dataclasses.replace(MIXED, plan=plan)
        monkeypatch.setattr(catalogue, "CATALOGUE", {entry.id: entry})
        return entry

    put()
    return put


def do(out, **options):
    """Return the results, and the names of the jobs that were started and of those reused."""
    names = {"started": [], "reused": []}

    def on_event(job, kind, info):
        names.get(kind, []).append(job.name)

    found = run("made/mixed", "lab", out=out, on_event=on_event, **{"workers": 0, **options})
    return found, names["started"], names["reused"]


def paths(out, found):
    return {record.name: out / record.path for record in found.runs}


@pytest.mark.parametrize("workers", [0, 2])
def test_all_kinds_of_work_are_done_in_their_order_and_found_again(mixed, tmp_path, workers):
    found, started, reused = do(tmp_path, workers=workers)
    assert found.status == "done" and set(started) == NAMES and reused == []
    assert started.index("first") < started.index("second") < started.index("sharp")
    assert started.index("square") < started.index("sum")
    kinds = {record.name: record.kind for record in found.runs}
    assert kinds == dict.fromkeys(NAMES, "computation") | dict.fromkeys(
        ("first", "second"), "training"
    )
    assert all(record.status == "done" and record.seconds >= 0 for record in found.runs)
    assert found.epochs == 8 and found.verdicts[0].verdict == "holds"
    assert found.verdicts[0].measured == 3**2 + 1
    again, started, reused = do(tmp_path, workers=workers)
    assert started == [] and set(reused) == NAMES
    assert again.verdicts == found.verdicts
    assert [record.sha256 for record in again.runs] == [record.sha256 for record in found.runs]
    _, started, _ = do(tmp_path, workers=workers, fresh=True)
    assert set(started) == NAMES


def test_a_run_after_another_starts_from_its_end(mixed, tmp_path):
    found, _, _ = do(tmp_path)
    where = paths(tmp_path, found)
    first, second = load_run(where["first"]), load_run(where["second"])
    assert second.config.start["sha256"] == params_digest(first.params)
    assert second.columns["train_loss"][0] == first.columns["train_loss"][-1]
    assert params_digest(second.params) != params_digest(first.params)


def test_a_measurement_is_that_of_the_run_it_comes_after(mixed, tmp_path):
    found, _, _ = do(tmp_path)
    where = paths(tmp_path, found)
    stored = read_document(where["sharp"] / "result.json")["result"]["measures"]["trace"]
    second = load_run(where["second"])
    direct = fl.measure(second.module(), second.config.loss, second.dataset(), "trace")
    assert stored["value"] == direct["trace"].value  # the same numbers in the same order
    np.testing.assert_allclose(stored["value"], second.final["trace"], rtol=1e-5)  # float32


def test_what_depends_on_a_change_is_done_again_and_nothing_else(mixed, tmp_path):
    do(tmp_path)
    _, started, reused = do(tmp_path, changes={"x": 5})
    assert (set(started), set(reused)) == ({"square", "sum"}, {"first", "second", "sharp"})
    _, started, _ = do(tmp_path, changes={"epochs": 2})
    assert set(started) == {"first", "second", "sharp"}


def test_a_folder_that_was_moved_still_holds_its_work(mixed, tmp_path):
    do(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    _, started, reused = do(tmp_path / "there")
    assert started == [] and set(reused) == NAMES


def test_a_computation_that_was_interrupted_continues(mixed, tmp_path):
    mark = {"mark": str(tmp_path / "mark")}
    once = Computation("once", "computations_for_tests:interrupt_once", mark, after="square")
    mixed(lambda s: [*plan(s), once])
    out = tmp_path / "out"
    found, _, _ = do(out)
    assert found.status == "interrupted" and found.experiments == ()
    assert not list(out.glob("*/results.json"))
    assert {r.status for r in found.runs if r.name == "once"} == {"interrupted"}
    found, started, reused = do(out)
    assert found.status == "done" and "once" in started and "square" in reused
    assert found.verdicts[0].verdict == "holds"


def test_a_run_after_another_that_was_interrupted_ends_in_the_same_bits(
    mixed, tmp_path, monkeypatch
):
    monkeypatch.setenv("FLATLAB_CHECKPOINT_SECONDS", "0")
    whole, _, _ = do(tmp_path / "whole", changes={"epochs": 40})

    def stop(job, kind, info):
        if job.name == "second" and kind == "progress" and info["epoch"] >= 10:
            raise KeyboardInterrupt

    cut = run(
        "made/mixed", "lab", out=tmp_path / "cut", changes={"epochs": 40}, workers=0, on_event=stop
    )
    assert cut.status == "interrupted"
    begun = load_run(paths(tmp_path / "cut", cut)["second"])
    assert begun.status == "interrupted" and 0 < begun.columns["epoch"][-1] < 40
    found, started, _ = do(tmp_path / "cut", changes={"epochs": 40})
    assert "second" in started and "first" not in started
    ends = [
        params_digest(load_run(paths(out, made)["second"]).params)
        for out, made in ((tmp_path / "whole", whole), (tmp_path / "cut", found))
    ]
    assert ends[0] == ends[1]


def test_what_comes_after_a_failure_fails_unstarted_and_nothing_is_decided(mixed, tmp_path):
    needs = {"needs": str(tmp_path / "needed")}
    late = Computation("late", "computations_for_tests:fail_unless_there", needs)
    mixed(lambda s: [*plan(s), late, dataclasses.replace(plan(s)[0], name="later", after="late")])
    found, started, _ = do(tmp_path / "out")
    errors = {record.name: record.error for record in found.failed}
    assert errors.keys() == {"late", "later"} and "later" not in started
    assert errors["late"] == "ValueError: not yet there"
    assert errors["later"].endswith("failed: ValueError: not yet there")
    assert found.verdicts[0].reason == "nothing is decided without 2 of 7 runs: late, later"
    assert found.left_out[0].reason == "these runs failed: late, later"


def test_nothing_goes_on_from_a_run_that_diverged(mixed, tmp_path):
    wild = dataclasses.replace(config(3), schedule=(Phase("sgd", lr=1e30, batch_size=1, epochs=3),))
    mixed(lambda s: [Planned("wild", wild), Planned("tame", config(3), after="wild")])
    found, _, _ = do(tmp_path)
    assert [record.status for record in found.runs] == ["diverged", "failed"]
    assert "has no end to go on from" in found.failed[0].error and found.failed[0].exit_code == 3


def test_a_damaged_result_is_made_again(mixed, tmp_path):
    found, _, _ = do(tmp_path)
    path = paths(tmp_path, found)["square"] / "result.json"
    text = path.read_text()
    assert '"square": 9' in text
    path.write_text(text.replace('"square": 9', '"square": 8'))
    with pytest.raises(StoreError, match="checksum"):
        read_document(path)
    again, started, _ = do(tmp_path, fresh=False)
    assert "square" in started
    assert path.read_text().count('"square": 9') == 1
    assert again.verdicts == found.verdicts


@pytest.mark.parametrize("name", ["history.parquet", "result.json"])
def test_a_file_that_a_kill_at_the_end_of_a_run_left_unwritten_is_written(mixed, tmp_path, name):
    found, _, _ = do(tmp_path)
    path = paths(tmp_path, found)["second"]
    before = (path / "checkpoint.safetensors").read_bytes()
    (path / name).unlink()
    again, started, _ = do(tmp_path)
    assert (path / name).exists() and "second" in started and "first" not in started
    assert (path / "checkpoint.safetensors").read_bytes() == before  # and nothing is trained
    assert again.verdicts == found.verdicts


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"document": 1}', "nonsense", "[" * 100_000])
def test_a_document_that_is_none_is_reported_by_name(tmp_path, text):
    path = tmp_path / "result.json"
    write_document(path, {"a": float("nan"), "b": [0.1 + 0.2, True]})
    assert read_document(path) == {"a": None, "b": [0.1 + 0.2, True]}
    path.write_text(text)
    with pytest.raises(StoreError, match=r"result\.json is damaged .*--fresh"):
        read_document(path)


@pytest.mark.parametrize(
    "target, words",
    [
        ("computations_for_tests:no_dict", "must return a dict, got int"),
        ("computations_for_tests:nothing", "has no function 'nothing'"),
        ("no_such_module:f", "cannot import no_such_module"),
        ("square", "a function is written package.module:function"),
    ],
)
def test_a_function_that_is_none_is_said_so(mixed, tmp_path, target, words):
    mixed(lambda s: [Computation("bad", target, {})])
    found, _, _ = do(tmp_path)
    assert words in found.runs[0].error and found.runs[0].exit_code == 2


@pytest.mark.parametrize("after", ["nothing", "one"])
def test_work_that_comes_after_nothing_planned_is_a_mistake_of_the_plan(after):
    one = Computation("one", "computations_for_tests:square", {"x": 1}, after=after)
    with pytest.raises(ValueError, match=f"one cannot come after '{after}'"):
        planned_work(dataclasses.replace(MIXED, plan=lambda s: [one]), None)


def test_computations_count_in_a_budget_by_their_expected_seconds(mixed, tmp_path):
    long = dataclasses.replace(plan(Settings())[-1], name="long", seconds=1e6)
    mixed(lambda s: [long])
    found, started, _ = do(tmp_path, budget=60.0, workers=1)
    assert started == [] and "did not fit the budget" in found.left_out[0].reason


def test_the_page_and_the_command_line_take_them(mixed, main, tmp_path):
    code, out, err = main("run", "made/mixed", "--jobs", "1", "--json")
    assert (code, err) == (0, "")
    assert {record["kind"] for record in json.loads(out)["runs"]} == {"training", "computation"}
    assert "5 runs" in (tmp_path / "results" / "made-mixed-lab" / "results.md").read_text()
    assert markdown([]) == "(empty)"
