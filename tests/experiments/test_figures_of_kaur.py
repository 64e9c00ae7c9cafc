"""The figures of Kaur, Cohen & Lipton: shared runs, verdicts on made-up runs, quick presets."""

import dataclasses
import math
import os
from pathlib import Path

import numpy as np
import pytest

from flatlab import experiments, report
from flatlab.claims import claims
from flatlab.claims.decided import decided
from flatlab.errors import UserError
from flatlab.experiments import CATALOGUE, Results
from flatlab.experiments.catalogue import settings_of
from flatlab.experiments.computing import Computed
from flatlab.experiments.contract import Planned
from flatlab.experiments.kaur2022 import _protocol as protocol
from flatlab.experiments.kaur2022 import fig1, fig2, fig3, fig4, fig5, fig6, fig8, fig11, measures
from flatlab.experiments.kaur2022._between import largest_between
from flatlab.experiments.work import planned_work
from flatlab.training.run import Run
from flatlab.training.schedule import LogGrid
from flatlab.training.session import run_config

KAUR = [id for id in CATALOGUE if id.startswith("kaur2022/")]
FIGURES = [id for id in KAUR if "fig" in id]
IMAGES = pytest.mark.skipif(
    not os.environ.get("FLATLAB_DATA"), reason="FLATLAB_DATA is not set: no images"
)


def digests(id, preset, seeds=1):
    """Return the digests of an experiment's training runs."""
    experiment = CATALOGUE[id]
    settings = dataclasses.replace(experiment.presets[preset], seeds=seeds)
    work = planned_work(experiment, settings).values()
    return {item.key for item in work if isinstance(item.planned, Planned) and not item.before}


def test_all_figures_are_there():
    assert [*(f"kaur2022/fig{k}" for k in range(1, 12)), "kaur2022/measures"] == KAUR


@pytest.mark.parametrize("preset", ["quick", "lab", "paper"])
def test_runs_are_shared_between_figures(preset):
    own = {id.partition("/")[2]: digests(id, preset) for id in KAUR}
    assert own["fig2"] == own["fig1"] < own["fig3"]
    assert own["fig5"] < own["fig4"]
    assert own["fig1"] & own["fig6"] and own["fig1"] & own["fig7"]  # a radius of 0
    assert len(own["fig1"] & own["fig11"]) == len(own["fig11"]) / 2  # without BatchNorm
    figures = set.union(*(own[name] for name in own if name != "measures"))
    assert own["measures"] < figures  # nothing is trained for the measures alone


def test_lab_decides_nothing_yet_and_paper_does():
    for id in KAUR:
        experiment = CATALOGUE[id]
        assert "for a first look" in experiment.too_small(experiment.presets["lab"], "lab")
        assert experiment.too_small(experiment.presets["paper"], "paper") == ""


def test_the_protocol_is_the_authors():
    config = fig1.COMPARISON.arms(fig1.PRESETS["paper"])[0].config(0)
    (phase,) = config.schedule
    assert (phase.algorithm, phase.momentum, phase.weight_decay) == ("sgd", None, 0)
    assert phase.until.accuracy == 0.99 and phase.until.every == 1
    assert (config.arch.kind, config.loss.name) == ("vgg11", "cross_entropy")
    assert (config.data["n"], phase.batch_size) == (50_000, 100)
    (tracked,) = config.measures
    assert tracked.examples == 1000 and tracked.mode == "eval"
    normalised = CATALOGUE["kaur2022/fig11"].plan(CATALOGUE["kaur2022/fig11"].presets["paper"])
    both = next(p.config.measures for p in normalised if p.name.endswith("bn-seed0"))
    assert [(t.mode, t.batch_size) for t in both] == [("train", 1000), ("eval", None)]
    grid = fig8.PRESETS["paper"].dropouts
    assert grid == (0.0, 0.1, 0.2, 0.5, 0.6, 0.7)


