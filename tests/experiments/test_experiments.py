import dataclasses
import importlib

import numpy as np
import pytest
from scipy import stats

from flatlab.errors import UserError
from flatlab.experiments import CATALOGUE
from flatlab.experiments.catalogue import find, parse_changes, parse_value, settings_of
from flatlab.experiments.contract import Interval, Planned, sizes
from flatlab.experiments.judging import Rule, judge, on_minimum
from flatlab.experiments.showing import curves
from flatlab.experiments.wen2023 import table1
from flatlab.experiments.work import planned_work
from flatlab.training.config import RunConfig
from flatlab.training.run import Run

EXPERIMENTS = pytest.mark.parametrize("experiment", CATALOGUE.values(), ids=CATALOGUE)
TRAINING = {id: e for id, e in CATALOGUE.items() if e.plan(e.presets["quick"])}  # others compute
TRAINED = pytest.mark.parametrize("experiment", TRAINING.values(), ids=TRAINING)
PRESETS = pytest.mark.parametrize("preset", ["quick", "lab", "paper"])
EVERY_PRESET = pytest.mark.parametrize(
    "experiment, preset",
    [
        pytest.param(experiment, preset, id=f"{name}-{preset}")
        for name, experiment in TRAINING.items()
        for preset in experiment.presets
    ],
)


def runs_of(planned):
    """Return the training runs of a plan, without computations."""
    return [p for p in planned if isinstance(p, Planned)]


# The contract of every experiment


@EXPERIMENTS
def test_an_experiment_is_found_by_its_id_and_has_a_header(experiment):
    assert find([experiment.id]) == [experiment]
    # What goes beyond the papers has no sizes of a paper.
    beyond = experiment.id.startswith("beyond/") or experiment.id.endswith("/sensitivity")
    assert set(experiment.presets) == {"quick", "lab"} | (set() if beyond else {"paper"})
    header = importlib.import_module(experiment.module).__doc__
    for entry in ("Source:", "Command:", "Seconds:", "Claim:", "Expected:"):
        assert entry in header
    assert f"flatlab run {experiment.id}" in header


@EVERY_PRESET
def test_a_plan_has_unique_names_and_configurations_that_round_trip(experiment, preset):
    planned = experiment.plan(experiment.presets[preset])
    assert len({p.name for p in planned}) == len(planned) > 0
    planned = runs_of(planned)
    assert len({p.config.digest() for p in planned}) == len(planned)
    for p in planned:
        again = RunConfig.from_dict(p.config.to_dict())
        assert again == p.config and again.digest() == p.config.digest()


@EVERY_PRESET
def test_a_preset_that_decides_has_enough_seeds(experiment, preset):
    settings = experiment.presets[preset]
    seeds = [p.config.seed for p in runs_of(experiment.plan(settings))]
    assert settings.seeds >= {"quick": 1, "lab": 3, "paper": 1}[preset]
    assert set(seeds) == set(range(settings.seeds))


@EVERY_PRESET
def test_lab_and_paper_decide_with_their_own_seeds_and_not_with_fewer(experiment, preset):
    settings = experiment.presets[preset]
    short = experiment.too_small(settings, preset)
    assert bool(short) == (preset in experiment.undecided)
    if preset == "lab":
        few = dataclasses.replace(settings, seeds=settings.seeds - 1)
        needs = f"seeds is {few.seeds} (needs {settings.seeds})"
        assert experiment.too_small(few, preset) == f"too small to decide: {needs}"


@TRAINED
def test_an_analysis_of_no_runs_assesses_nothing(experiment):
    findings = experiment.analyse(experiment.presets["lab"], "lab", {})
    assert findings.verdicts and all(v.holds is None for v in findings.verdicts)
    assert all(v.measured is None for v in findings.verdicts)


@EXPERIMENTS
def test_an_open_verdict_says_which_size_is_too_small(experiment):
    """Once and precisely, with or without results."""
    settings = experiment.presets["quick"]
    reasons = {v.reason for v in experiment.analyse(settings, "quick", {}).verdicts}
    assert reasons == {experiment.too_small(settings, "quick")}


@EXPERIMENTS
def test_claims_are_named_once(experiment):
    claims = [
        v.claim for v in experiment.analyse(experiment.presets["quick"], "quick", {}).verdicts
    ]
    assert len(set(claims)) == len(claims)


# Settings


