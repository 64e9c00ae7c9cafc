"""The pictures of a solution exist, have a sane size, and say what they show."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import pytest

import flatlab as fl
from flatlab.anatomy import portray
from flatlab.anatomy.pictures import activations_plot, gallery_plot, pictures, through_training_plot
from flatlab.data.arrays import from_arrays
from flatlab.models import Deep, TwoLayer
from flatlab.report import save
from flatlab.theory.constructions import construct

XOR = fl.data.xor(d=8, n=20, seed=0, n_test=10)
HISTORY = {
    "epoch": np.array([0, 1, 10]),
    "train_loss": np.array([1.0, 0.5, 0.1]),
    "trace": np.array([30.0, 20, 10]),
    "test_loss": np.array([1.0, 0.9, 0.8]),
    "test_error": np.array([0.5, 0.4, 0.3]),
    "memorisation": np.array([0.1, 0.2, 0.3]),
    "features": np.array([0.3, 0.4, 0.5]),
}


def size(png):
    """Return width and height out of the header."""
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def looked_into(arch, data=XOR, history=HISTORY):
    return portray(arch, arch.initial(data.d, 0), data, history)


CASES = {
    "bias": looked_into(TwoLayer(width=60)),
    "no bias": looked_into(TwoLayer(width=60, bias=False)),
    "sim-bn": looked_into(TwoLayer(width=20, norm="batch")),
    "three layers": looked_into(Deep(depth=4, width=20)),
    "unknown coordinates": looked_into(
        TwoLayer(width=20),
        from_arrays(np.sin(np.arange(3000.0)).reshape(30, 100), np.ones(30)),
    ),
    "one neuron": looked_into(TwoLayer(width=1)),
    "parity of five": looked_into(TwoLayer(width=20), fl.data.parity(d=8, n=40, k=5, n_test=0)),
    "nothing fires": portray(
        TwoLayer(width=2, bias=False), {"W1": np.zeros((2, 8)), "W2": np.ones(2)}, XOR, HISTORY
    ),
}


@pytest.mark.parametrize("found", CASES.values(), ids=CASES)
def test_three_pictures_of_sane_size(tmp_path, found):
    paths = save(pictures(found, "a run"), tmp_path / "new")
    assert [path.name for path in paths] == [
        "anatomy-gallery.png", "anatomy-activations.png", "anatomy-scores.png"
    ]  # fmt: skip
    for path in paths:
        width, height = size(path.read_bytes())
        assert 400 < width < 3000 and 400 < height < 1500


def test_a_network_that_was_not_trained_has_no_picture_of_training():
    solution = construct("four-neurons", XOR)
    alone = portray(solution.arch, solution.params, XOR)
    one = portray(solution.arch, solution.params, XOR, {name: v[:1] for name, v in HISTORY.items()})
    for found in (alone, one):
        assert [plot.name for plot in pictures(found, "a network")] == [
            "anatomy-gallery", "anatomy-activations"
        ]  # fmt: skip


def test_the_gallery_names_features_and_coordinates():
    solution = construct("four-neurons", XOR)
    plot = gallery_plot(portray(solution.arch, solution.params, XOR), "four")
    ((weights, bias, bars),) = plot.panels
    assert weights.rows == bias.rows == bars.rows == ("+x1+x2", "+x1−x2", "−x1+x2", "−x1−x2")
    assert weights.x == tuple(f"x{k}" for k in range(1, 9)) and bias.x == ("bias",)
    assert [bar.end for bar in bars.bars] == ["+", "−", "−", "+"]
    assert [bar.role for bar in bars.bars] == ["positive", "negative", "negative", "positive"]
    assert weights.values.shape == (4, 8)
    assert [(span.start, span.stop) for span in weights.xspans] == [(0, 2), (2, 8)]
    assert [span.start for span in weights.yspans] == [0, 1, 2, 3]  # each has its own feature


def test_the_matrix_names_its_cells_and_its_score():
    solution = construct("memorising", fl.data.xor(d=8, n=20, seed=0, distinct=True), {"depth": 3})
    plot = activations_plot(portray(solution.arch, solution.params, solution.data), "all")
    (row,) = plot.panels
    assert [panel.title for panel in row] == [
        f"hidden layer {k}: memorisation 1.000" for k in (1, 2)
    ]
    names = [span.name for span in row[0].xspans]
    assert names == ["+x1+x2", "+x1−x2", "−x1+x2", "−x1−x2"]


def test_scores_through_training_have_the_history_and_the_references():
    plot = through_training_plot(CASES["bias"], "a run")
    (row,) = plot.panels
    assert [panel.title for panel in row] == ["memorisation", "features", "test error", "sharpness"]
    assert row[0].curves[0].y.tolist() == [HISTORY["memorisation"].tolist()]
    assert row[0].references[0].value == pytest.approx(3 / 19)  # four cells of twenty points
    assert row[1].references[0].value == 2 / 8
    assert plot.caption == ""


def test_a_history_without_scores_shows_the_last_ones_and_says_so():
    old = {k: v for k, v in HISTORY.items() if k not in ("memorisation", "features")}
    found = looked_into(TwoLayer(width=20), history=old)
    plot = through_training_plot(found, "a run")
    ((memorisation, features, *_),) = plot.panels
    assert (memorisation.curves[0].x.tolist(), memorisation.curves[0].y.tolist()) == (
        [10.0], [[found.memorisation]]
    )  # fmt: skip
    assert features.curves[0].y.tolist() == [[found.features]]
    assert "no scores" in plot.caption


def test_a_test_loss_stands_in_for_a_test_error_and_both_may_be_missing():
    loss = {k: v for k, v in HISTORY.items() if k != "test_error"}
    neither = {k: v for k, v in loss.items() if k != "test_loss"}
    unknown = dataclasses.replace(XOR, relevant=())
    arch = TwoLayer(width=5)
    titles = [
        [
            panel.title
            for panel in through_training_plot(looked_into(arch, unknown, h), "").panels[0]
        ]
        for h in (loss, neither)
    ]
    assert titles == [["memorisation", "test loss", "sharpness"], ["memorisation", "sharpness"]]


def test_an_error_above_chance_is_within_the_axes():
    wrong = {**HISTORY, "test_error": np.array([0.5, 0.9, 1.0])}
    panel = through_training_plot(looked_into(TwoLayer(width=5), history=wrong), "").panels[0][2]
    assert panel.ylim[1] > 1