def test_a_batch_size_between_two_has_rates_and_epochs_between():
    s = fig3.PRESETS["lab"]
    low, middle, high = (protocol.rates_of(s, batch) for batch in (20, 200, 2000))
    assert low == s.small_rates and high == s.large_rates
    assert all(a < b < c for a, b, c in zip(low, middle, high, strict=True))
    assert middle[0] == pytest.approx(math.sqrt(low[0] * high[0]), rel=0.01)
    assert protocol.epochs_of(s, 20) == s.epochs < protocol.epochs_of(s, 200) < s.large_epochs


# Verdicts on made-up runs: the preset `paper` decides, with the sizes of `lab`.


def made_up(comparison, settings, law, then=None):
    """Return results by name: `law(cell's config, rng)` gives accuracy, λ_max, loss, status."""
    made = {}
    for planned in comparison.plan(settings):
        if isinstance(planned, Planned):
            rng = np.random.default_rng([planned.config.seed, len(made)])
            points, top, loss, status = law(planned.config, rng)
            logged = {
                "epoch": [0, 1, 5],
                "lambda_max": [30.0, top, top],
                "lambda_max_eval": [60.0] * 3,
            }
            logged |= {"test_error": [0.9, 0.5, 1 - points / 100], "train_loss": [2.3, 1.0, loss]}
            columns = {name: np.array(values) for name, values in logged.items()}
            made[planned.name] = Run(planned.config, columns, {}, status, 1.0)
        else:
            made[planned.name] = Computed(then(planned), 1.0, None)
    return made


def judged(module, law, preset="paper", then=None, **changes):
    """Return claim → verdict, and the findings, on made-up runs."""
    settings = dataclasses.replace(module.PRESETS["lab"], **changes)
    runs = made_up(module.COMPARISON, settings, law, then)
    findings = module.COMPARISON.analyse(settings, preset, runs)
    return {v.claim.rpartition(".")[2]: v for v in findings.verdicts}, findings


def as_printed(config, rng):
    """The paper's Figure 1: accuracy rises with η at batch 20 and flattens at the full batch."""
    (phase,) = config.schedule
    if phase.batch_size == 20:
        points = 60 + 8 * math.log10(phase.lr / 0.003)
    else:
        points = 55 + 8 * math.log10(min(phase.lr, 0.2) / 0.05)
    top = 2 / phase.lr * (0.3 if phase.batch_size == 20 else 1.0)
    return points + 0.2 * rng.normal(), top * math.exp(0.05 * rng.normal()), 0.01, "reached"


def turned(config, rng):
    """The opposite of everything: λ_max rises with η, accuracy falls."""
    (phase,) = config.schedule
    return 60 - 10 * math.log10(phase.lr) + 0.1 * rng.normal(), 100 * phase.lr, 0.01, "reached"


def noise(config, rng):
    return 50 + 3 * rng.normal(), math.exp(rng.normal()), 0.01, "reached"


def test_figure_1_as_printed_holds():
    verdicts, findings = judged(fig1, as_printed)
    assert {name for name, v in verdicts.items() if v.holds} == set(verdicts)
    assert verdicts["large_edge"].measured == pytest.approx(1, abs=0.05)
    assert "corrected for 8 claims" in verdicts["small_lambda_falls"].reason
    assert verdicts["small_equal_loss"].paper == "silent"
    assert findings.notes == ("All 80 runs reached 99% training accuracy.",)
    assert "holds" in findings.finding


def test_figure_1_turned_round_fails():
    verdicts, _ = judged(fig1, turned)
    for name in ("small_lambda_falls", "large_lambda_falls", "small_accuracy_rises", "large_edge"):
        assert verdicts[name].holds is False, name


def test_figure_1_of_noise_is_open():
    verdicts, _ = judged(fig1, noise)
    decided_ = [name for name, v in verdicts.items() if v.holds is not None]
    assert decided_ in ([], ["large_edge"])  # far from 2/η is a fact


def test_nothing_is_decided_in_lab():
    verdicts, findings = judged(fig1, as_printed, "lab")
    assert {v.holds for v in verdicts.values()} == {None} and findings.finding == ""
    assert verdicts["small_lambda_falls"].measured == -1


