import dataclasses

import numpy as np
import pytest
import torch

from flatlab import data
from flatlab.data.catalogue import make
from flatlab.experiments.wen2023 import _variations, sensitivity, table1
from flatlab.models import TwoLayer, build
from flatlab.report.figures import draw
from flatlab.training.rows import on_test_set
from flatlab.training.run import Run
from flatlab.training.schedule import Phase
from flatlab.training.session import run_config
from trainers import by_torch

QUICK = sensitivity.PRESETS["quick"]
LAB = dataclasses.replace(sensitivity.PRESETS["lab"], largest_test=200)
CHOICES = {*sensitivity.STATEMENTS, "sharpness"} - {"base"}


def scenarios(settings):
    return {scenario.key: scenario for scenario in sensitivity.scenarios(settings)}


SCENARIOS = scenarios(QUICK)
TRIED = [(v, key) for v in sensitivity.VARIATIONS for key in v.scenarios]


# What is varied: one thing in each arm


def fields(config):
    """Return a configuration as plain values, with all options of a phase side by side."""
    found = config.to_dict()
    found["schedule"] = [side_by_side(phase) for phase in found["schedule"]]
    return found


def side_by_side(phase):
    rest = {**phase, **phase.get("variation", {})}
    optimizer, first = dict(rest.pop("optimizer")), dict(rest.pop("first_layer", {}))
    base = dict(optimizer.pop("base", {}))
    base.pop("name", None)
    if "max_norm" in first:
        first["max_first_layer_norm"] = first.pop("max_norm")
    rest.pop("variation", None)
    return {"algorithm": optimizer.pop("name"), **optimizer, **base, **first, **rest}


def flat(value, name=""):
    """Return path → value; the phases of a schedule share their paths."""
    if isinstance(value, dict):
        parts = [flat(part, f"{name}.{key}".lstrip(".")) for key, part in value.items()]
        return {key: part for found in parts for key, part in found.items()}
    if isinstance(value, list):
        parts = [flat(part, name) for part in value]
        keys = {key for part in parts for key in part}
        return {key: [part.get(key) for part in parts] for key in keys}
    return {name: value}


CHANGED = {
    "initial_law": {"arch.init.law"},
    "first_layer": {"arch.init.first_layer_scale"},
    "gamma": {"arch.init.gamma_scale"},
    "statistics": {"schedule.statistics"},
    "order": {"schedule.order"},
    "ascent": {"schedule.algorithm"},
    "second_batch": {"schedule.second_batch"},
    "momentum": {"schedule.momentum"},
    "loss": {"schedule.lr", "schedule.weight_decay"},
    "weight_decay": {"schedule.weight_decay"},
    "ln_epsilon": {"arch.ln_epsilon"},
    "norm_limit": {"schedule.max_first_layer_norm"},
    "dtype": {"dtype"},
}
CHANGED_BY = {  # a variation that changes something else than its choice's others
    "gamma_one": {"arch.init.gamma_scale", "arch.width"},  # the paper's, where the base is narrower
    "gamma_shared": {"arch.gamma"},
    "gamma_still": {"schedule.gamma"},
    "gamma_fixed": {"schedule.gamma"},
    "slow": {"schedule.momentum", "schedule.lr"},
    "spared": {"schedule.bias_weight_decay"},
    "each": {"schedule.norm_rule"},
    "held": {"schedule.norm_rule"},
}


@pytest.mark.parametrize("variation, key", TRIED, ids=lambda x: getattr(x, "key", x))
@pytest.mark.parametrize("settings", [QUICK, LAB], ids=["quick", "lab"])
def test_an_arm_differs_from_its_base_in_one_thing(variation, key, settings):
    base = scenarios(settings)[key].config(1)
    one, two = flat(fields(base)), flat(fields(variation.change(base)))
    changed = {name for name in {*one, *two} if one.get(name) != two.get(name)}
    if variation.key == "cumulative":
        first, second = base.schedule
        now = variation.change(base).schedule
        assert now[0] == first and sum(phase.epochs for phase in now) == max(
            first.epochs, second.epochs
        )
        assert {dataclasses.replace(phase, epochs=1) for phase in now} <= {
            dataclasses.replace(phase, epochs=1) for phase in base.schedule
        }
        return
    if variation.choice == "phases":
        (last,) = variation.change(base).schedule
        assert last == dataclasses.replace(base.schedule[-1], epochs=base.epochs)
        assert {name.partition(".")[0] for name in changed} == {"schedule"}
        return
    expected = CHANGED_BY.get(variation.key) or CHANGED[variation.choice]
    if variation.choice == "loss" and key not in _variations.GD:
        expected = {"schedule.lr"}  # there is no weight decay to double
    if variation.key == "gamma_one":
        made = variation.change(base).arch
        assert made.initial(6, 0)["gamma"] == pytest.approx(np.ones(500), rel=1e-12)
        assert dataclasses.replace(base.arch, width=500).init != made.init
    assert changed == expected


