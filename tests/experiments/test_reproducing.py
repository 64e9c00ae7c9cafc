"""Reproducing a small made-up source: choosing, sharing, stopping, and what is written."""

import csv
import dataclasses
import hashlib
import json
from typing import Annotated

import pytest
from pydantic import Field

from flatlab import report
from flatlab.cli import progress
from flatlab.errors import BusyError, UserError
from flatlab.experiments import pool, reproducing
from flatlab.experiments.budget import Offer, everything, makespan, parse_budget, within
from flatlab.experiments.contract import Experiment, Findings, Planned
from flatlab.experiments.judging import below
from flatlab.experiments.pool import slots
from flatlab.experiments.reproducing import find_source, prepare
from flatlab.files.store import RunStore
from flatlab.jobs import run_jobs
from flatlab.models import TwoLayer
from flatlab.plots import Curve, Curves, Plot, Reference
from flatlab.specs import spec
from flatlab.training.config import RunConfig
from flatlab.training.run import load_run
from flatlab.training.schedule import Phase
from flatlab.training.session import run_config

# Budgets and choices


@pytest.mark.parametrize(
    "text, seconds",
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("0.5m", 30), (" 5s ", 5)],
)
def test_budgets_read_as_people_write_them(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "30 minutes", "m", "-5s", "0s", "1e3s", "5s later"])
def test_a_budget_that_is_none_is_refused_with_examples(text):
    with pytest.raises(UserError, match="budget") as refused:
        parse_budget(text)
    assert repr(text) in str(refused.value)


def test_everything_is_the_longest_first_whatever_the_experiment():
    offers = [Offer("a", (("x", "done"),), 1, 1), Offer("b", (("y", "z", "x"),), 1, 1)]
    choice = everything(offers, {"x": 2.0, "y": 5.0, "z": 3.0})
    assert choice.order == ("y", "z", "x")


def offer(id, *levels, undecided=1, verdicts=1):
    return Offer(id, tuple(tuple(level.split()) for level in levels), undecided, verdicts)


def test_the_cheapest_a_verdict_comes_first_and_what_does_not_fit_is_left():
    seconds = {"a0": 6.0, "b0": 4.0, "c0": 9.0}
    offers = [offer("a", "a0", undecided=3), offer("b", "b0"), offer("c", "c0")]
    assert within(offers, seconds, 10, 1).order == ("a0", "b0")  # 2, 4 and 9 seconds a verdict
    assert dict(within(offers, seconds, 10, 1).levels) == {"a": 1, "b": 1, "c": 0}
    assert dict(within(offers, seconds, 10, 2).levels) == {"a": 1, "b": 1, "c": 0}
    assert dict(within(offers, seconds, 13, 2).levels) == {"a": 1, "b": 1, "c": 1}
    assert within(offers, seconds, 3, 2).order == ()


def test_one_seed_of_everything_goes_before_a_second_of_anything():
    seconds = {"a0": 1.0, "a1": 1.0, "b0": 5.0, "b1": 5.0}
    offers = [offer("a", "a0", "a0 a1"), offer("b", "b0", "b0 b1")]
    assert within(offers, seconds, 100, 1).order == ("a0", "b0", "a1", "b1")
    cut = within(offers, seconds, 7, 1)
    assert (cut.order, dict(cut.levels)) == (("a0", "b0", "a1"), {"a": 2, "b": 1})


def test_a_shared_run_is_paid_for_once_and_a_finished_one_never():
    offers = [offer("a", "done shared"), offer("b", "shared b0")]
    choice = within(offers, {"shared": 6.0, "b0": 3.0}, 9, 1)
    assert (choice.order, dict(choice.levels)) == (("shared", "b0"), {"a": 1, "b": 1})
    assert dict(within([offer("c", "done")], {}, 0.0, 1).levels) == {"c": 1}


def test_jobs_go_to_the_worker_that_is_free_first():
    assert makespan([], 2) == 0
    assert makespan([1.0, 1.0, 5.0], 2) == 6  # in their order, not in the best one