def missing(config, rng):
    """As printed, but at the largest learning rate of the full batch two seeds miss 99 %."""
    points, top, loss, status = as_printed(config, rng)
    (phase,) = config.schedule
    gone = phase.batch_size == 2000 and phase.lr == 0.4 and config.seed < 2
    return points, top, loss, "missed" if gone and phase.until.accuracy else status


def test_runs_that_missed_are_counted_and_never_dropped_in_silence():
    verdicts, findings = judged(fig1, missing)
    said = "judged without batch 2,000, η = 0.4 (2 of 8 missed)"
    assert said in verdicts["large_lambda_falls"].reason
    assert said not in verdicts["small_lambda_falls"].reason
    assert verdicts["large_lambda_falls"].holds  # by the other learning rates
    row = next(r for r in findings.tables["fig1"] if r["setting"] == "batch 2,000, η = 0.4")
    assert (row["runs"], row["missed"], row["diverged"]) == (8, 2, 0)
    assert findings.notes[0] == "2 of 80 runs missed 99% training accuracy (open markers)."
    assert findings.notes[1] == "batch 2,000, η = 0.4: 2 of 8 missed"
    (plot,) = findings.plots
    assert "2 of 80 runs missed" in plot.caption
    large = plot.panels[0][0].curves[1]
    assert large.open.tolist() == [False] * 4 + [True]
    assert np.isfinite(large.y).all()  # drawn too


def test_a_figure_whose_runs_all_missed_decides_nothing():
    verdicts, _ = judged(fig1, lambda config, rng: (40.0, 5.0, 1.0, "missed"))
    assert {v.holds for v in verdicts.values()} == {None}
    assert "all reached the training accuracy" in verdicts["small_lambda_falls"].reason


def test_a_diverged_run_has_no_place_in_a_mean():
    def law(config, rng):
        gone = config.seed == 0 and config.schedule[0].lr == 0.03
        return (10.0, 1e30, 9.0, "diverged") if gone else as_printed(config, rng)

    _, findings = judged(fig1, law)
    row = next(r for r in findings.tables["fig1"] if r["setting"] == "batch 20, η = 0.03")
    assert row["diverged"] == 1 and row["lambda_max"] < 100


def test_pairs_of_equal_sharpness_are_found_by_the_rule():
    def law(config, rng):
        (phase,) = config.schedule
        small = phase.batch_size == 20
        return (60.0 if small else 55.0) + 0.1 * rng.normal(), 20.0, 0.01, "reached"

    verdicts, findings = judged(fig2, law)
    assert verdicts["equal_lambda"].holds
    assert verdicts["equal_lambda"].measured == pytest.approx(5, abs=0.2)
    assert len(findings.tables["fig2-pairs"]) == 25
    assert all(row["excludes_0"] for row in findings.tables["fig2-pairs"])
    apart, findings = judged(fig2, as_printed, alike=1.0001)
    assert not findings.tables["fig2-pairs"] and apart["equal_lambda"].holds is None


def test_the_gain_fades_with_the_batch_size():
    def law(config, rng):
        (phase,) = config.schedule
        rates = protocol.rates_of(fig3.PRESETS["lab"], phase.batch_size)
        place = rates.index(phase.lr) / 4
        gain = 6 * (1 - math.log(phase.batch_size / 20) / math.log(100))
        return 50 + gain * place + 0.1 * rng.normal(), 1 / phase.lr, 0.01, "reached"

    verdicts, _ = judged(fig3, law)
    assert all(v.holds for v in verdicts.values())


def test_equal_accuracy_at_a_fixed_ratio_is_an_equivalence():
    def law(spread):
        def made(config, rng):
            lr = config.schedule[0].lr
            return 50 + spread * rng.normal(), 1 / lr, 0.01, "reached"

        return made

    close, _ = judged(fig4, law(0.2))
    wide, _ = judged(fig4, law(4.0))
    assert all(v.holds for v in close.values())
    for name, verdict in wide.items():  # an absent difference is no equality
        assert verdict.holds is (None if name.startswith("same") else True)
    through, _ = judged(fig5, law(1.0))
    assert through["throughout"].holds and through["throughout"].measured == -1


