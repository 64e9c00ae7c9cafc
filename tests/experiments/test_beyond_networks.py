"""Beyond the paper: depth, standard norms, parities and Gaussian mixtures."""

import dataclasses

import numpy as np
import pytest

from flatlab.data import xor
from flatlab.data.catalogue import make
from flatlab.errors import UserError
from flatlab.experiments import CATALOGUE
from flatlab.experiments.arms import trained_on
from flatlab.experiments.beyond import depth, gaussian_mixture, parity_k, standard_norms
from flatlab.experiments.running import run
from flatlab.experiments.sizes import Sizes
from flatlab.models import TwoLayer
from flatlab.theory import bias_floor, no_bias_floor
from flatlab.training.run import Run
from flatlab.training.schedule import Phase

MODULES = {m.EXPERIMENT.id: m for m in (depth, standard_norms, parity_k, gaussian_mixture)}
ALL = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)


def made_up(module, settings, **final):
    """Return every planned run with a history of three rows; `final` is arm → columns.

    A value is one for all seeds or a list with one for each; the default is an error of zero.
    """
    runs = {}
    for arm in module.COMPARISON.arms(settings):
        for seed in range(settings.seeds):
            config = arm.config(seed)
            last = {"train_loss": 1e-3, "trace": 30.0, "trace_ggn": 30.0, "test_loss": 0.1}
            last |= {"test_error": 0.0} | final.get(arm.key, {})
            values = {k: v[seed] if isinstance(v, list) else v for k, v in last.items()}
            columns = {k: np.array([1.0, 0.5, v]) for k, v in values.items()}
            columns["epoch"] = np.array([0, 10, config.epochs])
            name = module.COMPARISON.run_name(arm.key, seed)
            runs[name] = Run(config, columns, params={}, status="done", seconds=1.0)
    return runs


def analysed(module, final, settings=None, preset="lab"):
    settings = settings or module.PRESETS["lab"]
    return module.EXPERIMENT.analyse(settings, preset, made_up(module, settings, **final))


def word(module, claim, final):
    prefix = f"beyond.{module.COMPARISON.name.replace('-', '_')}."
    found = {v.claim.removeprefix(prefix): v for v in analysed(module, final).verdicts}
    return found[claim].word


@ALL
def test_they_are_in_the_catalogue_with_two_presets(module):
    assert CATALOGUE[module.EXPERIMENT.id] is module.EXPERIMENT
    assert set(module.PRESETS) == {"quick", "lab"}
    assert module.PRESETS["lab"].seeds >= 3
    with pytest.raises(UserError, match="unknown preset 'paper': allowed: lab, quick"):
        run(module.EXPERIMENT.id, "paper")


@ALL
def test_sizes_below_lab_assess_nothing(module):
    lab = module.PRESETS["lab"]
    smaller = [
        f.name
        for f in dataclasses.fields(lab)
        if f.name in ("width", "d", "n") or f.name.startswith("n_") or "epochs" in f.name
    ]
    assert len(smaller) >= 6
    for name in smaller:
        settings = dataclasses.replace(lab, **{name: getattr(lab, name) - 1}, seeds=1)
        found = analysed(module, {}, settings).verdicts
        assert {v.word for v in found} == {"not assessed"}, name
    assert {v.word for v in analysed(module, {}, preset="quick").verdicts} == {"not assessed"}
    assert "not assessed" not in {v.word for v in analysed(module, {}).verdicts}


@ALL
def test_claims_are_named_after_the_experiment_once_each(module):
    claims = [v.claim for v in analysed(module, {}).verdicts]
    name = module.COMPARISON.name.replace("-", "_")
    assert len(set(claims)) == len(claims)
    assert all(claim.startswith(f"beyond.{name}.") for claim in claims)


@ALL
def test_arms_of_one_comparison_share_data_and_differ_in_their_runs(module):
    planned = module.COMPARISON.plan(module.PRESETS["lab"])
    assert len({p.config.digest() for p in planned}) == len(planned)
    assert all(p.config.seed == p.config.data["seed"] for p in planned)


BAD, GOOD, MIXED = 0.3, 0.02, [0.0, 0.1, 0.2]


