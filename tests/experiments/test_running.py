"""Running a small made-up source: choosing, sharing, stopping, and what is written."""

import csv
import dataclasses
import hashlib
import json
from typing import Annotated

import pytest
from pydantic import Field

from flatlab import report
from flatlab.errors import BusyError, UserError
from flatlab.experiments import catalogue, work
from flatlab.experiments.budget import Offer, everything, makespan, parse_budget, within
from flatlab.experiments.catalogue import find
from flatlab.experiments.contract import Experiment, Findings, Planned
from flatlab.experiments.judging import below
from flatlab.experiments.results import Results
from flatlab.experiments.running import run
from flatlab.experiments.setting import folder_name
from flatlab.experiments.work import carry_out, find_work, planned_work
from flatlab.files.store import RunStore
from flatlab.jobs import progress, run_jobs
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


def offer(id, *levels, undecided=1, verdicts=1, deciding=0):
    return Offer(id, tuple(tuple(level.split()) for level in levels), undecided, verdicts, deciding)


def test_the_cheapest_a_verdict_comes_first_and_what_does_not_fit_is_left():
    seconds = {"a0": 6.0, "b0": 4.0, "c0": 9.0}
    offers = [offer("a", "a0", undecided=3), offer("b", "b0"), offer("c", "c0")]
    assert within(offers, seconds, 10, 1).order == ("a0", "b0")  # 2, 4 and 9 seconds a verdict
    assert dict(within(offers, seconds, 10, 1).levels) == {"a": 1, "b": 1, "c": 0}
    assert dict(within(offers, seconds, 10, 2).levels) == {"a": 1, "b": 1, "c": 0}
    assert dict(within(offers, seconds, 13, 2).levels) == {"a": 1, "b": 1, "c": 1}
    assert within(offers, seconds, 3, 2).order == ()


def test_what_decides_goes_before_a_look_at_the_rest():
    seconds = {"a0": 5.0, "a1": 6.0, "b0": 1.0, "b1": 1.0, "b2": 1.0, "c0": 1.0, "c1": 1.0}
    offers = [
        offer("a", "a0", "a0 a1", deciding=2),
        offer("b", "b0", "b0 b1", "b0 b1 b2", deciding=2),
        offer("c", "c0", "c0 c1"),  # nothing decides it
    ]
    for budget, order, levels in (
        (100, ("b0", "b1", "a0", "a1", "c0", "c1", "b2"), (2, 3, 2)),
        (11, ("b0", "b1", "c0", "a0", "c1", "b2"), (1, 3, 2)),
        (2, ("b0", "b1"), (0, 2, 0)),
        (1, ("b0",), (0, 1, 0)),
    ):
        choice = within(offers, seconds, budget, 1)
        assert (choice.order, tuple(choice.levels.values())) == (order, levels)


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
    entries = {e.id: e for e in made}
    monkeypatch.setattr(catalogue, "CATALOGUE", entries)
    return entries


def reproduce(out, ids="made", **options):
    """Return the results, and (job, kind) of each event."""
    events = []

    def on_event(job, kind, info):
        events.append((job.name, kind))

    found = run(ids, "lab", out=out, on_event=on_event, **{"workers": 0, **options})
    report.publish(found)
    return found, events


def test_a_source_is_found_by_its_name_an_experiment_by_its_id(source):
    assert [e.id for e in find(["made"])] == ["made/one", "made/two", "made/three"]
    assert [e.id for e in find(["made/two"])] == ["made/two"]
    assert [e.id for e in find(["made/two", "made"])] == ["made/two", "made/one", "made/three"]
    with pytest.raises(UserError, match=r"unknown experiment or source 'mode': did you mean"):
        find(["mode"])
    with pytest.raises(UserError, match="name an experiment"):
        find([])


def test_a_request_has_a_folder_of_its_own_with_a_name_that_fits(source, tmp_path):
    found, _ = reproduce(tmp_path, ["made/one", "made/two"])
    assert found.folder == str(tmp_path / "made-one+made-two-lab")
    many = [f"a-long-source/experiment-{k}" for k in range(40)]
    name = folder_name(many, "lab")
    assert len(name) < 100 and name != folder_name(many[:-1], "lab")