@pytest.mark.parametrize(
    "text, value",
    [
        ("3", 3),
        ("3.0", 3.0),
        ("1e-3", 1e-3),
        ("true", True),
        ("True", "True"),
        ("batch", "batch"),
        ('"3"', "3"),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_values_read_as_in_toml_and_bare_words_as_strings(text, value):
    found = parse_value(text)
    assert found == value and type(found) is type(value)


def test_changes_win_over_the_preset():
    experiment = CATALOGUE["wen2023/table1"]
    changes = parse_changes(["width=7", "dtype=float64", "gamma_scale=2.5"])
    made = settings_of([experiment], "quick", 4, changes)[experiment.id]
    assert (made.seeds, made.width, made.dtype, made.gamma_scale) == (4, 7, "float64", 2.5)
    assert made.d == experiment.presets["quick"].d
    with pytest.raises(UserError, match="width must be > 0, got 0"):
        settings_of([experiment], "quick", None, {"width": 0})


EVERY_SIZE = pytest.mark.parametrize(
    "experiment, name",
    [
        pytest.param(experiment, name, id=f"{id}-{name}")
        for id, experiment in CATALOGUE.items()
        for name in sizes(experiment.presets["quick"])
    ],
)


def outcome(experiment, settings):
    """Return what a setting must reach: the digests of the runs, or the table without any."""
    digests = {item.key for item in planned_work(experiment, settings).values()}
    return digests or experiment.analyse(settings, "quick", {}).tables


@EVERY_SIZE
def test_every_size_can_be_set_and_reaches_the_runs(experiment, name):
    quick = experiment.presets["quick"]
    have, before = getattr(quick, name), outcome(experiment, quick)
    for value in {max(4, have // 2), have + 1, 3 * have} - {have}:
        made = settings_of([experiment], "quick", None, {name: value})[experiment.id]
        assert getattr(made, name) == value
        assert outcome(experiment, made) != before


@EVERY_SIZE
def test_a_size_that_cannot_be_is_refused_in_one_line(experiment, name):
    with pytest.raises(UserError, match=rf"^{name} must be (>=|>) \d+, got -1$"):
        settings_of([experiment], "quick", None, {name: -1})


# Table 1: the paper's own hyper-parameters, Table 2 of the paper


SGD = {"algorithm": "sgd", "rho": 0.0, "batch_size": None, "max_first_layer_norm": None}
SAM = {"algorithm": "sam", "weight_decay": 0.0, "batch_size": 1, "max_first_layer_norm": None}
FIGURE_1A = [SGD | {"lr": 0.01, "weight_decay": 0.05, "epochs": 100_000}]
TABLE_2 = {
    "no_bias-gd": FIGURE_1A,
    "bias-gd": FIGURE_1A,
    "sim_bn-gd": FIGURE_1A,
    "sim_ln-gd": FIGURE_1A,
    "no_bias-sam": [SAM | {"lr": 0.01, "rho": 0.05, "epochs": 100_000}],  # Figure 1b
    "bias-sam": [  # Figure 4b
        SAM | {"lr": 0.01, "rho": 0.05, "epochs": 200_000},
        SAM | {"lr": 0.01, "rho": 0.1, "epochs": 400_000},
    ],
    "sim_bn-sam": [  # Figure 2a
        SAM | {"lr": 0.005, "rho": 0.1, "epochs": 100_000},
        SAM | {"lr": 0.003, "rho": 1.0, "epochs": 100_000},
    ],
    "sim_ln-sam": [  # Figure 6b
        SAM | {"lr": 0.01, "rho": rho, "epochs": 500, "max_first_layer_norm": 10.0}
        for rho in (0.1, 0.5, 1.0)
    ],
}


def option(phase, key):
    """Return an option of a phase by the name that it was given under."""
    return phase.first_layer.max_norm if key == "max_first_layer_norm" else getattr(phase, key)


def test_the_paper_preset_is_the_papers_table_2():
    settings = table1.PRESETS["paper"]
    assert (settings.d, settings.n, settings.width) == (30, 100, 500)
    planned = {p.name: p.config for p in table1.COMPARISON.plan(settings)}
    assert len(planned) == 8 * settings.seeds
    for line, rows in TABLE_2.items():
        for seed in range(settings.seeds):
            config = planned[f"{line}-seed{seed}"]
            phases = [{key: option(p, key) for key in rows[0]} for p in config.schedule]
            assert phases == rows
            assert all(phase.noise == 0 for phase in config.schedule)
            assert config.loss.name == "mse"
            expected = {"name": "xor", "d": 30, "n": 100, "seed": seed}
            assert expected.items() <= config.data.items()


@PRESETS
def test_table1_has_the_papers_four_architectures(preset):
    found = {
        p.name.split("-")[0]: (p.config.arch.bias, p.config.arch.norm)
        for p in table1.COMPARISON.plan(table1.PRESETS[preset])
    }
    assert found == {
        "no_bias": (False, None),
        "bias": (True, None),
        "sim_bn": (True, "batch"),
        "sim_ln": (True, "layer"),
    }


def test_lab_shortens_nothing_but_the_epochs():
    lab, paper = table1.PRESETS["lab"], table1.PRESETS["paper"]
    for field in dataclasses.fields(lab):
        if "epochs" not in field.name and field.name != "seeds":
            assert getattr(lab, field.name) == getattr(paper, field.name)


# Table 1: what its analysis says of made-up runs


def made_up(settings, error=0.0, trace=40.0, loss=1e-4, **final):
    """Return every planned run with a history of four rows; `final` is (line) → {column: value}.

    A tuple is (end of the first phase, end of the run).
    """
    runs = {}
    for p in table1.COMPARISON.plan(settings):
        line, _, seed = p.name.rpartition("-seed")
        last = {"train_loss": loss, "test_loss": loss, "test_error": error, "trace": trace}
        last |= {"trace_ggn": trace} | final.get(line.replace("-", "_"), {})
        values = {k: v[int(seed)] if isinstance(v, list) else v for k, v in last.items()}
        ends = {k: v if isinstance(v, tuple) else (v, v) for k, v in values.items()}
        columns = {k: np.array([1.0, 0.5, *v]) for k, v in ends.items()}
        first = p.config.schedule[0].epochs
        columns["epoch"] = np.array([0, first // 2, first, max(p.config.epochs, first + 1)])
        runs[p.name] = Run(p.config, columns, params={}, status="done", seconds=1.0)
    return runs


def verdicts(settings, preset, runs):
    return {v.claim: v for v in table1.COMPARISON.analyse(settings, preset, runs).verdicts}


LAB = table1.PRESETS["lab"]
NONE = table1.COMPARISON.collect(LAB, "lab", {})
FLOORS = {key: NONE.floor(f"{key}-sam") for key in table1.NETWORKS}
AS_IN_THE_PAPER = {
    "bias_sam": {"test_error": [0.3, 0.4, 0.35], "trace": 22.5, "trace_ggn": FLOORS["bias"]},
    "bias_gd": {"trace_ggn": [65.0, 70.0, 74.0]},
    "sim_ln_sam": {"trace_ggn": 1.01 * FLOORS["sim_ln"]},
}


def test_references_are_those_of_the_theory():
    # 4√d and 4√(d+1) are exact; the xor network's trace on i.i.d. data was measured at 7.95–7.98.
    assert FLOORS["no_bias"] == pytest.approx(4 * np.sqrt(30), rel=1e-12)
    assert FLOORS["bias"] == pytest.approx(4 * np.sqrt(31), rel=1e-12)
    assert FLOORS["sim_ln"] == pytest.approx(2, rel=1e-12)
    assert 7.9 < FLOORS["sim_bn"] < 8


def test_runs_as_in_the_paper_make_every_claim_hold():
    found = verdicts(LAB, "lab", made_up(LAB, **AS_IN_THE_PAPER))
    assert {claim: v.word for claim, v in found.items()} == dict.fromkeys(found, "holds")
    assert {type(v.holds) for v in found.values()} == {bool}  # numpy's own is not JSON's
    assert found["wen2023.table1.bias"].measured == pytest.approx(0.35, rel=1e-12)


@pytest.mark.parametrize(
    "claim, line, values, word",
    [
        ("table1.no_bias", "no_bias_sam", {"test_error": [0.3, 0.31, 0.32]}, "fails"),
        ("table1.no_bias", "no_bias_sam", {"test_error": [0.0, 0.1, 0.2]}, "not assessed"),
        ("table1.no_bias", "no_bias_gd", {"test_error": 0.5}, "holds"),  # not what is claimed
        ("table1.bias", "bias_sam", {"test_error": 0.0}, "fails"),
        ("table1.bias", "bias_sam", {"test_error": [0.05, 0.2, 0.3]}, "not assessed"),
        ("table1.sim_bn", "sim_bn_sam", {"test_error": 0.5}, "fails"),
        ("table1.sim_ln", "sim_ln_sam", {"test_error": 0.5}, "fails"),
        ("sec6.reaches_bound.bias", "bias_sam", {"trace_ggn": 1.11 * 4 * 31**0.5}, "fails"),
        ("sec6.reaches_bound.bias", "bias_sam", {"trace_ggn": 1.09 * 4 * 31**0.5}, "holds"),
        ("sec6.reaches_bound.sim_ln", "sim_ln_sam", {"trace_ggn": 2.3}, "fails"),
        ("table1.flatter", "bias_sam", {"trace_ggn": 90.0}, "fails"),
        ("table1.bias", "bias_sam", {"train_loss": 0.5}, "fails"),
        ("table1.bias", "bias_sam", {"train_loss": [1e-4, 0.02, 1e-4]}, "holds"),  # as fig4
        ("table1.no_bias", "no_bias_sam", {"train_loss": [1e-4, 0.02, 1e-4]}, "fails"),
        ("table1.sim_bn", "sim_bn_sam", {"train_loss": (1e-4, 1.0)}, "holds"),
        ("table1.sim_bn", "sim_bn_sam", {"train_loss": (1.0, 1e-4)}, "fails"),
        ("table1.sim_bn_second", "sim_bn_sam", {"train_loss": (1e-4, 1.0)}, "fails"),
        ("table1.sim_bn_second", "sim_bn_sam", {"test_error": (0.0, 0.5)}, "fails"),
    ],
)
def test_one_change_turns_its_verdict(claim, line, values, word):
    final = {**AS_IN_THE_PAPER, line: AS_IN_THE_PAPER.get(line, {}) | values}
    found = verdicts(LAB, "lab", made_up(LAB, **final))
    assert found[f"wen2023.{claim}"].word == word


def test_quick_and_small_sizes_assess_nothing():
    quick = table1.PRESETS["quick"]
    small = dataclasses.replace(LAB, width=100)
    for settings, preset in ((quick, "quick"), (LAB, "quick"), (small, "lab")):
        found = verdicts(settings, preset, made_up(settings, **AS_IN_THE_PAPER))
        assert {v.word for v in found.values()} == {"not assessed"}
        reason = table1.EXPERIMENT.too_small(settings, preset)
        assert all((v.measured is not None, v.reason) == (True, reason) for v in found.values())


def test_one_seed_is_judged_by_its_value_without_an_interval():
    """The preset `paper` has one seed, as the paper has, and decides with it; `lab` does not."""
    settings = table1.PRESETS["paper"]
    found = verdicts(settings, "paper", made_up(settings, **AS_IN_THE_PAPER))
    for v in found.values():
        assert (v.word, v.low, v.high) == ("holds", None, None)
        assert v.reason.startswith("one seed: ")
    few = dataclasses.replace(LAB, seeds=1)
    found = verdicts(few, "lab", made_up(few, **AS_IN_THE_PAPER))
    assert {v.word for v in found.values()} == {"not assessed"}


def test_runs_that_failed_are_missing_and_not_guessed():
    runs = made_up(LAB, **AS_IN_THE_PAPER)
    kept = {name: run for name, run in runs.items() if not name.startswith("sim_bn-sam")}
    findings = table1.COMPARISON.analyse(LAB, "lab", kept)
    by_claim = {v.claim: v for v in findings.verdicts}
    assert by_claim["wen2023.table1.sim_bn"].reason == "there is no run to judge by"
    assert by_claim["wen2023.table1.no_bias"].holds is True
    rows = [row for row in findings.tables["table1"] if row["seeds"] == 0]
    assert [row["algorithm"] for row in rows] == ["1-SAM, first phase", "1-SAM"]
    assert all(row["network"] == "Sim-BN" and row["trace"] is None for row in rows)


def test_a_diverged_run_is_named():
    runs = made_up(LAB)
    name = "sim_bn-gd-seed1"
    runs[name] = dataclasses.replace(runs[name], status="diverged", diverged_at=7)
    assert table1.COMPARISON.analyse(LAB, "lab", runs).notes == (
        f"{name} diverged in epoch 7; its last finite state is used",
    )


# Intervals and curves


@pytest.mark.parametrize("values", [[1.0, 2.0], [0.3, 0.1, 0.25, 0.2, 0.9], [5.0, 5.0, 5.0]])
def test_an_interval_is_students_as_scipy_gives_it(values):
    found, scale = Interval.of(values), stats.sem(values)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-15)
    if scale == 0:
        assert (found.low, found.high) == (5.0, 5.0)
        return
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=scale)
    # Both compute mean ± t·s/√n in float64; a few roundings apart.
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)


def test_an_interval_needs_two_values_and_stays_within_what_can_be():
    assert Interval.of([]) is Interval.of([0.5]) is None
    assert Interval.of([0.0, 0.01], 0.0, 1.0).low == 0.0
    assert Interval.of([0.99, 1.0], 0.0, 1.0).high == 1.0


@pytest.mark.parametrize("decisive, holds", [(True, True), (False, None)])
def test_a_rule_is_asked_only_where_sizes_can_decide(decisive, holds):
    found = judge("c", "s", [1.0, 1.5], Rule("above", -10), decisive=decisive)
    assert found.holds is holds
    assert found.measured == 1.25  # exact in binary


@pytest.mark.parametrize("off, holds", [(0, True), (1, True), (2, False), (3, False)])
def test_half_of_the_seeds_at_a_minimum_are_not_most_of_them(off, holds):
    verdict = judge("c", "s", [1.0, 1.5, 1.2, 1.1], Rule("above", 0), decisive=True)
    losses = [0.3] * off + [0.0] * (4 - off)
    made = on_minimum(verdict, losses, decisive=True, most=True)
    assert made.holds is holds
    assert (f"{off} of 4 seeds not at a minimum" in made.reason) == (off > 0)
    assert on_minimum(verdict, losses, decisive=True).holds is (off == 0)
    short = on_minimum(verdict, losses, decisive=True, most=True, short=True)
    assert short.holds is (True if holds else None)


RULES = {  # rule → ends of an interval → the answer, and the words for several seeds
    Rule("below", 1): {
        (0, 0.9): (True, "the interval lies below 1"),
        (0, 2): (None, "the interval lies on both sides of 1"),
        (0, 1): (None, "the interval touches 1"),
        (1, 2): (False, "the interval lies at or above 1"),
    },
    Rule("above", 1, "the test error", touch=None): {
        (1.1, 2): (True, "the test error's interval lies above 1"),
        (1, 2): (None, "the test error's interval touches 1"),
        (0, 1): (None, "the test error's interval touches 1"),
        (0, 0.9): (False, "the test error's interval lies below 1"),
    },
    Rule("above", 1): {(0, 1): (False, "the interval lies at or below 1")},
    Rule("near", 1, "the ratio"): {
        (0.91, 1.09): (True, "the ratio's interval lies within 10% of 1"),
        (0.9, 1.0): (None, "the ratio's interval lies only partly within 10% of 1"),
        (1.11, 2.0): (False, "the ratio's interval lies more than 10% from 1"),
    },
}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_rule_decides_by_the_whole_interval_and_says_so(rule):
    for (low, high), answer in RULES[rule].items():
        found = Interval((low + high) / 2, low, high)
        assert (rule.decide(found), rule.says(found, 3)) == answer


def test_one_seed_is_judged_by_its_value():
    for rule, value, words in (
        (Rule("below", 1), 0.5, "one seed: the value lies below 1"),
        (Rule("below", 1), 1.0, "one seed: the value lies at or above 1"),
        (Rule("above", 1, "the share", touch=None), 1.0, "one seed: the share is 1"),
        (Rule("near", 1, "the ratio"), 1.2, "one seed: the ratio lies more than 10% from 1"),
    ):
        made = judge("c", "s", [value], rule, decisive=True)
        assert (made.reason, made.low, made.high) == (words, None, None)
        assert made.holds is rule.decide(Interval(value, value, value))


def test_curves_cover_what_all_seeds_share():
    runs = made_up(LAB)
    name = "bias-sam-seed1"
    short = {column: values[:2] for column, values in runs[name].columns.items()}
    runs[name] = dataclasses.replace(runs[name], columns=short)
    runs = {name: run for name, run in runs.items() if not name.startswith("bias-gd")}
    found = table1.COMPARISON.collect(LAB, "lab", runs)
    (one,) = curves(found, ["bias-sam", "bias-gd"], "trace")  # gradient descent has no runs
    assert one.y.shape == (3, 2) and (one.label, one.role) == ("1-SAM", "sam")
    assert one.x.tolist() == short["epoch"].tolist()


def test_arms_of_one_kind_have_a_colour_each_where_they_meet():
    found = table1.COMPARISON.collect(LAB, "lab", made_up(LAB))
    drawn = curves(found, ["bias-sam", "no_bias-sam"], "trace")
    assert [curve.role for curve in drawn] == ["bias-sam", "no_bias-sam"]


def test_runs_are_paired_by_seed_where_one_is_missing():
    runs = made_up(LAB, bias_sam={"trace_ggn": [1.0, 2.0, 3.0]}, bias_gd={"trace_ggn": [1.0, 2, 3]})
    del runs["bias-gd-seed0"]
    flatter = verdicts(LAB, "lab", runs)["wen2023.table1.flatter"]
    assert (flatter.measured, flatter.low, flatter.high) == (1.0, 1.0, 1.0)