def test_sam_helps_only_with_small_batches():
    def law(config, rng):
        (phase,) = config.schedule
        gain = 30 * phase.rho if phase.batch_size == 20 else -5 * phase.rho
        return 50 + gain + 0.1 * rng.normal(), 50 - 100 * phase.rho, 0.01, "reached"

    verdicts, _ = judged(fig6, law)
    assert all(v.holds for v in verdicts.values())


def test_batch_norm_counts_between_iterates_at_small_rates():
    def law(config, rng):
        lr, with_it = config.schedule[0].lr, config.arch.batch_norm
        gain = (6 if lr > 0.15 else -6) if with_it else 0
        top = 2 / lr * (0.2 if with_it and lr < 0.2 else 1.0)  # far too low at the iterate
        return 50 + gain + lr + 0.1 * rng.normal(), top, 0.01, "reached"

    def then(planned):
        rate = float(planned.name.partition("lr")[2].partition("-")[0])
        return {"lambda_max": [2 / rate] * 8, "largest": 2 / rate}

    verdicts, findings = judged(fig11, law, then=then)
    assert verdicts["lambda_alike"].holds and verdicts["lambda_alike"].measured == pytest.approx(1)
    assert verdicts["small_rate_worse"].holds and verdicts["large_rate_better"].holds
    assert verdicts["eval_larger"].paper == "silent"
    first = findings.tables["fig11-statistics"][0]
    assert first["counts"] == "between iterates" and first["between_iterates"] == pytest.approx(40)


def test_measures_that_survive_and_that_pooling_turns_round():
    """λ_max follows accuracy everywhere; the trace over learning rates, and not over all runs."""

    def law(config, rng):
        (phase,) = config.schedule
        drop = getattr(config.arch, "dropout", 0.0)
        place = (
            math.log(phase.lr)
            + 20 * phase.rho
            + 5 * drop
            + 3 * config.arch.__dict__.get("batch_norm", False)
        )
        return 50 + place + 0.01 * rng.normal(), math.exp(-place), 0.01, "reached"

    settings = measures.PRESETS["lab"]
    runs = {}

    def then(planned):
        run = runs[planned.after]
        top, flat = run.final["lambda_max"], {"stderr": 0.0, "labels": [], "details": {}}
        (phase,) = run.config.schedule
        other = phase.rho or phase.batch_size > 20 or getattr(run.config.arch, "batch_norm", False)
        values = {"lambda_max": top, "trace": 1e9 / top if other else top, "frobenius": top}
        values |= {
            "sam_sharpness": top,
            "sam_sharpness_steps": 1e-3 * top,
            "adaptive_sharpness": top,
        }
        read = {name: {"value": value, **flat} for name, value in values.items()}
        read["sam_sharpness"]["details"] = {"gradient_norm": top}
        labels = {
            "value": [1.0, 1.0, -top],
            "stderr": 0.0,
            "labels": ["α", "β", "μ"],
            "details": {},
        }
        return {
            "measures": {f"{name}:x=1": one for name, one in {**read, "alignment": labels}.items()}
        }

    for planned in measures.COMPARISON.plan(settings):
        if isinstance(planned, Planned):
            rng = np.random.default_rng([planned.config.seed, len(runs)])
            points, top, loss, status = law(planned.config, rng)
            columns = {"epoch": [5], "lambda_max": [top], "test_error": [1 - points / 100]}
            columns = {k: np.array(v) for k, v in {**columns, "train_loss": [loss]}.items()}
            runs[planned.name] = Run(planned.config, columns, {}, status, 1.0)
        else:
            runs[planned.name] = Computed(then(planned), 1.0, None)
    findings = measures.COMPARISON.analyse(settings, "paper", runs)
    verdicts = {v.claim: v for v in findings.verdicts}
    assert verdicts["kaur2022.measures.lambda_max"].holds
    assert verdicts["kaur2022.measures.alignment"].holds is False  # larger is better here
    assert verdicts["kaur2022.A1.trained"].holds and verdicts["kaur2022.A1.trained"].paper == "yes"
    rows = {(r["measure"], r["intervention"]): r for r in findings.tables["measures"]}
    assert rows["trace", "all"]["tau"] > 0 > rows["trace", "learning rate"]["tau"]
    assert rows["trace", "learning rate"]["reversal"]
    assert not rows["λ_max", "learning rate"]["reversal"]
    assert findings.finding.startswith("A smaller λ_max")
    assert "trace (learning rate)" in findings.finding