@pytest.mark.parametrize(
    "module, claim, arm, error, expected",
    [
        (depth, "no_bias_generalises_4", "no_bias_4", GOOD, "holds"),
        (depth, "no_bias_generalises_4", "no_bias_4", BAD, "fails"),
        (depth, "no_bias_generalises_4", "no_bias_4", [*MIXED, 0.1, 0.1], "not assessed"),
        (depth, "bias_fails_3", "bias_3", BAD, "holds"),
        (depth, "bias_fails_3", "bias_3", GOOD, "fails"),
        (depth, "bias_hurts_5", "bias_5", BAD, "holds"),
        (depth, "bias_hurts_5", "no_bias_5", BAD, "fails"),
        (standard_norms, "std_ln_generalises", "std_ln", GOOD, "holds"),
        (standard_norms, "std_ln_generalises", "std_ln", BAD, "fails"),
        (standard_norms, "bn_alike", "std_bn", GOOD, "holds"),
        (standard_norms, "bn_alike", "std_bn", BAD, "fails"),
        (standard_norms, "bn_alike", "sim_bn", BAD, "fails"),
        (standard_norms, "bn_alike", "std_bn", MIXED, "not assessed"),
        (parity_k, "k4_large_no_bias", "k4_large_no_bias_sam", GOOD, "holds"),
        (parity_k, "k4_large_no_bias", "k4_large_no_bias_sam", BAD, "fails"),
        (parity_k, "k4_large_no_bias", "k4_large_no_bias_gd", BAD, "holds"),  # not what is claimed
        (parity_k, "k3_small_no_bias", "k3_small_no_bias_sam", BAD, "holds"),  # it cannot learn it
        (parity_k, "k3_small_no_bias", "k3_small_no_bias_sam", GOOD, "fails"),
        (parity_k, "k2_small_bias", "k2_small_bias_sam", BAD, "holds"),
        (parity_k, "k2_large_bias", "k2_large_bias_sam", BAD, "fails"),
        (parity_k, "bias_hurts_k3_large", "k3_large_no_bias_sam", BAD, "fails"),
        (parity_k, "bias_hurts_k3_large", "k3_large_bias_sam", BAD, "holds"),
        (gaussian_mixture, "memorises_bias_s2_small", "s2_small_bias_sam", BAD, "holds"),
        (gaussian_mixture, "memorises_bias_s2_small", "s2_small_bias_gd", BAD, "fails"),
        (gaussian_mixture, "memorises_no_bias_s1p5_large", "s1p5_large_no_bias_sam", BAD, "holds"),
        (gaussian_mixture, "bias_hurts_s3_large", "s3_large_bias_sam", BAD, "holds"),
        (gaussian_mixture, "bias_hurts_s3_large", "s3_large_no_bias_sam", BAD, "fails"),
        (gaussian_mixture, "bias_hurts_s3_large", "s3_large_bias_sam", MIXED, "not assessed"),
    ],
)
def test_verdicts_turn_with_the_evidence(module, claim, arm, error, expected):
    assert word(module, claim, {arm: {"test_error": error}}) == expected


@pytest.mark.parametrize("ratio, expected", [(1.05, "holds"), (1.2, "fails")])
def test_floors_of_depth_are_judged_by_the_floor_of_that_depth(ratio, expected):
    floor = 8 * 31 ** (1 / 4)  # D = 4 on the cube: 2·4·31^{1/4}
    final = {"bias_4": {"trace_ggn": ratio * floor}}
    assert word(depth, "bias_reaches_floor_4", final) == expected


def test_a_spec_is_that_of_the_whole_data_set():
    whole, s = xor(d=5, n=20, seed=3, n_test=50), Sizes(d=5, n=99, n_test=50)
    phase = Phase("sgd", lr=0.1, epochs=1)
    config = trained_on("xor", s, TwoLayer(width=3), [phase], n=20)(3)
    assert (config.data, config.seed, config.dtype) == (whole.spec, 3, "float32")


def test_a_diverged_run_decides_nothing_of_its_arm():
    lab = standard_norms.PRESETS["lab"]
    runs = made_up(standard_norms, lab)
    name = "standard-norms-std_bn-seed1"
    runs[name] = dataclasses.replace(runs[name], status="diverged", diverged_at=7)
    found = standard_norms.EXPERIMENT.analyse(lab, "lab", runs)
    words = {v.claim.rpartition(".")[2]: v.word for v in found.verdicts}
    assert words["std_bn_generalises"] == words["bn_alike"] == "not assessed"
    assert words["sim_bn_generalises"] == words["ln_alike"] == "holds"
    assert "(1 of 6 runs diverged)." in found.finding


# Findings are made from the numbers


def test_the_finding_of_depth_says_where_the_answer_persists():
    as_two = {f"bias_{k}": {"test_error": BAD} for k in depth.DEPTHS}
    assert "is found with 2, 3, 4, 5 layers." in analysed(depth, as_two).finding
    lost = as_two | {"no_bias_3": {"test_error": 0.25}}
    text = analysed(depth, lost).finding
    assert "is found with 2, 4, 5 layers and not with 3." in text
    assert "3 layers: test error 0.250 [0.250, 0.250] without bias and 0.300" in text


