"""What a solution looks like: contributions, scores, and the order of neurons and points."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest

import flatlab as fl
from flatlab import anatomy
from flatlab.anatomy import features, layers, memorisation, portray, scores
from flatlab.data.arrays import from_arrays
from flatlab.engine.evaluate import outputs_and_curvature
from flatlab.errors import UserError
from flatlab.files.checkpoints import read_checkpoint
from flatlab.files.store import RunStore
from flatlab.models import Deep, TwoLayer
from flatlab.theory.constructions import construct
from flatlab.theory.predicates import is_memorising
from flatlab.training.run import load_run
from flatlab.training.session import run_config

XOR = fl.data.xor(d=12, n=40, seed=1, n_test=20, distinct=True)
ARCHITECTURES = {
    "bias": TwoLayer(width=30),
    "no bias": TwoLayer(width=30, bias=False),
    "batch": TwoLayer(width=30, norm="batch"),
    "layer": TwoLayer(width=30, norm="layer"),
    "softplus": TwoLayer(width=30, activation="softplus"),
    "tanh": TwoLayer(width=30, activation="tanh"),
    "identity": TwoLayer(width=30, activation="identity"),
    "three layers": Deep(depth=3, width=30),
    "four layers": Deep(depth=4, width=30, bias_first=False),
}
EVERY = pytest.mark.parametrize("arch", ARCHITECTURES.values(), ids=ARCHITECTURES)


def both(solution):
    return (
        memorisation(solution.arch, solution.params, solution.data),
        features(solution.arch, solution.params, solution.data),
    )


# Contributions


@EVERY
def test_contributions_sum_to_the_output_in_every_layer(arch):
    params = arch.initial(XOR.d, seed=0)
    f, _, _ = outputs_and_curvature(arch, params, XOR.x_train)
    found = layers(arch, params, XOR.x_train)
    assert len(found) == getattr(arch, "depth", 2) - 1
    for layer in found:
        # float64 sums of 30 terms, up to 30 in each of four layers.
        np.testing.assert_allclose(layer.contributions.sum(1), f, rtol=1e-10, atol=1e-12)


# Scores of networks whose scores are known


MEMORISING = {
    "two layers": ("memorising", {}),
    "two layers, wide": ("memorising", {"width": 70}),
    "four layers": ("memorising", {"depth": 4, "width": 50}),
    "layer norm": ("layer-norm-memorising", {}),
}


@pytest.mark.parametrize("name, options", MEMORISING.values(), ids=MEMORISING)
def test_a_memorising_solution_has_a_score_of_exactly_one(name, options):
    solution = construct(name, XOR, options)
    assert is_memorising(solution)
    assert both(solution)[0] == 1.0
    # Its neurons look at x_i itself, whose coordinates are all of one size.
    assert both(solution)[1] == pytest.approx(2 / 12, rel=1e-6)


def test_memorising_without_bias_counts_as_well():
    data = fl.data.xor(d=12, n=8, seed=0)
    solution = construct("no-bias-memorising", data)
    assert is_memorising(solution) and both(solution)[0] == 1.0


@pytest.mark.parametrize(
    "name", ["four-neurons", "layer-norm-four-neurons", "xor-batch-norm", "finite-labels"]
)
def test_a_neuron_for_each_cell_makes_four_groups(name):
    solution = construct(name, XOR)
    # Four blocks of one neuron: (4 − 1)/(n − 1), to the rounding of 40 terms.
    assert both(solution) == (pytest.approx(3 / 39, rel=1e-12), pytest.approx(1.0, rel=1e-12))
    assert portray(solution.arch, solution.params, XOR).cells == pytest.approx(3 / 39, rel=1e-15)


@EVERY
def test_a_random_network_neither_memorises_nor_has_features(arch):
    wide = dataclasses.replace(arch, width=300)
    data = fl.data.xor(d=30, n=100, seed=0, n_test=0)
    found = scores(wide, wide.initial(30, seed=0), data)
    # At most about (π − 1)/(n − 1) = 0.0216 for ReLU; tanh and the identity have E c²/(E c)² = π/2.
    assert 0 <= found["memorisation"] < 0.03
    assert found["features"] == pytest.approx(2 / 30, rel=0.3)  # sums of 30 squares, 300 neurons


def test_a_wide_random_relu_network_has_the_score_that_the_docstring_says():
    data = fl.data.xor(d=200, n=200, seed=0, n_test=0)
    arch = TwoLayer(width=3000, bias=False)
    # Inputs nearly orthogonal; neurons and points fluctuate, which costs some per cent.
    expected = (np.pi - 1) / 199
    assert memorisation(arch, arch.initial(200, 0), data) == pytest.approx(expected, rel=0.05)


def test_neurons_that_are_proportional_to_one_another_score_zero():
    arch = TwoLayer(width=3, bias=False)
    w = np.zeros((3, XOR.d))
    w[:, 0] = 1.0
    data = from_arrays(np.abs(XOR.x_train), XOR.y_train)  # every neuron is 1 at every point
    assert memorisation(arch, {"W1": w, "W2": np.array([1.0, -2.0, 3.0])}, data) == 0.0


# A case worked by hand


HAND = from_arrays(np.eye(3), np.array([1.0, 1.0, -1.0]))


def test_by_hand():
    """Three points, two neurons; |c| = [[2, 0], [1, 1], [0, 3]].

    T_11 = (2/2)(2/3), T_22 = (1/2)(1/3) + (1/2)(1/4), T_33 = (3/3)(3/4):
    their sum is 41/24, the score (41/24 − 1)/2 = 17/48.
    """
    arch = TwoLayer(width=2, bias=False)
    params = {
        "W1": np.array([[4.0, 2.0, -1.0], [-5.0, 1.0, 3.0]]),
        "W2": np.array([0.5, -1.0]),
    }
    assert memorisation(arch, params, HAND) == pytest.approx(17 / 48, rel=1e-14)
    known = dataclasses.replace(HAND, relevant=(0,))
    # ω = (1 + 1/2 + 0)/3, (0 + 1/2 + 1)/3 and shares 16/21, 25/35 on the first coordinate.
    expected = 0.5 * 16 / 21 + 0.5 * 25 / 35
    assert features(arch, params, known) == pytest.approx(expected, rel=1e-14)


def test_a_point_without_contribution_is_not_memorised():
    arch = TwoLayer(width=2, bias=False)
    params = {"W1": np.array([[1.0, -1, -1], [-1, 1, -1]]), "W2": np.ones(2)}
    # Two of three points have a neuron of their own: (2 − 1)/(3 − 1).
    assert memorisation(arch, params, HAND) == 0.5


def test_where_nothing_contributes_both_are_zero():
    arch = TwoLayer(width=2, bias=False)
    known = dataclasses.replace(HAND, relevant=(0,))
    params = {"W1": -np.ones((2, 3)), "W2": np.ones(2)}
    assert scores(arch, params, known) == {"memorisation": 0.0, "features": 0.0}
    found = portray(arch, params, known)
    assert len(found.gallery.neurons) == 0 and found.neurons() == []


def test_one_point_is_memorised_by_whatever_fires():
    one = from_arrays(np.ones((1, 3)), np.ones(1))
    arch = TwoLayer(width=5)
    assert memorisation(arch, arch.initial(3, 0), one) == pytest.approx(1.0, rel=1e-15)


def test_equal_inputs_cannot_be_told_apart():
    x = np.eye(3)[[0, 1, 2, 2]]
    data = from_arrays(x, np.ones(4))
    params = {"W1": 2 * np.eye(3) - 1, "W2": np.ones(3)}
    # Three groups of four points.
    assert memorisation(TwoLayer(width=3, bias=False), params, data) == pytest.approx(2 / 3)


def test_the_least_layer_counts():
    """The first layer memorises; the second has one neuron for all points."""
    arch = Deep(depth=3, width=3, bias_first=False)
    shared = np.vstack([np.ones(3), np.zeros((2, 3))])
    params = {"W1": 2 * np.eye(3) - 1, "W2": shared, "W3": np.ones(3)}
    found = layers(arch, params, HAND.x_train)
    assert anatomy.memorisation_by_layer(found) == [1.0, 0.0]
    assert memorisation(arch, params, HAND) == 0.0


# Invariances


@EVERY
def test_permuting_the_neurons_of_the_first_layer_changes_nothing(arch):
    params = arch.initial(XOR.d, seed=3)
    order = np.random.default_rng(0).permutation(30)
    moved = dict(params)
    for name in {"W1", "b1", "gamma"} & set(params):
        moved[name] = params[name][order]
    moved["W2"] = params["W2"][..., order]
    # Sums in another order.
    assert scores(arch, moved, XOR) == pytest.approx(scores(arch, params, XOR), rel=1e-10)


def test_dead_and_negligible_neurons_and_copies_do_not_matter():
    solution = construct("memorising", XOR)
    p, n = solution.params, XOR.n
    rng = np.random.default_rng(0)
    noise = {"W1": rng.normal(size=(n, XOR.d)), "b1": np.ones(n), "W2": 1e-12 * np.ones(n)}
    copies = {"W1": 3 * p["W1"], "b1": 3 * p["b1"], "W2": p["W2"] / 5}
    arch = TwoLayer(width=3 * n)
    params = {name: np.concatenate([p[name], noise[name], copies[name]]) for name in p}
    # The negligible neurons make 1e-12 of a contribution, times their number and size.
    assert memorisation(arch, params, XOR) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("name", ["bias", "no bias", "three layers", "four layers"])
def test_rescaling_relu_neurons_changes_nothing(name):
    arch = ARCHITECTURES[name]
    params = dict(arch.initial(XOR.d, seed=3))
    c = np.exp(np.random.default_rng(1).normal(size=30))
    rescaled = {**params, "W1": params["W1"] * c[:, None], "W2": params["W2"] / c}
    if "b1" in params:
        rescaled["b1"] = params["b1"] * c
    assert scores(arch, rescaled, XOR) == pytest.approx(scores(arch, params, XOR), rel=1e-10)
    before, after = (portray(arch, p, XOR).gallery for p in (params, rescaled))
    np.testing.assert_array_equal(before.neurons, after.neurons)
    np.testing.assert_allclose(before.weights, after.weights, rtol=1e-12)


def test_no_features_where_relevant_coordinates_are_unknown():
    data = from_arrays(XOR.x_train, XOR.y_train)
    arch = ARCHITECTURES["bias"]
    params = arch.initial(XOR.d, 0)
    assert features(arch, params, data) is None
    assert list(scores(arch, params, data)) == ["memorisation"]


# The gallery and the matrix


def test_the_gallery_names_the_features_of_the_xor_network():
    solution = construct("four-neurons", XOR, {"width": 9})
    found = portray(solution.arch, solution.params, XOR)
    g = found.gallery
    assert g.features == ("+x1+x2", "+x1−x2", "−x1+x2", "−x1−x2")
    assert g.columns == (*(f"x{k}" for k in range(1, 13)), "bias") and g.total == 9
    assert np.sign(g.signs).tolist() == [1, -1, -1, 1]
    np.testing.assert_allclose(g.angles, 0, atol=1e-5)  # arccos near 1 has half the digits
    assert g.sizes.sum() == pytest.approx(1)
    # Each serves the points of its own cell, all alike.
    signs = ([1, 1], [1, -1], [-1, 1], [-1, -1])
    cells = [np.mean(np.all(XOR.x_train[:, :2] == s, 1)) for s in signs]
    assert sorted(g.points / 40) == pytest.approx(sorted(cells), rel=1e-12)
    (first, *_) = found.neurons(2)
    assert first["share"] == max(cells) and first["relevant"] == pytest.approx(1)
    assert first["bias"] == pytest.approx(-1 / np.sqrt(2), rel=1e-12)


def test_relevant_coordinates_come_first():
    data = dataclasses.replace(XOR, relevant=(4, 2))
    arch = ARCHITECTURES["no bias"]
    assert portray(arch, arch.initial(12, 0), data).gallery.columns[:4] == ("x5", "x3", "x1", "x2")


def test_features_need_coordinates_of_plus_and_minus_one():
    ball = fl.data.ball(d=5, n=20, seed=0, n_test=0)
    arch = ARCHITECTURES["bias"]
    found = portray(arch, arch.initial(5, 0), ball)
    assert set(found.gallery.features) == {""} and found.cells is None
    assert found.features is not None and np.isnan(found.gallery.angles).all()
    assert (np.diff(found.gallery.sizes) <= 0).all()  # by size alone


def test_a_memorising_matrix_is_a_diagonal_and_the_xor_network_has_blocks():
    solution = construct("memorising", XOR, {"depth": 3, "width": 44})
    for m in portray(solution.arch, solution.params, XOR).matrices:
        assert m.memorisation == 1.0 and m.total == 44
        np.testing.assert_array_equal(m.contributions != 0, np.eye(40, dtype=bool))
        np.testing.assert_allclose(np.diag(m.contributions), XOR.y_train[m.points], rtol=1e-6)
    solution = construct("four-neurons", XOR)
    (m,) = portray(solution.arch, solution.params, XOR).matrices
    assert [g.name for g in m.groups] == ["+x1+x2", "+x1−x2", "−x1+x2", "−x1−x2"]
    for row, group in zip(m.contributions, m.groups, strict=True):
        assert np.flatnonzero(row).tolist() == list(range(group.start, group.stop))


def test_points_go_by_label_where_there_are_no_cells():
    data = from_arrays(np.eye(4), np.array([1.0, -1, 1, -1]))
    arch = TwoLayer(width=5)
    (m,) = portray(arch, arch.initial(4, 0), data).matrices
    assert m.points.tolist() == [0, 2, 1, 3]
    assert [(g.name, g.start, g.stop) for g in m.groups] == [("y = +1", 0, 2), ("y = −1", 2, 4)]
    real = from_arrays(np.eye(4), np.array([0.5, 2.0, -1, 1]))
    (m,) = portray(arch, arch.initial(4, 0), real).matrices
    assert m.points.tolist() == [1, 3, 0, 2] and m.groups == ()


def test_of_many_hidden_layers_some_are_shown():
    arch = Deep(depth=12, width=6)
    found = portray(arch, arch.initial(12, 0), XOR)
    assert [m.layer for m in found.matrices][:: len(found.matrices) - 1] == [1, 11]
    assert len(found.matrices) == 6 and len(found.layers) == 11


# Runs


PHASES = [fl.Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=6)]
ARCH = TwoLayer(width=15)


def test_both_scores_are_logged_and_the_last_ones_are_those_of_the_final_network(tmp_path):
    run = fl.train(ARCH, XOR, schedule=PHASES, out=tmp_path / "run")
    assert run.final["memorisation"] == memorisation(ARCH, run.params, XOR)
    assert run.final["features"] == features(ARCH, run.params, XOR)
    assert list(run.columns)[-2:] == ["memorisation", "features"]
    for source in (run, tmp_path / "run", str(tmp_path / "run")):
        found = fl.dissect(source)
        assert found.memorisation == run.final["memorisation"]
        assert found.history["features"].tolist() == run.columns["features"].tolist()


def without_scores(path):
    """Make a stored run one of before the scores were logged, in the middle of its training."""
    store = RunStore.read(path)
    checkpoint = read_checkpoint(path / "checkpoint.safetensors")
    new = ("history/memorisation", "history/features")
    tensors = {k: np.asarray(v) for k, v in checkpoint.tensors.items() if k not in new}
    meta = {**checkpoint.meta, "order": [k for k in checkpoint.meta["order"] if k not in new]}
    with store.lock():
        store.save_checkpoint(tensors, meta)
        (path / "checkpoint.previous.safetensors").unlink()


def test_a_run_of_before_still_loads_and_is_dissected(tmp_path):
    run = fl.train(ARCH, XOR, schedule=PHASES, out=tmp_path / "run")
    without_scores(tmp_path / "run")
    old = load_run(tmp_path / "run")
    assert "memorisation" not in old.columns and "test_error" in old.columns
    assert fl.dissect(old).memorisation == run.final["memorisation"]


def test_a_run_of_before_goes_on_with_the_columns_that_it_has(tmp_path, monkeypatch):
    whole = fl.train(ARCH, XOR, schedule=PHASES)
    monkeypatch.setenv("FLATLAB_CHECKPOINT_SECONDS", "0")

    def stop_in_the_middle(info):
        if info["epoch"] >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fl.train(ARCH, XOR, schedule=PHASES, out=tmp_path / "run", report=stop_in_the_middle)
    without_scores(tmp_path / "run")
    resumed = run_config(whole.config, data=XOR, out=tmp_path / "run")
    assert list(resumed.columns) == list(whole.columns)[:-2]
    np.testing.assert_array_equal(resumed.columns["trace"], whole.columns["trace"])


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes is not a run directory"):
        fl.dissect(tmp_path / "notes")
    with pytest.raises(UserError, match=r"nowhere is not a run directory"):
        fl.dissect(tmp_path / "nowhere")
    with pytest.raises(UserError, match="run must be a Run or its directory, got int"):
        fl.dissect(3)


def test_a_run_whose_data_are_gone_is_refused_with_the_reason(tmp_path):
    arrays = {k: getattr(XOR, k) for k in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "mine.npz", **arrays)
    data = fl.data.load(tmp_path / "mine.npz")
    fl.train(ARCH, data, schedule=PHASES, out=tmp_path / "run")
    assert fl.dissect(tmp_path / "run").features is None
    shutil.move(tmp_path / "mine.npz", tmp_path / "elsewhere.npz")
    with pytest.raises(UserError, match=r"data set of .*run cannot be made again.*no such file"):
        fl.dissect(tmp_path / "run")


def test_a_run_of_arrays_in_memory_can_be_dissected_only_with_them(tmp_path):
    data = from_arrays(XOR.x_train, XOR.y_train)
    run = fl.train(ARCH, data, schedule=PHASES, out=tmp_path / "run")
    assert 0 <= fl.dissect(run).memorisation <= 1
    with pytest.raises(UserError, match="cannot be made again"):
        fl.dissect(tmp_path / "run")


def test_parameters_that_do_not_fit_their_data_are_refused():
    run = fl.train(ARCH, XOR, schedule=PHASES)
    other = dataclasses.replace(run, data=fl.data.xor(d=5, n=10))
    with pytest.raises(UserError, match=r"parameters do not fit its data set 'xor'"):
        fl.dissect(other)