# A made-up source of two experiments that share a run, and a third without the preset lab


@spec
class Settings:
    seeds: Annotated[int, Field(gt=0)] = 2
    epochs: int = 3
    width: int = 6


def small(seed, s, rho=0.05):
    return RunConfig(
        TwoLayer(width=s.width),
        {"name": "xor", "d": 4, "n": 8, "seed": seed, "n_test": 10},
        (Phase("sam", lr=0.01, rho=rho, batch_size=1, epochs=s.epochs),),
        seed=seed,
    )


def experiment(id, radii, presets=None):
    name = id.partition("/")[2]

    def plan(s):
        return [
            Planned(f"{name}-{rho}-seed{seed}", small(seed, s, rho))
            for rho in radii
            for seed in range(s.seeds)
        ]

    def analyse(s, preset, runs):
        losses = [run.final["train_loss"] for run in runs.values()]
        verdict = below(f"made.{name}", "the loss | is small", losses, 100.0, decisive=True)
        series = tuple(
            Curve(n, n, r.columns["epoch"] * 1.0, r.columns["trace"][None]) for n, r in runs.items()
        )
        plot = Plot(name, "traces", ((Curves("t", "trace", series, (Reference("zero", 0.0),)),),))
        said = f"{len(runs)} runs of {s.seeds} seeds"
        return Findings((verdict,), {}, (plot,), (), said if runs else "")

    presets = presets or {"lab": Settings()}
    return Experiment(id, "Nobody", "Figure 0", "a claim", presets, plan, analyse, __name__)


@pytest.fixture
def source(monkeypatch):
    made = [
        experiment("made/one", (0.05, 0.1)),
        experiment("made/two", (0.05, 0.2)),
        experiment("made/three", (0.3,), {"quick": Settings()}),
    ]
    catalogue = {e.id: e for e in made}
    monkeypatch.setattr(reproducing, "CATALOGUE", catalogue)
    return catalogue


def reproduce(out, name="made", **options):
    events = []
    with prepare(name, "lab", out, **{"workers": 0, **options}) as prepared:
        made = prepared.run(lambda job, kind, info: events.append((job.name, kind)))
        found = report.write_reproduction(made) if made.status != "interrupted" else None
    return made, found, events


def test_a_source_is_found_by_its_name_an_experiment_by_its_id(source):
    assert [e.id for e in find_source("made")] == ["made/one", "made/two", "made/three"]
    assert [e.id for e in find_source("made/two")] == ["made/two"]
    with pytest.raises(UserError, match=r"unknown source 'mode': did you mean 'made'"):
        find_source("mode")


def test_runs_that_experiments_share_are_trained_once_and_reused_later(source, tmp_path):
    made, found, events = reproduce(tmp_path)
    assert made.status == "done" and len(made.slots) == 6  # 8 planned, 2 of them shared
    assert len(list((tmp_path / "runs").iterdir())) == 6
    assert sum(kind == "started" for _, kind in events) == 6
    assert [part["runs"] for part in found["experiments"]] == [4, 4]
    shared = [slot for slot in made.slots.values() if len(slot.names) == 2]
    assert {slot.names for slot in shared} == {
        (f"one-0.05-seed{seed}", f"two-0.05-seed{seed}") for seed in (0, 1)
    }
    again, later, events = reproduce(tmp_path)
    assert {kind for _, kind in events} == {"reused"} and len(events) == 6
    assert later["verdicts"] == found["verdicts"]
    assert later["training_seconds"] == found["training_seconds"]
    assert all(share.wall_seconds == 0 for share in again.shares)
    # The page can be drawn again without losing how long it took.
    walls = [(part["id"], part["wall_seconds"]) for part in found["experiments"]]
    assert [(part["id"], part["wall_seconds"]) for part in later["experiments"]] == walls
    assert all(seconds > 0 for _, seconds in walls)
    assert later["wall_seconds"] == found["wall_seconds"]
    assert later["epochs"] == found["epochs"] == 18