def test_bases_are_rows_of_table_1():
    settings = sensitivity.Settings()
    three = dataclasses.replace(table1.PRESETS["paper"], seeds=3)
    planned = {p.name: p.config for p in table1.COMPARISON.plan(three)}
    for key, scenario in scenarios(settings).items():
        name = f"{key.removeprefix('gd_')}-{'gd' if key in _variations.GD else 'sam'}-seed2"
        config = dataclasses.replace(scenario.config(2), log=planned[name].log)
        assert config == planned[name]


def test_answers_are_those_of_table_1():
    for key, network in table1.NETWORKS.items():
        assert SCENARIOS[key].generalises is network.generalises


@dataclasses.dataclass
class Scaled:
    """Squared error times a factor."""

    factor: float

    def torch(self, f, y):
        return self.factor * ((f - y) ** 2).mean()


@pytest.mark.parametrize(
    "phase",
    [
        Phase("sgd", lr=0.02, epochs=1, batch_size=5, weight_decay=0.05),
        Phase("sam", lr=0.02, epochs=1, batch_size=1, rho=0.1),
        Phase("usam", lr=0.02, epochs=1, batch_size=1, rho=0.1),
    ],
    ids=lambda phase: phase.algorithm,
)
def test_half_the_loss_is_the_phase_that_is_said_to_equal_it(phase):
    """To the bit: scaling by a power of two commutes with rounding."""
    points, arch = data.xor(d=4, n=20, seed=3, n_test=0), TwoLayer(width=7)

    def trained(factor, phase):
        loss = Scaled(factor)
        trainer = by_torch(arch, arch.initial(4, seed=1), loss, points, 0, "float64")
        assert trainer.advance(phase, 0, trainer.units_per_epoch(phase), 0) == -1
        return trainer.params()

    half, same = trained(0.5, phase), trained(1.0, _variations.half_loss(phase))
    whole = trained(1.0, phase)
    for name, value in half.items():
        assert (value == same[name]).all() and (value != whole[name]).any()


def test_other_test_sets_are_of_the_same_training_set():
    run = run_config(SCENARIOS["no_bias"].config(0))
    same = on_test_set(run, run.dataset())
    assert same == {name: run.final[name] for name in same}
    larger = make({**run.config.data, "n_test": 5000})
    assert (larger.x_train == run.dataset().x_train).all() and len(larger.x_test) == 5000
    net = build(run.config.arch, run.params, larger.x_train)
    with torch.no_grad():
        f = net(torch.tensor(larger.x_test.astype(np.float32))).numpy()
    found = on_test_set(run, larger)
    # The engine's float32 outputs differ by rounding from torch's: one point in 5,000 may turn.
    assert found["test_error"] == pytest.approx(np.mean(f * larger.y_test <= 0), abs=1 / 5000)
    assert found["trace"] == same["trace"]


# What is said of made-up runs


@pytest.fixture
def same_error_everywhere(monkeypatch):
    """Other test sets give a made-up run's own test error; so does its own, with no output of 0."""
    monkeypatch.setattr(sensitivity, "on_test_set", lambda run, points: run.final)
    monkeypatch.setattr(sensitivity, "outputs_on_test_set", outputs_with(0.0))


def outputs_with(zeros):
    """Return a network that is wrong on its test error's share of points, with so many at 0."""

    def outputs(run):
        y = run.dataset().y_test
        wrong = round(run.final["test_error"] * len(y))
        f = y.copy()
        f[:wrong] *= -1
        f[: round(zeros * len(y))] = 0
        return f

    return outputs


AS_IN_TABLE_1 = {"no_bias": 0.0, "bias": 0.3, "sim_bn": 0.02, "sim_ln": 0.0}