def test_runs_that_experiments_share_are_trained_once_and_reused_later(source, tmp_path):
    found, events = reproduce(tmp_path)
    assert found.status == "done" and len(found.runs) == 6  # 8 planned, 2 of them shared
    assert len(list((tmp_path / "runs").iterdir())) == 6
    assert sum(kind == "started" for _, kind in events) == 6
    assert [part.runs for part in found.experiments] == [4, 4]
    shared = {run.names for run in found.runs if len(run.names) == 2}
    assert shared == {(f"one-0.05-seed{seed}", f"two-0.05-seed{seed}") for seed in (0, 1)}
    later, events = reproduce(tmp_path)
    assert {kind for _, kind in events} == {"reused"} and len(events) == 6
    assert all(run.reused for run in later.runs)
    assert later.verdicts == found.verdicts
    assert later.training_seconds == found.training_seconds
    # The page can be drawn again without losing how long it took.
    walls = [(part.id, part.wall_seconds) for part in found.experiments]
    assert [(part.id, part.wall_seconds) for part in later.experiments] == walls
    assert all(seconds > 0 for _, seconds in walls)
    assert later.wall_seconds == found.wall_seconds
    assert later.epochs == found.epochs == 18


def test_pictures_of_several_sources_do_not_overwrite_each_other(source, tmp_path, monkeypatch):
    monkeypatch.setitem(source, "other/one", experiment("other/one", (0.1,)))
    found, _ = reproduce(tmp_path, ["made/one", "other"])
    assert [part.figures for part in found.experiments] == [
        ("pictures/made-one.png",),
        ("pictures/other-one.png",),
    ]
    folder = tmp_path / "made-one+other-lab"
    assert all((folder / name).exists() for part in found.experiments for name in part.figures)


def test_an_experiment_without_the_preset_is_left_out_and_named(source, tmp_path):
    found, _ = reproduce(tmp_path)
    (skipped,) = found.left_out
    assert skipped.experiment == "made/three"
    assert skipped.reason == "it has no preset lab (it has quick)"
    with pytest.raises(UserError, match="unknown preset 'paper'"):
        run("made", "paper", out=tmp_path)