def test_the_finding_of_the_norms_says_whether_a_pair_agrees():
    text = analysed(standard_norms, {"std_ln": {"test_error": BAD}}).finding
    assert text.count("on average on the same side of 0.1; Gauss") == 2
    assert "LayerNorm: test error 0.000 [0.000, 0.000] simplified and 0.300" in text
    assert text.count("different sides") == 1


def test_the_finding_of_parities_lists_what_is_learnt():
    final = {f"k{k}_small_bias_sam": {"test_error": 0.5} for k in (2, 4)}
    text = analysed(parity_k, final).finding
    assert "n = 100, 1-SAM: no bias generalises for k = 1, 2, 3, 4" in text
    assert "; bias generalises for k = 1, 3 (mean test errors 0.000, 0.500, 0.000, 0.500)" in text


def test_the_finding_of_the_mixture_has_the_bayes_error():
    text = analysed(gaussian_mixture, {"s3_small_bias_sam": {"test_error": BAD}}).finding
    assert "Separation 3, n = 100: 1-SAM 0.000 [0.000, 0.000] without bias and 0.300" in text
    assert text.count("Bayes error 0.0027.") == 2


# What is compared


def test_depths_have_the_networks_and_floors_of_their_names():
    lab = depth.PRESETS["lab"]
    data = xor(d=30, n=100, seed=0, n_test=0)
    assert len(depth.arms(lab)) == 8
    for arm in depth.arms(lab):
        bias, _, layers = arm.key.rpartition("_")
        shapes = arm.config(0).arch.shapes(30)
        assert len([name for name in shapes if name.startswith("W")]) == int(layers)
        assert ("b1" in shapes) == (bias == "bias") and shapes["W1"] == (100, 30)
        (phase,) = arm.config(0).schedule
        assert (phase.lr, phase.rho, phase.batch_size) == (0.01, 0.05, 1)
        squared = 31 if bias == "bias" else 30
        expected = 2 * int(layers) * squared ** (1 / int(layers))
        assert arm.floor(data) == pytest.approx(expected, rel=1e-12)
    assert no_bias_floor(data, 3) < bias_floor(data, 3)


def test_the_norms_of_a_pair_differ_in_nothing_else():
    arms = {arm.key: arm.config(1) for arm in standard_norms.arms(standard_norms.PRESETS["lab"])}
    rows = {
        "bn": [(0.005, 0.1)],
        "ln": [(0.01, radius) for radius in (0.1, 0.5, 1.0)],
        "ln_fixed": [(0.01, 0.1)],
    }
    for kind, row in rows.items():
        simple, standard = arms[f"sim_{kind}"], arms[f"std_{kind}"]
        assert standard.arch.norm == f"standard_{simple.arch.norm}"
        same = dataclasses.replace(standard.arch, norm=simple.arch.norm)
        assert dataclasses.replace(standard, arch=same) == simple
        assert [(phase.lr, phase.rho) for phase in simple.schedule] == row


@pytest.mark.parametrize("separation, error", [(1.5, 0.1247), (2.0, 0.0445), (3.0, 0.0027)])
def test_the_bayes_error_is_that_of_the_best_classifier(separation, error):
    assert gaussian_mixture.bayes_error(separation) == pytest.approx(error, abs=5e-5)
    (spec,) = {
        arm.config(0).data["separation"]: arm.config(0).data
        for arm in gaussian_mixture.arms(gaussian_mixture.PRESETS["lab"])
        if arm.config(0).data["separation"] == separation
    }.values()
    data = make(spec)
    wrong = np.mean(data.y_test * data.x_test[:, 0] * data.x_test[:, 1] <= 0)
    # 10,000 points: five standard errors of a fraction.
    assert abs(wrong - error) < 5 * np.sqrt(error / 10_000)


def test_without_bias_the_odd_part_of_a_network_is_linear():
    """So that no such network is x1·x2·x3 on the cube: the reason given for k = 3."""
    rng = np.random.default_rng(0)
    W, a = rng.normal(size=(20, 6)), rng.normal(size=20)
    x = rng.choice([-1.0, 1.0], (50, 6))

    def f(points):
        return np.maximum(points @ W.T, 0) @ a

    # Sums of twenty terms of order one in float64.
    np.testing.assert_allclose((f(x) - f(-x)) / 2, x @ (W.T @ a) / 2, atol=1e-12)