def made_up(settings, **changes):
    """Return every planned run; `changes` is arm (with _ for -) → {column or status: value}."""
    runs = {}
    for p in sensitivity.EXPERIMENT.plan(settings):
        arm, _, seed = p.name.removeprefix("sensitivity-").rpartition("-seed")
        last = {"test_error": AS_IN_TABLE_1.get(arm.partition("-")[0], 0.01)}
        last |= {"train_loss": 0.0, "test_loss": 0.0, "trace": 20.0, "trace_ggn": 20.0}
        last |= changes.get(arm.replace("-", "_"), {})
        status = last.pop("status", "done")
        values = {k: v[int(seed)] if isinstance(v, list) else v for k, v in last.items()}
        columns = {k: np.array([1.0, 0.5, v]) for k, v in values.items()}
        columns["epoch"] = np.array([0, p.config.epochs // 2, p.config.epochs])
        runs[p.name] = Run(p.config, columns, params={}, status=status, seconds=1.0, diverged_at=0)
    return runs


def findings(settings=LAB, preset="lab", **changes):
    return sensitivity.EXPERIMENT.analyse(settings, preset, made_up(settings, **changes))


def words(found):
    return {v.claim.removeprefix("wen2023.sensitivity."): v.word for v in found.verdicts}


def test_runs_as_in_table_1_depend_on_nothing(same_error_everywhere):
    found = findings()
    assert words(found) == dict.fromkeys({*CHOICES, "base"}, "holds")
    assert all(f" {choice}" in found.finding for choice in CHOICES)
    assert found.finding.startswith("No answer of Table 1 depends on: ")
    nearest = {v.claim: v for v in found.verdicts}["wen2023.sensitivity.gamma"]
    assert nearest.measured == pytest.approx(0.08, rel=1e-12)  # 0.1 − 0.02


@pytest.mark.parametrize(
    "choice, arm, change, word",
    [
        ("initial_law", "no_bias_normal", {"test_error": 0.3}, "fails"),
        ("initial_law", "no_bias_normal", {"test_error": [0.0, 0.1, 0.2]}, "not assessed"),
        ("initial_law", "bias_normal", {"test_error": 0.05}, "fails"),
        ("first_layer", "sim_ln_large", {"test_error": 0.3}, "fails"),
        ("gamma", "sim_bn_gamma1", {"test_error": 0.2}, "fails"),
        ("gamma", "sim_bn_gamma_one", {"status": "diverged"}, "fails"),
        ("gamma", "sim_bn_gamma_shared", {"test_error": 0.2}, "fails"),
        ("statistics", "sim_bn_constant", {"test_error": 0.2}, "fails"),
        ("order", "bias_fixed", {"test_error": 0.0}, "fails"),
        ("second_batch", "sim_bn_other", {"test_error": 0.3}, "fails"),
        ("momentum", "bias_momentum", {"status": "diverged"}, "fails"),
        ("momentum", "no_bias_slow", {"test_error": 0.3}, "fails"),
        ("ascent", "no_bias_usam", {"test_error": 0.4}, "fails"),
        ("loss", "gd_bias_half", {"test_error": 0.2}, "fails"),
        ("weight_decay", "gd_no_bias_double", {"test_error": 0.2}, "fails"),
        ("ln_epsilon", "sim_ln_epsilon_small", {"test_error": 0.2}, "fails"),
        ("norm_limit", "sim_ln_free", {"test_error": 0.2}, "fails"),
        ("norm_limit", "sim_ln_each", {"test_error": 0.2}, "fails"),
        ("phases", "bias_cumulative", {"test_error": 0.0}, "fails"),
        ("phases", "bias_last_row", {"test_error": 0.0}, "fails"),
        ("dtype", "sim_bn_float64", {"test_error": 0.5}, "fails"),
    ],
)
def test_one_arm_turns_the_verdict_on_its_choice_alone(
    same_error_everywhere, choice, arm, change, word
):
    found = findings(**{arm: change})
    assert words(found) == dict.fromkeys({*CHOICES, "base"}, "holds") | {choice: word}
    named = f"1 of {len(CHOICES)} choices matter: " if word == "fails" else "Not decided: "
    assert found.finding.startswith(f"{named}{choice} (")


def test_a_base_that_turns_turns_what_is_read_off_it(same_error_everywhere):
    found = words(findings(no_bias_base={"test_error": 0.15}))
    assert found == dict.fromkeys({*CHOICES, "base"}, "holds") | dict.fromkeys(
        ("base", "test_set", "threshold", "zero_output"), "fails"
    )
    found = words(findings(no_bias_base={"test_error": 0.07}))
    assert (found["base"], found["threshold"]) == ("holds", "fails")  # 0.05 is one of them


def test_other_test_sets_turn_their_verdict(same_error_everywhere, monkeypatch):
    monkeypatch.setattr(
        sensitivity, "on_test_set", lambda run, points: {"test_error": len(points.x_test) / 400}
    )
    found = {v.claim: v for v in findings().verdicts}["wen2023.sensitivity.test_set"]
    assert found.holds is False
    assert found.reason.startswith("200 points on no bias has test error 0.500")


def test_outputs_of_zero_turn_their_verdict(same_error_everywhere, monkeypatch):
    """With a fourth of all outputs at 0, a network that is wrong on 0.3 is so on 0.05."""
    monkeypatch.setattr(sensitivity, "outputs_on_test_set", outputs_with(0.25))
    found = findings()
    assert words(found) == dict.fromkeys({*CHOICES, "base"}, "holds") | {"zero_output": "fails"}
    assert "f = 0 counts as right on bias has test error 0.050" in found.finding


@pytest.mark.parametrize("trace, word", [(21.0, "holds"), ([-1.0, 2.0, 5.0], "fails")])
def test_two_readings_of_sharpness(same_error_everywhere, trace, word):
    found = findings(sim_ln_base={"trace": trace})
    assert words(found)["sharpness"] == word
    (said,) = [v.reason for v in found.verdicts if v.claim.endswith("sharpness")]
    assert said.endswith("on Sim-LN")


def test_a_choice_is_judged_by_the_case_that_speaks_most_against_it(same_error_everywhere):
    found = findings(
        no_bias_normal={"test_error": [0.0, 0.1, 0.9]},  # undecided, with the larger mean
        sim_ln_normal={"test_error": [0.2, 0.21, 0.22]},
    )
    (law,) = [v for v in found.verdicts if v.claim.endswith("initial_law")]
    assert law.holds is False and law.measured == pytest.approx(-0.11, rel=1e-12)
    assert law.reason.startswith("normal weights, zero bias on Sim-LN has test error 0.210 [")
    assert law.reason.endswith("still falling")  # 0.5 at half the epochs


def test_a_reason_names_every_case_with_another_answer_or_none(same_error_everywhere):
    found = findings(
        no_bias_large={"status": "diverged"},
        sim_bn_large={"status": "diverged"},
        bias_small={"test_error": 0.0},
        sim_ln_small={"test_error": [0.0, 0.1, 0.2]},  # undecided: there is worse to name
    )
    (first,) = [v for v in found.verdicts if v.claim.endswith("first_layer")]
    assert first.reason == (
        "scaled by 0.3 on bias has test error 0.000 [0.000, 0.000]; "
        "scaled by 3 diverges on no bias, Sim-BN"
    )
    assert (first.holds, first.measured) == (False, pytest.approx(-0.1, rel=1e-12))


def test_a_network_that_did_not_fit_its_data_is_said_to_have_not(same_error_everywhere):
    found = findings(sim_ln_limit5={"test_error": 0.3, "train_loss": 0.5})
    assert (
        "limit 5 on Sim-LN has test error 0.300 [0.300, 0.300] and training loss 0.50"
        in found.finding
    )


def test_a_diverged_arm_has_no_numbers_and_says_so(same_error_everywhere):
    found = findings(sim_bn_gamma_one={"status": "diverged"})
    (row,) = [row for row in found.tables["sensitivity"] if row["answer"] == "diverged"]
    assert (row["variation"], row["test_error"], row["trace"]) == ("γ = 1, width 500", None, None)
    plot = next(plot for plot in found.plots if plot.name == "sensitivity-sim_bn")
    (dot,) = [dot for dot in plot.panels[0][0].dots if not dot.values]
    assert dot.label == "gamma: γ = 1, width 500 (diverged)"
    assert "γ = 1, width 500 diverges on Sim-BN" in found.finding
    assert len(found.notes) == 3


def test_missing_runs_keep_a_choice_from_holding(same_error_everywhere):
    runs = {k: v for k, v in made_up(LAB).items() if not k.startswith("sensitivity-sim_ln-small")}
    found = sensitivity.EXPERIMENT.analyse(LAB, "lab", runs)
    (first,) = [v for v in found.verdicts if v.claim.endswith("first_layer")]
    reason = "there is no finished run of scaled by 0.3 on Sim-LN"
    assert (first.word, first.reason) == ("not assessed", reason)
    assert found.finding == ""


# Quick


@pytest.fixture(scope="module")
def quick():
    runs = {p.name: run_config(p.config) for p in sensitivity.EXPERIMENT.plan(QUICK)}
    return sensitivity.EXPERIMENT.analyse(QUICK, "quick", runs)


def test_quick_assesses_nothing_and_shows_everything(quick):
    assert set(words(quick).values()) == {"not assessed"}
    rows = quick.tables["sensitivity"]
    cases = [(row["network"], row["choice"], row["variation"]) for row in rows]
    assert len(set(cases)) == len(cases)
    assert {row["choice"] for row in rows} == {*CHOICES, "base"} - {"sharpness"}
    assert all(row["seeds"] == 1 for row in rows)
    assert (
        len(rows) == len(TRIED) + len(SCENARIOS) + 4 * 6
    )  # three test sets, zeros, two thresholds


def test_quick_draws_a_picture_for_each_network(quick):
    assert [plot.name for plot in quick.plots] == [f"sensitivity-{key}" for key in SCENARIOS]
    for plot in quick.plots:
        error, trace = plot.panels[0]
        assert [dot.label for dot in error.dots] == [dot.label for dot in trace.dots]
        assert error.dots[0].label == "base"
    assert draw(quick.plots[0]).startswith(b"\x89PNG")