# Settings, data and networks


def test_any_network_and_data_set_can_be_asked():
    (made,) = settings_of(
        [CATALOGUE["kaur2022/fig1"]],
        "quick",
        None,
        {"arch": "mlp:widths=[9]", "data": "fashion_mnist"},
    ).values()
    config = fig1.COMPARISON.arms(dataclasses.replace(made, size=7))[0].config(3)
    assert config.arch.describe() == "mlp:widths=[9]" and config.data["name"] == "fashion_mnist"
    own = protocol.architecture("module:factory=mine.py:net,options.width=3", batch_norm=True)
    assert own.options == {"width": 3, "batch_norm": True} and own.normalises
    with pytest.raises(UserError, match="needs a network with batch_norm, which mlp has not"):
        protocol.architecture("mlp", batch_norm=True)
    with pytest.raises(UserError, match="unknown architecture 'resnet'"):
        protocol.architecture("resnet")
    with pytest.raises(UserError, match="unknown data set 'imagenet'"):
        protocol.data_of(dataclasses.replace(made, data="imagenet"))


def test_other_seeds_than_those_of_a_pilot():
    settings = dataclasses.replace(fig1.PRESETS["quick"], first_seed=100)
    planned = fig1.COMPARISON.plan(settings)
    assert {p.config.seed for p in planned} == {100, 101}
    assert any(p.name.endswith("seed100") for p in planned)


def test_a_batch_larger_than_the_data_and_missing_data_are_one_line(monkeypatch, tmp_path):
    settings = dataclasses.replace(fig1.PRESETS["quick"], n=20)
    with pytest.raises(UserError, match=r"^n must be >= 50, the largest batch size, got 20$"):
        fig1.COMPARISON.plan(settings)
    monkeypatch.setenv("FLATLAB_DATA", str(tmp_path))
    with pytest.raises(UserError, match="flatlab data get cifar10"):
        experiments.run("kaur2022/fig1", "quick", out=tmp_path, workers=0)
    assert fig1.COMPARISON.plan(fig1.PRESETS["quick"])  # a plan needs no files


def test_verify_shows_the_stored_verdicts(tmp_path):
    for figure in range(1, 12):
        assert claims()[f"kaur2022.fig{figure}"].experiment == f"kaur2022/fig{figure}"
    assert claims()["kaur2022.A1.trained"].experiment == "kaur2022/measures"
    assert all(f"kaur2022/fig{k}" in CATALOGUE for k in range(1, 12))


# The quick presets, on real images


@IMAGES
@pytest.mark.slow
def test_one_figure_runs_from_end_to_end(tmp_path):
    """With BatchNorm: trained, measured in both modes, and between iterates."""
    tiny = {"n": 50, "n_test": 20, "large_epochs": 40, "measured": 10, "accuracy": 0.3}
    found = experiments.run("kaur2022/fig11", "quick", out=tmp_path, changes=tiny, workers=0)
    assert found.status == "done" and not found.failed
    assert {run.kind for run in found.runs} == {"training", "computation"}
    report.publish(found)
    rows = found.experiments[0].tables["fig11-statistics"]
    for row in rows:
        assert row["between_iterates"] >= 0.9 * row["at_iterate"]  # the iterate is one of eight
        assert row["running_statistics"] != row["at_iterate"]
    (claim, *_) = [v for v in found.verdicts if v.claim.endswith("lambda_alike")]
    assert claim.verdict == "not assessed" and claim.measured is not None
    assert decided(claims()["kaur2022.fig11"], {tmp_path: found}).verdict == "not assessed"


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """All figures at the preset quick, in one call."""
    folder = tmp_path_factory.mktemp("kaur")
    found = experiments.run("kaur2022", "quick", out=folder, workers=0)
    report.publish(found)
    return found