def test_the_files_agree_with_each_other_and_with_the_runs(source, tmp_path):
    found, _ = reproduce(tmp_path)
    folder = tmp_path / "made-lab"
    assert found.folder == str(folder)
    assert Results.load(folder) == found.model_copy(update={"plots": {}})
    with open(folder / "verdicts.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found.verdicts) == 2
    for row, verdict in zip(rows, found.verdicts, strict=True):
        assert float(row["measured"]) == verdict.measured  # all digits
        assert row["verdict"] == verdict.verdict == "holds" and verdict.holds is True
        assert (row["experiment"], row["preset"]) == (verdict.experiment, "lab")
    page = (folder / "results.md").read_text()
    assert len([line for line in page.splitlines() if line.startswith("| `made.")]) == 2
    assert "the loss | is small" in page and "4 runs of 2 seeds" in page
    for stored in found.runs:
        path = tmp_path / stored.path
        data = (path / "result.json").read_bytes()
        assert hashlib.sha256(data).hexdigest() == stored.sha256
        assert RunConfig.from_dict(RunStore.read(path).config).digest() == stored.digest
        assert (stored.kind, stored.status) == ("training", "done") and stored.experiments
    for part in found.experiments:
        assert part.figures
        for figure in part.figures:
            assert (folder / figure).read_bytes().startswith(b"\x89PNG")
            assert f"]({figure})" in page


@pytest.mark.parametrize("text", ["[]", "{}", "null", "garbage", '{"format": 0}', '{"format": 1}'])
def test_an_earlier_document_that_cannot_be_read_is_written_anew(source, tmp_path, text):
    found, _ = reproduce(tmp_path)
    document = tmp_path / "made-lab" / "results.json"
    document.write_text(text)
    again, _ = reproduce(tmp_path)
    assert again.wall_seconds is None
    assert again.verdicts == found.verdicts
    assert Results.load(document.parent).verdicts == found.verdicts


def test_a_number_that_is_not_finite_is_none_in_every_file(source, tmp_path, monkeypatch):
    wrong = below("made.one", "nothing", [float("nan")], 1.0, decisive=False)
    table = {"t": [{"value": float("inf")}]}
    changed = dataclasses.replace(
        source["made/one"], analyse=lambda s, p, r: Findings((wrong,), table, ())
    )
    monkeypatch.setitem(source, "made/one", changed)
    reproduce(tmp_path, "made/one")
    folder = tmp_path / "made-one-lab"
    made = json.loads((folder / "results.json").read_text())
    assert made["verdicts"][0]["measured"] is None
    assert made["experiments"][0]["tables"] == {"t": [{"value": None}]}
    assert ",,,,not assessed" in (folder / "verdicts.csv").read_text()


def test_seeds_and_settings_can_be_set(source, tmp_path):
    found, _ = reproduce(tmp_path, seeds=1, changes={"epochs": 2})
    assert len(found.runs) == 3 and {run.epochs for run in found.runs} == {2}
    assert [part.seeds for part in found.experiments] == [1, 1]
    assert found.experiments[0].settings == {"seeds": 1, "epochs": 2, "width": 6}
    with pytest.raises(UserError, match=r"unknown setting 'epoch': did you mean 'epochs'"):
        reproduce(tmp_path, changes={"epoch": 2})
    with pytest.raises(UserError, match="seeds must be >= 1, got 0"):
        reproduce(tmp_path, seeds=0)


def test_an_experiment_without_runs_and_seeds_is_analysed(source, tmp_path, monkeypatch):
    @spec
    class Sizes:
        d: int = 3

    none = dataclasses.replace(
        source["made/one"],
        presets={"lab": Sizes()},
        plan=lambda s: [],
        analyse=lambda s, p, r: Findings(
            (below("made.one", "d", [float(s.d)], 4.0, decisive=True),), {}, ()
        ),
    )
    monkeypatch.setitem(source, "made/one", none)
    for budget in (None, 1000.0):
        found, _ = reproduce(tmp_path, "made/one", budget=budget, workers=1)
        assert [v.verdict for v in found.verdicts] == ["holds"]
        assert found.experiments[0].seeds is None and found.left_out == ()
    with pytest.raises(UserError, match="made/one has no seeds, since nothing is random"):
        reproduce(tmp_path, "made/one", seeds=1)
    found, _ = reproduce(tmp_path, seeds=1)  # among others it is no mistake
    assert [part.seeds for part in found.experiments] == [None, 1]


# What a size can decide


@pytest.mark.parametrize(
    "least, changes, reason",
    [
        (None, {}, ""),  # the preset's own sizes
        (None, {"seeds": 1}, "too small to decide: seeds is 1 (needs 2)"),
        (None, {"seeds": 3}, ""),
        (None, {"epochs": 2}, "too small to decide: epochs is 2 (needs 3)"),
        ({"seeds": 2, "width": 6}, {"epochs": 2}, ""),
        ({"seeds": 3}, {}, "too small to decide: seeds is 2 (needs 3)"),
        (
            {"seeds": 3, "epochs": 3000, "width": 7},
            {},
            "too small to decide: seeds is 2 (needs 3), epochs is 3 (needs 3,000), "
            "width is 6 (needs 7)",
        ),
    ],
)
def test_settings_below_the_least_assess_nothing_and_say_why(
    source, tmp_path, monkeypatch, least, changes, reason
):
    monkeypatch.setitem(source, "made/one", dataclasses.replace(source["made/one"], least=least))
    found, _ = reproduce(tmp_path, "made/one", changes=changes)
    (verdict,) = found.verdicts
    assert verdict.measured is not None
    if reason:
        assert (verdict.verdict, verdict.reason) == ("not assessed", reason)
    else:
        assert verdict.verdict == "holds"


@pytest.mark.parametrize(
    "preset, changes, reason",
    [
        ("paper", {}, ""),  # one seed by its own protocol
        ("paper", {"seeds": 2}, ""),
        ("paper", {"epochs": 3}, ""),  # as many as lab
        ("paper", {"epochs": 2}, "too small to decide: epochs is 2 (needs 3)"),
        ("lab", {"seeds": 1}, "too small to decide: seeds is 1 (needs 2)"),
        ("quick", {}, "too small to decide: seeds is 1 (needs 2), epochs is 1 (needs 3)"),
        ("quick", {"seeds": 9, "epochs": 9}, "the preset quick is for a first look"),
    ],
)
def test_each_preset_has_its_own_least(preset, changes, reason):
    presets = {
        "quick": Settings(seeds=1, epochs=1),
        "lab": Settings(),
        "paper": Settings(seeds=1, epochs=100),
    }
    made = experiment("made/one", (0.05,), presets)
    said = made.too_small(dataclasses.replace(presets[preset], **changes), preset)
    assert said.startswith(reason) and bool(said) == bool(reason)


def test_the_preset_quick_decides_nothing_whatever_its_size(source, tmp_path):
    found = run("made/three", "quick", out=tmp_path, workers=0)
    assert [v.reason for v in found.verdicts] == [
        "the preset quick is for a first look and decides nothing: run another"
    ]


# A budget


def expect(monkeypatch, seconds):
    """Make each run of a radius be expected to take so long."""
    monkeypatch.setattr(
        work.CostModel, "seconds", lambda self, config: seconds[config.schedule[0].rho]
    )


def test_what_a_budget_leaves_out_is_named_with_its_seconds(source, tmp_path, monkeypatch):
    expect(monkeypatch, {0.05: 10.0, 0.1: 20.0, 0.2: 1000.0})
    found, _ = reproduce(tmp_path, budget=100.0, workers=1)
    assert found.status == "done"
    assert [part.experiment for part in found.left_out] == ["made/two", "made/three"]
    left = found.left_out[0]
    # Both seeds of the radius 0.2; the shared runs are done.
    assert (left.seeds, left.of, left.estimated_seconds) == (0, 2, 2000.0)
    rows = {v.experiment: v for v in found.verdicts}
    assert rows["made/one"].verdict == "holds"
    assert rows["made/two"].verdict == "not assessed" and rows["made/two"].measured is None
    assert "did not fit the budget" in rows["made/two"].reason
    assert "- made/two: it did not fit" in (tmp_path / "made-lab" / "results.md").read_text()


@pytest.mark.parametrize("budget", [0, -1.0, float("nan"), float("inf"), True, [1]])
def test_a_budget_is_a_number_of_seconds(source, tmp_path, budget):
    with pytest.raises(UserError, match="budget must be seconds > 0, got"):
        run("made", out=tmp_path, budget=budget)


def test_finished_runs_count_however_small_the_budget(source, tmp_path):
    whole = run("made", out=tmp_path, workers=0)
    again = run("made", out=tmp_path, workers=0, budget=1e-9)
    assert again.verdicts == whole.verdicts and len(again.runs) == len(whole.runs)


def test_a_budget_for_one_seed_runs_one_and_says_so(source, tmp_path, monkeypatch):
    expect(monkeypatch, {0.05: 10.0, 0.1: 20.0, 0.2: 1000.0})
    found, _ = reproduce(tmp_path, "made/one", budget=45.0, workers=1)
    (left,) = found.left_out
    assert (left.seeds, left.of, left.estimated_seconds) == (1, 2, 30.0)
    (part,) = found.experiments
    assert (part.seeds, part.of, part.settings["seeds"]) == (1, 2, 1)
    assert part.finding == "2 runs of 1 seeds"
    (verdict,) = found.verdicts
    assert (verdict.verdict, verdict.measured is None) == ("not assessed", False)
    assert verdict.reason == "the budget allowed 1 of 2 seeds: too few to decide (needs 2)"


def test_a_budget_decides_with_the_seeds_of_a_preset_that_needs_one(source, tmp_path, monkeypatch):
    """As the presets `paper` do, with more seeds asked for than they need."""
    expect(monkeypatch, {0.05: 10.0, 0.1: 20.0})
    one = experiment("made/one", (0.05, 0.1), {"lab": Settings(seeds=1)})
    monkeypatch.setitem(source, "made/one", one)
    found, _ = reproduce(tmp_path, "made/one", budget=75.0, workers=1, seeds=3)
    assert [v.verdict for v in found.verdicts] == ["holds"]
    assert [(left.seeds, left.of) for left in found.left_out] == [(2, 3)]


def test_a_decided_experiment_makes_room_for_the_undecided(source, tmp_path, monkeypatch):
    reproduce(tmp_path, "made/one")
    expect(monkeypatch, {0.05: 10.0, 0.1: 20.0, 0.2: 25.0})
    found, events = reproduce(tmp_path, budget=60.0, workers=1)
    started = [name for name, kind in events if kind == "started"]
    assert started == ["two-0.2-seed0", "two-0.2-seed1"]
    assert {v.verdict for v in found.verdicts} == {"holds"}


@pytest.mark.slow
def test_when_the_budget_is_over_runs_stop_resumable_and_the_complete_is_analysed(
    source, tmp_path, monkeypatch
):
    monkeypatch.setenv("FLATLAB_CHECKPOINT_SECONDS", "0")
    endless = {"lab": Settings(seeds=1, epochs=10**9)}
    monkeypatch.setitem(source, "made/two", experiment("made/two", (0.2,), endless))
    reproduce(tmp_path, "made/one")
    expect(monkeypatch, {0.2: 0.5})
    found, _ = reproduce(tmp_path, budget=15.0, workers=1)
    assert found.status == "out of time"
    words = {v.experiment: v.verdict for v in found.verdicts}
    assert words == {"made/one": "holds", "made/two": "not assessed"}
    (left, _) = found.left_out
    assert left.experiment == "made/two" and "the budget ran out" in left.reason
    (stopped,) = [run for run in found.runs if run.status == "interrupted"]
    there = load_run(tmp_path / stopped.path)
    assert there.status == "interrupted" and 0 < there.columns["epoch"][-1] < 10**9


# Work: where runs are


def found_work(planned, out, fresh=False):
    """Return what is found of a list of planned work, by digest."""
    return find_work([planned_work(experiment_of(planned), None)], out, fresh)


def experiment_of(planned):
    return dataclasses.replace(experiment("made/work", ()), plan=lambda s: planned)


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
    made = found_work([Planned(name, c) for name, c in named.items()], tmp_path)
    asked = []
    monkeypatch.setattr(work, "run_jobs", lambda jobs, *rest: asked.extend(jobs) or run_jobs(jobs))
    carry_out(made, workers=1)
    assert [job.name for job in asked] == ["sam0", "sgd0", "sam1", "sgd1"]


def test_a_finished_run_of_another_name_is_used_and_an_unfinished_one_left_alone(tmp_path):
    config = small(0, Settings())
    planned = [Planned("mine", config)]
    other = tmp_path / "runs" / f"other-{config.digest()}"
    RunStore.open(other, config.to_dict())  # begun, by somebody
    (one,) = found_work(planned, tmp_path).values()
    assert (one.path.name, one.made) == (f"mine-{config.digest()}", None)
    run_config(config, out=other)
    (one,) = found_work(planned, tmp_path).values()
    assert one.path == other and one.made.status == "done"
    (one,) = found_work(planned, tmp_path, fresh=True).values()
    assert one.path.name == f"mine-{config.digest()}" and one.made is None


def test_a_run_that_was_begun_under_any_planned_name_is_continued_there(tmp_path):
    config = small(0, Settings())
    begun = tmp_path / "runs" / f"second-{config.digest()}"
    RunStore.open(begun, config.to_dict())
    planned = [Planned("first", config), Planned("second", config)]
    (one,) = found_work(planned, tmp_path).values()
    assert (one.path, one.name, one.names) == (begun, "first", ("first", "second"))


def test_a_directory_of_the_right_name_and_another_run_is_not_taken_for_it(tmp_path):
    config, another = small(0, Settings()), small(1, Settings())
    run_config(another, out=tmp_path / "runs" / f"other-{config.digest()}")
    (one,) = found_work([Planned("mine", config)], tmp_path).values()
    assert one.made is None and one.path.name.startswith("mine-")


def test_one_name_for_two_runs_is_made_unique(tmp_path):
    configs = [small(seed, Settings()) for seed in (0, 1)]
    plans = [planned_work(experiment_of([Planned("same", c)]), None) for c in configs]
    made = find_work(plans, tmp_path, fresh=False)
    assert [one.name for one in made.values()] == [f"same-{c.digest()}" for c in configs]


def test_an_experiment_is_held_while_it_runs_by_itself_or_with_its_source(source, tmp_path):
    """Of two that run the same experiment, the second is refused and does not harm the first."""
    refused = []

    def start_another(total, expected, workers):
        for ids in ("made/two", ["made/one", "made/two"], "made"):
            with pytest.raises(BusyError) as error:
                run(ids, "lab", out=tmp_path, workers=0)
            refused.append(str(error.value))

    found = run("made", "lab", out=tmp_path, workers=0, on_plan=start_another)
    assert found.status == "done" and len(refused) == 3
    assert all("is working on" in text for text in refused) and "made-two" in refused[0]
    assert run("made/two", "lab", out=tmp_path, workers=0).status == "done"


# Progress


def test_the_time_left_is_that_of_the_estimates_at_the_pace_so_far(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = progress.JobProgress(quiet=True)
    shown.expect(3, {"a": 10.0, "b": 10.0, "c": 40.0}, 2)
    assert shown.left() == 40.0  # the longest, though the sum over two workers is 30
    for name in "ac":
        shown.update(name, "started", {})
    now[0] = 130.0
    shown.update("a", "finished", {})
    shown.update("c", "progress", {"epoch": 5, "epochs": 10})
    # Two workers made 30 expected seconds in 30: twice the time expected. 20 of c are left.
    assert shown.left() == 2 * 20.0
