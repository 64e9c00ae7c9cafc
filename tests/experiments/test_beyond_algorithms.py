"""The experiments beyond the paper on algorithms: samples, algorithms, rescue and global."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from flatlab import experiments
from flatlab.experiments.beyond import algorithms, global_minimum, rescue, samples
from flatlab.experiments.judging import mostly, proportion
from flatlab.report.figures import draw
from flatlab.training.run import Run

MODULES = {m.COMPARISON.name: m for m in (samples, algorithms, rescue, global_minimum)}
EACH = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)


def made_up(module, settings, ratio=1.0, **finals):
    """Return every planned run; its trace is `ratio` floors, `finals` is arm → {column: value}.

    A value may be a list, one for each seed; "ratio" sets the trace. Rows are the start and the
    end, and 0.5 for the test error in the start.
    """
    comparison, runs = module.COMPARISON, {}
    arms = {arm.key: arm for arm in comparison.arms(settings)}
    for planned in comparison.plan(settings):
        name, _, seed = planned.name.removeprefix(f"{comparison.name}-").rpartition("-seed")
        values = {"ratio": ratio, "test_error": 0.0, "test_loss": 0.01} | finals.get(name, {})
        last = {k: v[int(seed)] if isinstance(v, list) else v for k, v in values.items()}
        spot = (module, name, seed, settings)
        if spot not in FLOORS:  # the same data for every test
            data = Run(planned.config, {}, {}, "", 0.0).dataset()
            FLOORS[spot] = arms[name].floor(data)
        floor = FLOORS[spot]
        trace = last.pop("ratio") * floor
        last |= {"train_loss": 1e-4, "trace": trace, "trace_ggn": trace}
        columns = {k: np.array([0.5 if k == "test_error" else 9.0, v]) for k, v in last.items()}
        columns["epoch"] = np.array([0, planned.config.epochs])
        runs[planned.name] = Run(planned.config, columns, {}, "done", 1.0)
    return runs


FLOORS = {}


def judged(module, settings=None, preset="lab", **made):
    settings = settings or LAB[module]
    found = module.EXPERIMENT.analyse(settings, preset, made_up(module, settings, **made))
    prefix = f"beyond.{module.COMPARISON.name}."
    return {v.claim.removeprefix(prefix): v for v in found.verdicts}


LAB = {m: m.PRESETS["lab"] for m in MODULES.values()}


# All four


@EACH
def test_a_quick_run_through_the_runner_assesses_nothing_and_draws(module, tmp_path):
    quick = module.PRESETS["quick"]
    epochs = {f.name: 30 for f in dataclasses.fields(quick) if "epochs" in f.name}
    changes = {"width": 12, "d": 4, "n": 12, "n_test": 40, **epochs}
    found = experiments.run(module.EXPERIMENT.id, "quick", out=tmp_path, changes=changes, workers=0)
    assert {made.status for made in found.runs} <= {"done", "diverged"} and not found.failed
    (part,) = found.experiments
    assert all(v.holds is None and v.measured is not None for v in found.verdicts)
    assert part.finding.endswith(".")
    lines = len(module.COMPARISON.arms(dataclasses.replace(quick, **changes)))
    assert len(part.tables[module.COMPARISON.name]) == lines
    for plot in found.plots[part.id]:
        assert draw(plot).startswith(b"\x89PNG")


@EACH
def test_quick_and_small_sizes_assess_nothing(module):
    lab = LAB[module]
    small, few = dataclasses.replace(lab, width=10), dataclasses.replace(lab, seeds=lab.seeds - 1)
    for settings, preset in ((lab, "quick"), (small, "lab"), (few, "lab")):
        assert {v.word for v in judged(module, settings, preset).values()} == {"not assessed"}


@EACH
def test_lab_assesses_and_its_verdicts_are_plain_booleans(module):
    assert {type(v.holds) for v in judged(module).values()} <= {bool, type(None)}
    assert any(v.holds is not None for v in judged(module).values())


# Samples


def law(settings, exponent, factor=0.4):
    return [factor * (n / settings.d) ** exponent for n in samples.sizes(settings)]


def by_size(settings, name, values, column):
    pairs = zip(samples.sizes(settings), values, strict=True)
    return {samples.key(name, n): {column: value} for n, value in pairs}


@pytest.mark.parametrize("exponent", [-2.5, -1.0, -0.3])
def test_the_fit_recovers_a_known_law(exponent):
    ratios = [1, 1.5, 2.2, 4, 10]
    values = [0.3 * r**exponent for r in ratios]
    assert samples.slope(ratios, values) == pytest.approx(exponent, rel=1e-12)
    noisy = np.array(values) * np.exp([0.1, -0.2, 0.05, 0.2, -0.15])
    expected = stats.linregress(np.log(ratios), np.log(noisy)).slope
    assert samples.slope(ratios, noisy.tolist()) == pytest.approx(expected, rel=1e-12)


def test_a_fit_ends_with_the_first_value_at_the_resolution():
    ratios, resolution = [1, 2, 4, 8, 16], 0.1
    # 0.4, 0.2, then 0.1 for what is below: slope −1 however many zeros follow.
    assert samples.slope(ratios, [0.4, 0.2, 0, 0, 0], resolution) == pytest.approx(-1, rel=1e-12)
    # A zero between two errors stays in the fit, at the resolution.
    between = samples.slope(ratios, [0.4, 0.0, 0.4, 0, 0], resolution)
    expected = stats.linregress(np.log([1, 2, 4, 8]), np.log([0.4, 0.1, 0.4, 0.1])).slope
    assert between == pytest.approx(expected, rel=1e-12)
    assert np.isnan(samples.slope(ratios, [0.0] * 5, resolution))


@pytest.mark.parametrize("exponent, word", [(-2.0, "holds"), (-1.0, "holds"), (-0.5, "fails")])
@pytest.mark.parametrize("column, claim", [("test_error", "error"), ("test_loss", "loss")])
def test_the_law_is_judged_by_the_slope(exponent, word, column, claim):
    lab = LAB[samples]
    made = by_size(lab, "no_bias", law(lab, exponent), column)
    verdict = judged(samples, **made)[f"no_bias_{claim}"]
    assert verdict.word == word
    assert verdict.measured == pytest.approx(exponent, rel=1e-9)


def test_sizes_that_are_all_equal_have_no_slope():
    """`--set n=8` with d = 8 or more gives one size, as often as there are points."""
    assert np.isnan(samples.slope([1.0, 1.0, 1.0], [0.3, 0.2, 0.1]))
    settings = dataclasses.replace(samples.PRESETS["quick"], n=8)
    runs = made_up(samples, settings, **{samples.key("bias", 8): {"test_error": 0.3}})
    found = samples.EXPERIMENT.analyse(settings, "quick", runs)
    assert [v.measured for v in found.verdicts[:4]] == [None] * 4
    assert "not available for the test error" in found.finding


def test_a_law_that_seeds_dispute_is_not_assessed():
    lab = LAB[samples]
    values = zip(*(law(lab, slope) for slope in (-0.2, -1.5, -2.0, -0.2, -0.2)), strict=True)
    made = by_size(lab, "bias", [list(v) for v in values], "test_error")
    verdict = judged(samples, **made)["bias_error"]
    assert verdict.word == "not assessed"
    assert verdict.reason == "the interval lies on both sides of -0.9"


def test_more_examples_with_bias():
    lab = LAB[samples]
    early, late = [0.4] * 2 + [0.0] * 5, [0.4] * 4 + [0.0] * 3
    for bias, word in ((late, "holds"), (early, "fails")):
        made = by_size(lab, "no_bias", early, "test_error")
        made |= by_size(lab, "bias", bias, "test_error")
        assert judged(samples, **made)["bias_needs_more"].word == word


# Algorithms


def gradients(phases, n):
    """Return how many gradients of single examples a schedule takes."""
    return sum((2 if p.algorithm in ("sam", "usam") else 1) * p.epochs * n for p in phases)


def test_every_algorithm_has_the_same_number_of_gradients():
    lab = algorithms.PRESETS["lab"]
    counts = {gradients(algorithms.schedule(key, lab), lab.n) for key in algorithms.LABELS}
    assert counts == {2 * lab.epochs * lab.n}


def test_label_noise_has_the_regulariser_of_sam():
    # (lr σ²/2) Tr against (ρ²/2) Tr.
    noise, sam = algorithms.LR * algorithms.NOISE**2, algorithms.RHO**2
    assert noise == pytest.approx(sam, rel=1e-12)


def test_warm_ups_grow_and_end_at_the_edge():
    lab = algorithms.PRESETS["lab"]
    rates = [p.lr for p in algorithms.schedule("large_lr", lab)]
    radii = [p.rho for p in algorithms.schedule("usam", lab)]
    assert rates == sorted(rates) and radii == sorted(radii) and radii[0] == 0
    # The floor's gradients have ‖∇f‖² = 2√(d+1), and SGD is stable up to lr = 1/‖∇f‖².
    assert rates[-1] == pytest.approx(1 / (2 * 31**0.5), rel=0.01)


@pytest.mark.parametrize(
    "claim, arm, values, word",
    [
        ("sam1.floor", "bias-sam1", {}, "holds"),
        ("sam1.floor", "bias-sam1", {"ratio": 1.2}, "fails"),
        ("sam1.floor", "no_bias-sam1", {"ratio": 1.2}, "holds"),  # with bias is what is judged
        ("sam5.floor", "bias-sam5", {"ratio": [0.9, 1.1, 1.2]}, "not assessed"),
        ("label_noise.bias_generalises", "bias-label_noise", {"test_error": 0.3}, "fails"),
        ("label_noise.bias_generalises", "bias-label_noise", {"test_error": 0.05}, "holds"),
        ("gd_decay.no_bias_generalises", "no_bias-gd_decay", {"test_error": 0.3}, "fails"),
    ],
)
def test_one_change_turns_a_verdict_on_an_algorithm(claim, arm, values, word):
    assert judged(algorithms, **{arm: values})[claim].word == word


def test_a_size_without_runs_leaves_its_network_out_of_the_law():
    lab = LAB[samples]
    runs = made_up(samples, lab)
    gone = f"samples-{samples.key('no_bias', samples.sizes(lab)[0])}-seed"
    kept = {name: run for name, run in runs.items() if not name.startswith(gone)}
    assert len(kept) == len(runs) - lab.seeds
    law = next(p for p in samples.EXPERIMENT.analyse(lab, "lab", kept).plots if "law" in p.name)
    assert [series.label for series in law.panels[0][-1].curves] == ["with bias"]


def test_a_diverged_algorithm_is_not_judged_and_is_named():
    runs = made_up(algorithms, LAB[algorithms])
    name = "algorithms-bias-usam-seed1"
    runs[name] = dataclasses.replace(runs[name], status="diverged", diverged_at=7)
    found = algorithms.EXPERIMENT.analyse(LAB[algorithms], "lab", runs)
    words = {v.claim: v.word for v in found.verdicts}
    assert words["beyond.algorithms.usam.floor"] == "not assessed"
    assert words["beyond.algorithms.usam.no_bias_generalises"] == "holds"
    assert found.finding.endswith("left out: un-normalised SAM (bias).")
    assert found.notes == (f"{name} diverged in epoch 7; its last finite state is used",)


def still_falling(runs, arm, half=60.0, end=40.0):
    """Change an arm's runs so that the trace falls from `half` to `end` in the second half."""
    for name, run in runs.items():
        if name.startswith(f"algorithms-{arm}-seed"):
            epochs, rows = run.config.epochs, run.columns
            columns = {k: np.array([v[0], v[0], v[-1]]) for k, v in rows.items()}
            columns["epoch"] = np.array([0, epochs // 2, epochs])
            columns["trace_ggn"] = np.array([200.0, half, end])
            runs[name] = dataclasses.replace(run, columns=columns)
    return runs


@pytest.mark.parametrize("end, word", [(40.0, "not assessed"), (55.0, "fails")])
def test_an_algorithm_still_on_its_way_does_not_fail_and_is_named(end, word):
    lab = LAB[algorithms]
    made = made_up(algorithms, lab, **{"bias-sam5": {"test_error": 0.3}})
    runs = still_falling(made, "bias-sam5", end=end)
    found = algorithms.EXPERIMENT.analyse(lab, "lab", runs)
    verdicts = {v.claim.removeprefix("beyond.algorithms.sam5."): v for v in found.verdicts}
    assert verdicts["floor"].word == word
    assert verdicts["no_bias_generalises"].word == "holds"
    assert verdicts["bias_generalises"].word == word
    assert ("Their traces still fall: 5-SAM (bias)." in found.finding) == (word != "fails")
    if word != "fails":
        assert "the trace went from 60.0 to 40.0" in verdicts["floor"].reason


def test_an_algorithm_that_has_arrived_is_judged_although_its_trace_fell():
    lab = LAB[algorithms]
    floor = 4 * 31**0.5
    runs = still_falling(made_up(algorithms, lab), "bias-usam", half=2 * floor, end=floor)
    found = algorithms.EXPERIMENT.analyse(lab, "lab", runs)
    words = {v.claim.removeprefix("beyond.algorithms."): v.word for v in found.verdicts}
    assert words["usam.floor"] == words["usam.bias_generalises"] == "holds"


def test_the_finding_names_who_does_both():
    lab = LAB[algorithms]
    made = {f"bias-{key}": {"ratio": 3.0, "test_error": 0.4} for key in algorithms.LABELS}
    made["bias-sam1"] = {"test_error": 0.3}
    made["bias-label_noise"] = {"test_error": 0.01}
    found = algorithms.EXPERIMENT.analyse(lab, "lab", made_up(algorithms, lab, **made)).finding
    assert "floor of the trace 1-SAM and label-noise SGD;" in found
    assert "both label-noise SGD." in found and "Diverged" not in found


# Rescue


def test_every_remedy_is_one_change():
    lab = rescue.PRESETS["lab"]
    plain = rescue.schedule("plain", lab)
    for key in rescue.CHANGES:
        changed = {
            field.name
            for old, new in zip(plain, rescue.schedule(key, lab), strict=True)
            for field in dataclasses.fields(old)
            if getattr(old, field.name) != getattr(new, field.name)
        }
        assert len(changed) == (key != "plain")
    assert [p.rho for p in rescue.schedule("radius_fifth", lab)] == [0.01, 0.02]
    assert rescue.schedule("no_bias", lab) == plain


@pytest.mark.parametrize(
    "values, word",
    [
        ({"test_error": 0.02, "ratio": 1.05}, "holds"),
        ({"test_error": 0.02, "ratio": 1.2}, "fails"),
        ({"test_error": 0.02, "ratio": 0.8}, "fails"),
        ({"test_error": 0.3, "ratio": 1.0}, "fails"),
        ({"test_error": [0.0, 0.15, 0.05], "ratio": 1.0}, "not assessed"),
    ],
)
def test_a_rescue_needs_both(values, word):
    assert judged(rescue, input_noise_large=values)["input_noise_large"].word == word


def test_a_remedy_can_succeed_and_not_last():
    lab = LAB[rescue]
    made = made_up(rescue, lab, bias_lr_small_long={"test_error": 0.3})
    found = rescue.EXPERIMENT.analyse(lab, "lab", made)
    words = {v.claim.removeprefix("beyond.rescue."): v.word for v in found.verdicts}
    assert (words["bias_lr_small"], words["bias_lr_small_long"]) == ("holds", "fails")
    assert words["decay_small_long"] == "holds"
    said = found.finding.partition("still in every seed: ")[2]
    assert said.startswith("weight decay 0.1 on the bias, weight decay 0.001 on all and")
    assert "bias learns ten times slower 0.300" in said
    long = rescue.schedule("bias_lr_small", lab, long=True)
    assert [p.epochs for p in long] == [80_000, 160_000] and long[0].first_layer.bias_lr == 0.001


def test_early_stopping_takes_the_last_of_the_best_epochs():
    lab = LAB[rescue]
    run = made_up(rescue, lab)["rescue-plain-seed0"]
    history = {
        "epoch": np.array([0, 1, 2, 3, 4]),
        "test_error": np.array([0.0, 0.2, 0.05, 0.05, 0.3]),  # before training is no choice
        "trace_ggn": np.array([200.0, 60.0, 40.0, 30.0, 22.3]),
    }
    run = dataclasses.replace(run, columns=history)
    assert rescue.stopped(run).final == {"epoch": 3, "test_error": 0.05, "trace_ggn": 30.0}
    assert rescue.stopped(rescue.cut(run, 0)).final["epoch"] == 0


def test_early_stopping_and_any_epoch_are_judged_from_the_plain_runs():
    lab = LAB[rescue]
    runs = made_up(rescue, lab, plain={"test_error": 0.3})
    floor = 4 * 31**0.5
    for seed in range(3):
        name = f"rescue-plain-seed{seed}"
        history = {
            **{k: np.full(4, 1.0) for k in ("train_loss", "test_loss")},
            "epoch": np.array([0, 1, 2, 3]),
            "test_error": np.array([0.5, 0.0, 0.08, 0.3]),
            "trace": np.array([5, 1.5, 1.05, 1.0]) * floor,
            "trace_ggn": np.array([5, 1.5, 1.05, 1.0]) * floor,
        }
        runs[name] = dataclasses.replace(runs[name], columns=history)
    found = rescue.EXPERIMENT.analyse(lab, "lab", runs)
    verdicts = {v.claim: v for v in found.verdicts}
    assert verdicts["beyond.rescue.plain"].word == "fails"
    # The smallest test error stands at 1.5 floors: (1.5 − 1)/0.1.
    assert verdicts["beyond.rescue.early"].measured == pytest.approx(5, rel=1e-9)
    # Epoch 2 has both: 0.08/0.1 is the larger miss.
    assert verdicts["beyond.rescue.any_epoch"].measured == pytest.approx(0.8, rel=1e-9)
    assert verdicts["beyond.rescue.any_epoch"].word == "holds"
    (row,) = [r for r in found.tables["rescue"] if r["arm"] == "early stopping"]
    assert row["trace/floor"] == pytest.approx(1.5, rel=1e-12) and row["test_error"] == 0


# Global


@pytest.mark.parametrize("hits, total", [(0, 50), (1, 50), (25, 50), (49, 50), (50, 50), (3, 7)])
def test_the_interval_of_a_share_is_scipys_exact_one(hits, total):
    found = proportion(hits, total)
    exact = stats.binomtest(hits, total).proportion_ci(0.95, method="exact")
    assert found.mean == hits / total
    # The same beta quantiles by two routes.
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "hits, word", [(20, "holds"), (18, "not assessed"), (10, "fails"), (0, "fails")]
)
def test_a_share_is_judged_by_its_interval(hits, word):
    """Of 20: all gives [0.83, 1], 18 gives [0.68, 0.99], 10 gives [0.27, 0.73]."""
    found = mostly("c", "s", [True] * hits + [False] * (20 - hits), 0.8, decisive=True)
    assert found.word == word and f"{hits} of 20 seeds" in found.reason
    assert mostly("c", "s", [True] * 20, 0.8, decisive=False).holds is None
    assert mostly("c", "s", [], 0.8, decisive=True).measured is None


@pytest.mark.parametrize(
    "ratio, words",
    [
        (1.01, {"within_10": "holds", "within_2": "holds"}),
        (0.95, {"within_10": "holds", "within_2": "fails"}),
        (1.3, {"within_10": "fails", "within_2": "fails"}),
        ([1.0, 1.5] * 25, {"within_10": "fails", "within_2": "fails"}),
    ],
)
@pytest.mark.parametrize("network", global_minimum.NETWORKS)
def test_shares_follow_the_distance_to_the_floor(network, ratio, words):
    found = judged(global_minimum, **{network: {"ratio": ratio}})
    assert {claim: found[f"{network}_{claim}"].word for claim in words} == words


def test_floors_are_those_of_the_theory():
    lab = global_minimum.PRESETS["lab"]
    arms = {arm.key: arm for arm in global_minimum.arms(lab)}
    data = Run(arms["bias"].config(0), {}, {}, "", 0.0).dataset()
    expected = {"bias": 4 * 21**0.5, "sim_ln": 2.0, "three": 6 * 21 ** (1 / 3)}
    assert {key: arm.floor(data) for key, arm in arms.items()} == pytest.approx(expected, rel=1e-12)
    assert len({arm.config(0).digest() for arm in arms.values()}) == 3 and lab.seeds == 50