@IMAGES
@pytest.mark.slow
def test_every_quick_figure_runs(quick):
    assert quick.status == "done" and not quick.failed and not quick.left_out
    assert [part.id for part in quick.experiments] == KAUR
    assert {v.verdict for v in quick.verdicts} == {"not assessed"}
    for part in quick.experiments:
        assert part.figures and part.tables and "99% training accuracy" in part.notes[0]
        for table in part.tables.values():
            assert all(row for row in table)
    assert Results.load(Path(quick.folder)).ids == ("kaur2022",)


@IMAGES
@pytest.mark.slow
def test_quick_figures_share_runs(quick):
    total = sum(part.runs for part in quick.experiments)
    assert len(quick.runs) < 0.8 * total


@IMAGES
@pytest.mark.slow
def test_larger_rates_are_flatter_even_in_quick(quick):
    """Two seeds of a hundred images: no verdict, but the sign is that of the paper."""
    found = {v.claim.partition("kaur2022.")[2]: v.measured for v in quick.verdicts}
    for name in ("fig1.small_lambda_falls", "fig1.large_lambda_falls", "fig6.small_lambda_falls"):
        assert found[name] < 0


@IMAGES
@pytest.mark.slow
def test_the_preset_paper_runs_on_a_tiny_grid(tmp_path):
    """VGG11 with a sixteenth of its channels, one epoch."""
    tiny = {"arch": "vgg11:channels=0.0625", "n": 60, "n_test": 20, "small": 20, "large": 60}
    tiny |= {"epochs": 1, "large_epochs": 1, "measured": 10, "tolerance": 0.2}
    tiny |= {"small_rates": [0.01, 0.02], "large_rates": [0.01, 0.02]}
    found = experiments.run(
        "kaur2022/fig1", "paper", out=tmp_path, seeds=1, changes=tiny, workers=0
    )
    assert found.status == "done" and not found.failed and len(found.runs) == 8
    assert {v.verdict for v in found.verdicts} == {"not assessed"}


@IMAGES
def test_sharpness_between_iterates_starts_at_the_iterate(tmp_path):
    """The first of the eight points is the run's end, the last the network after one more step."""
    arm = fig11.COMPARISON.arms(dataclasses.replace(fig11.PRESETS["quick"], large_epochs=2))[0]
    config = dataclasses.replace(arm.config(0), log=LogGrid(per_decade=0, regular=0))
    run = run_config(config, out=tmp_path / "run")
    request = dict(arm.then["between"].payload)
    found = largest_between({**request, "after": str(tmp_path / "run")}, lambda info: None)
    assert len(found["lambda_max"]) == 8 and found["largest"] == max(found["lambda_max"])
    within = 0.05 + 1e-6  # the tolerance of both
    assert found["lambda_max"][0] == pytest.approx(run.final["lambda_max"], rel=within)
    assert found["lambda_max"][-1] != found["lambda_max"][0]


@IMAGES
def test_the_batch_size_of_a_tracked_measure_decides_the_statistics():
    arm = fig11.COMPARISON.arms(dataclasses.replace(fig11.PRESETS["quick"], large_epochs=1))[0]
    first, running = arm.config(0).measures
    sizes = [dataclasses.replace(first, batch_size=size, label=f"of_{size}") for size in (5, 10)]
    whole = dataclasses.replace(first, batch_size=None, label="whole")
    config = dataclasses.replace(arm.config(0), measures=(first, whole, *sizes, running))
    final = run_config(config).final
    assert final["lambda_max"] == final["whole"]  # 30 examples in batches of 30
    assert len({final["whole"], final["of_5"], final["of_10"], final["lambda_max_eval"]}) == 4