def test_an_experiment_without_the_preset_is_skipped_and_named(source, tmp_path):
    _, found, _ = reproduce(tmp_path)
    (skipped,) = found["left_out"]
    assert skipped["experiment"] == "made/three"
    assert skipped["reason"] == "it has no preset lab (it has quick)"
    with (
        pytest.raises(UserError, match="unknown preset 'paper'"),
        prepare("made", "paper", tmp_path),
    ):
        pass


def test_the_files_agree_with_each_other_and_with_the_runs(source, tmp_path):
    made, found, _ = reproduce(tmp_path)
    folder = tmp_path / "reproduce-made-lab"
    assert made.folder == folder
    document = json.loads((folder / "verdicts.json").read_text())
    assert document == json.loads(json.dumps(found))
    with open(folder / "verdicts.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(report.reproduction.COLUMNS)
    assert len(rows) == len(document["verdicts"]) == 2
    for row, verdict in zip(rows, document["verdicts"], strict=True):
        assert float(row["measured"]) == verdict["measured"]  # all digits
        assert row["verdict"] == verdict["verdict"] == "holds"
        assert (row["experiment"], row["preset"]) == (verdict["experiment"], "lab")
    page = (folder / "verdicts.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("| made.")]
    assert len(table) == 2 and all(line.count(" | ") == 10 for line in table)
    assert "the loss \\| is small" in page and "4 runs of 2 seeds" in page
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {run["name"] for run in manifest["runs"]} == {slot.name for slot in made.slots.values()}
    for run in manifest["runs"]:
        data = (tmp_path / run["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == run["sha256"]
        config = RunConfig.from_dict(RunStore.read((tmp_path / run["file"]).parent).config)
        assert config.digest() == run["digest"]
        assert run["status"] == "done" and run["experiments"]
    for part in document["experiments"]:
        for picture in part["pictures"]:
            assert (folder / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "null",
        "garbage",
        '{"experiments": [1]}',
        '{"experiments": [{"digests": []}]}',
        '{"experiments": [], "runs": [{}]}',
    ],
)
def test_a_manifest_of_another_form_tells_nothing_and_is_written_anew(source, tmp_path, text):
    _, found, _ = reproduce(tmp_path)
    manifest = tmp_path / "reproduce-made-lab" / "manifest.json"
    whole = json.loads(manifest.read_text())
    manifest.write_text(text)
    _, again, _ = reproduce(tmp_path)
    assert again["wall_seconds"] is None
    assert again["verdicts"] == found["verdicts"]
    written = json.loads(manifest.read_text())
    assert [run["digest"] for run in written["runs"]] == [run["digest"] for run in whole["runs"]]


def test_a_number_that_is_not_finite_is_none_in_every_file(source, tmp_path, monkeypatch):
    wrong = below("made.one", "nothing", [float("nan")], 1.0, decisive=False)
    only = source["made/one"]
    changed = reproducing.dataclasses.replace(
        only, analyse=lambda s, p, r: Findings((wrong,), {}, ())
    )
    monkeypatch.setitem(source, "made/one", changed)
    reproduce(tmp_path, "made/one")
    folder = tmp_path / "reproduce-made-one-lab"
    (row,) = json.loads((folder / "verdicts.json").read_text())["verdicts"]
    assert row["measured"] is None
    assert ",,,,not assessed" in (folder / "verdicts.csv").read_text()


def test_seeds_can_be_set(source, tmp_path):
    made, found, _ = reproduce(tmp_path, seeds=1)
    assert len(made.slots) == 3
    assert [part["seeds"] for part in found["experiments"]] == [1, 1]


def test_an_experiment_without_runs_and_seeds_is_analysed(source, tmp_path, monkeypatch):
    @spec
    class Sizes:
        d: int = 3

    none = reproducing.dataclasses.replace(
        source["made/one"],
        presets={"lab": Sizes()},
        plan=lambda s: [],
        analyse=lambda s, p, r: Findings(
            (below("made.one", "d", [float(s.d)], 4.0, decisive=True),), {}, ()
        ),
    )
    monkeypatch.setitem(source, "made/one", none)
    for budget in (None, 1000.0):
        _, found, _ = reproduce(tmp_path, "made/one", budget=budget, workers=1)
        assert [row["verdict"] for row in found["verdicts"]] == ["holds"]
        assert found["experiments"][0]["seeds"] is None and found["left_out"] == []
    with pytest.raises(UserError, match=r"made/one draws nothing and has no seeds: leave --seeds"):
        reproduce(tmp_path, "made/one", seeds=1)
    _, found, _ = reproduce(tmp_path, seeds=1)  # among others it is no mistake
    assert [part["seeds"] for part in found["experiments"]] == [None, 1]


# A budget


def expect(monkeypatch, seconds):
    """Make each run of a radius be expected to take so long."""
    monkeypatch.setattr(
        reproducing.CostModel, "seconds", lambda self, config: seconds[config.schedule[0].rho]
    )


def test_what_a_budget_leaves_out_is_named_with_its_seconds(source, tmp_path, monkeypatch):
    expect(monkeypatch, {0.05: 10.0, 0.1: 20.0, 0.2: 1000.0})
    made, found, _ = reproduce(tmp_path, budget=100.0, workers=1)
    assert made.status == "done"
    assert [part["experiment"] for part in found["left_out"]] == ["made/two", "made/three"]
    left = found["left_out"][0]
    # Both seeds of the radius 0.2; the shared runs are done.
    assert (left["seeds"], left["of"], left["estimated_seconds"]) == (0, 2, 2000.0)
    rows = {row["experiment"]: row for row in found["verdicts"]}
    assert rows["made/one"]["verdict"] == "holds"
    assert rows["made/two"]["verdict"] == "not assessed" and rows["made/two"]["measured"] is None
    assert "did not fit the budget" in rows["made/two"]["reason"]
    assert "made/two" in (made.folder / "verdicts.md").read_text()


def test_a_budget_for_one_seed_runs_one_and_says_so(source, tmp_path, monkeypatch):
    expect(monkeypatch, {0.05: 10.0, 0.1: 20.0, 0.2: 1000.0})
    made, found, _ = reproduce(tmp_path, "made/one", budget=45.0, workers=1)
    (left,) = found["left_out"]
    assert (left["seeds"], left["of"], left["estimated_seconds"]) == (1, 2, 30.0)
    (share,) = made.shares
    assert (share.seeds, share.wanted, share.settings.seeds) == (1, 2, 1)
    assert share.findings.finding == "2 runs of 1 seeds"


def test_a_decided_experiment_makes_room_for_the_undecided(source, tmp_path, monkeypatch):
    reproduce(tmp_path, "made/one", seeds=1)
    expect(monkeypatch, {0.05: 10.0, 0.1: 20.0, 0.2: 25.0})
    _, _, events = reproduce(tmp_path, budget=30.0, workers=1)
    assert [name for name, kind in events if kind == "started"] == ["two-0.2-seed0"]


def test_when_the_budget_is_over_runs_stop_resumable_and_the_complete_is_analysed(
    source, tmp_path, monkeypatch
):
    monkeypatch.setenv("FLATLAB_CHECKPOINT_SECONDS", "0")
    endless = {"lab": Settings(seeds=1, epochs=10**9)}
    monkeypatch.setitem(source, "made/two", experiment("made/two", (0.2,), endless))
    reproduce(tmp_path, "made/one")
    expect(monkeypatch, {0.2: 0.5})
    made, found, _ = reproduce(tmp_path, budget=15.0, workers=1)
    assert made.status == "out of time"
    words = {row["experiment"]: row["verdict"] for row in found["verdicts"]}
    assert words == {"made/one": "holds", "made/two": "not assessed"}
    (left, _) = found["left_out"]
    assert left["experiment"] == "made/two" and "the budget was over" in left["reason"]
    manifest = json.loads((made.folder / "manifest.json").read_text())
    (stopped,) = [run for run in manifest["runs"] if run["status"] == "interrupted"]
    run = load_run((tmp_path / stopped["file"]).parent)
    assert run.status == "interrupted" and 0 < run.columns["epoch"][-1] < 10**9


# Slots: where runs are


def test_a_run_for_each_kernel_goes_first_and_the_rest_keeps_its_order(tmp_path, monkeypatch):
    """Two processes that need the same kernel would wait for one compiling it."""
    sam, sgd = (
        [dataclasses.replace(small(seed, Settings()), schedule=(phase,)) for seed in (0, 1)]
        for phase in (
            Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=1),
            Phase("sgd", lr=0.01, batch_size=1, epochs=1),
        )
    )
    named = dict(zip(("sam0", "sam1", "sgd0", "sgd1"), [*sam, *sgd], strict=True))
    made = slots([Planned(name, c) for name, c in named.items()], tmp_path, fresh=False)
    asked = []
    monkeypatch.setattr(pool, "run_jobs", lambda jobs, *rest: asked.extend(jobs) or run_jobs(jobs))
    pool.train(made, workers=1)
    assert [job.name for job in asked] == ["sam0", "sgd0", "sam1", "sgd1"]


def test_a_finished_run_of_another_name_is_used_and_an_unfinished_one_left_alone(tmp_path):
    config = small(0, Settings())
    planned = [Planned("mine", config)]
    other = tmp_path / "runs" / f"other-{config.digest()}"
    RunStore.open(other, config.to_dict())  # begun, by somebody
    (slot,) = slots(planned, tmp_path, fresh=False).values()
    assert (slot.path.name, slot.run) == (f"mine-{config.digest()}", None)
    run_config(config, out=other)
    (slot,) = slots(planned, tmp_path, fresh=False).values()
    assert slot.path == other and slot.run.status == "done"
    (slot,) = slots(planned, tmp_path, fresh=True).values()
    assert slot.path.name == f"mine-{config.digest()}" and slot.run is None


def test_a_run_that_was_begun_under_any_planned_name_is_continued_there(tmp_path):
    config = small(0, Settings())
    begun = tmp_path / "runs" / f"second-{config.digest()}"
    RunStore.open(begun, config.to_dict())
    planned = [Planned("first", config), Planned("second", config)]
    (slot,) = slots(planned, tmp_path, fresh=False).values()
    assert (slot.path, slot.name, slot.names) == (begun, "first", ("first", "second"))


def test_a_directory_of_the_right_name_and_another_run_is_not_taken_for_it(tmp_path):
    config, another = small(0, Settings()), small(1, Settings())
    run_config(another, out=tmp_path / "runs" / f"other-{config.digest()}")
    (slot,) = slots([Planned("mine", config)], tmp_path, fresh=False).values()
    assert slot.run is None and slot.path.name.startswith("mine-")


def test_one_name_for_two_runs_is_made_unique(tmp_path):
    configs = [small(seed, Settings()) for seed in (0, 1)]
    made = slots([Planned("same", config) for config in configs], tmp_path, fresh=False)
    assert [slot.name for slot in made.values()] == [f"same-{c.digest()}" for c in configs]


def test_the_folders_of_a_reproduction_are_held(source, tmp_path):
    with (
        prepare("made", "lab", tmp_path, workers=0),
        pytest.raises(BusyError, match="made-two"),
        prepare("made/two", "lab", tmp_path, workers=0),
    ):
        pass


# Progress


def test_the_time_left_is_that_of_the_estimates_at_the_pace_so_far(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = progress.JobProgress(
        3, quiet=True, expected={"a": 10.0, "b": 10.0, "c": 40.0}, workers=2
    )
    assert shown.left() == 40.0  # the longest, though the sum over two workers is 30
    for name in "ac":
        shown.update(name, "started", {})
    now[0] = 130.0
    shown.update("a", "finished", {})
    shown.update("c", "progress", {"epoch": 5, "epochs": 10})
    # Two workers made 30 expected seconds in 30: twice the time expected. 20 of c are left.
    assert shown.left() == 2 * 20.0
