"""Scatter plots, heat maps and surfaces, each of real data: what is drawn where."""

import struct

import numpy as np
import pytest

import flatlab as fl
from flatlab.plots import (
    Bar,
    Bars,
    Cloud,
    Curve,
    Curves,
    Dot,
    Dots,
    Heat,
    Mark,
    Plot,
    Points,
    Reference,
    Span,
    Surface,
)
from flatlab.report import draw
from flatlab.theory.solution import Solution

DATA = fl.data.xor(d=8, n=30, seed=0, n_test=300)
ARCH = fl.models.TwoLayer(width=20)
PHASES = {
    "1-SAM": fl.Phase("sam", lr=0.02, rho=0.2, batch_size=1, epochs=60),
    "SGD": fl.Phase("sgd", lr=0.02, batch_size=1, epochs=60),
}


@pytest.fixture(scope="module")
def runs():
    return {
        name: [fl.train(ARCH, DATA, schedule=[phase], seed=seed) for seed in range(3)]
        for name, phase in PHASES.items()
    }


def plot(*panels):
    return Plot("kinds", "A title", (panels,), "A caption.")


def size(plot):
    """Return width and height of the PNG in inches."""
    png = draw(plot)
    assert png.startswith(b"\x89PNG")
    return [pixels / 150 for pixels in struct.unpack(">II", png[16:24])]


def clouds(runs):
    """Return λ_max against test accuracy, a cloud for each algorithm, with 95 % error bars."""
    for name, of_seeds in runs.items():
        readings = [
            fl.measure(run.module(), "mse", DATA, "lambda_max")["lambda_max"] for run in of_seeds
        ]
        accuracy = np.array([1 - run.final["test_error"] for run in of_seeds])
        yield Cloud(
            name,
            {"1-SAM": "sam", "SGD": "gd"}[name],
            np.array([reading.value for reading in readings]),
            accuracy,
            xerror=1.96 * np.array([reading.stderr for reading in readings]),
            yerror=1.96 * np.sqrt(accuracy * (1 - accuracy) / 300),
            names=tuple(f"seed {run.config.seed}" for run in of_seeds),
        )


def test_points_have_categories_error_bars_and_names(drawn, runs):
    made = tuple(clouds(runs))
    panel = Points(
        "two algorithms", "λ_max", "accuracy", made, (Reference("chance", 0.5),), xscale="log"
    )
    (ax,) = drawn(plot(panel))
    for cloud, container in zip(made, ax.containers, strict=True):
        line, _, (horizontal, vertical) = container
        assert line.get_xdata().tolist() == cloud.x.tolist()
        assert line.get_ydata().tolist() == cloud.y.tolist()
        for bars, at, error, axis in (
            (horizontal, cloud.x, cloud.xerror, 0), (vertical, cloud.y, cloud.yerror, 1)
        ):  # fmt: skip
            ends = np.array([segment[:, axis] for segment in bars.get_segments()])
            np.testing.assert_allclose(ends, np.stack([at - error, at + error], 1), rtol=1e-12)
    (legend,) = ax.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["1-SAM", "SGD"]
    assert {text.get_text() for text in ax.texts} == {"seed 0", "seed 1", "seed 2", "chance"}
    assert ax.get_xscale() == "log"


def stability():
    """Return lr, curvature, and |1 − lr × curvature|: gradient descent is stable below 1."""
    lr, curvature = np.geomspace(0.01, 1, 40), np.geomspace(1, 100, 30)
    return lr, curvature, np.abs(1 - lr * curvature[:, None])


def test_a_heat_map_has_its_colours_contour_and_boundary_where_they_belong(drawn):
    lr, curvature, growth = stability()
    boundary = Curve("lr = 2/λ", "reference", lr, (2 / lr)[None])
    panel = Heat(
        "growth in a step", "learning rate", "λ", growth, lr, curvature, colour="|1 − ηλ|",
        cscale="log", levels=(Reference("1", 1.0),), curves=(boundary,), xscale="log", yscale="log",
    )  # fmt: skip
    ax, bar = drawn(plot(panel))
    mesh = ax.collections[0]
    assert mesh.get_array().shape == (30, 40)
    # One cell is 0: it has the colour of the least positive value, and is no gap.
    assert (mesh.norm.vmin, mesh.norm.vmax) == (growth[growth > 0].min(), growth.max())
    assert mesh.get_array().min() == mesh.norm.vmin and not mesh.get_array().mask.any()
    assert bar.get_ylabel() == "|1 − ηλ|"
    # Where |1 − ηλ| = 1 the contour is on the boundary, within a cell of the map.
    contour = np.concatenate([path.vertices for path in ax.collections[1].get_paths()])
    np.testing.assert_allclose(contour[:, 0] * contour[:, 1], 2, rtol=0.15)
    assert ax.get_ylim()[1] == pytest.approx(100, rel=0.1)  # 2/lr is beyond: the map does not grow
    assert draw(plot(panel)) == draw(plot(panel))


def test_a_heat_map_of_names_has_rows_from_the_top_and_grey_gaps(drawn):
    values = np.array([[1.0, -2.0, 0.5], [np.nan, 4.0, -0.1]])
    panel = Heat(
        "", "", "", values, ("a", "", "c"), ("one", "two"), signed=True, saturates=75,
        xspans=(Span("left", 0, 1), Span("right", 1, 3)), yspans=(Span("", 0, 1), Span("", 1, 2)),
    )  # fmt: skip
    beside = Bars("", "share", (Bar("one", "positive", 3.0, "+"), Bar("two", "negative", 1.0, "−")))
    ax, bars = drawn(plot(panel, beside))
    (image,) = ax.images
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row is on top
    assert image.get_array().mask.tolist() == [[False] * 3, [True, False, False]]
    assert image.norm.vmax == -image.norm.vmin == 2.0  # 75 % of 0.1, 0.5, 1, 2, 4
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "c"]
    assert [text.get_text() for text in ax.texts] == ["left", "right"]
    # The rows are named once, and the line between them crosses both panels.
    assert bars.get_ylim() == ax.get_ylim()
    assert not bars.yaxis.get_tick_params()["labelleft"]
    for each in (ax, bars):
        assert 0.5 in [line.get_ydata()[0] for line in each.lines]
    assert [patch.get_width() for patch in bars.patches] == [3.0, 1.0]


def landscape(run):
    """Return the training loss in the plane of two random directions through a run's end."""
    rng = np.random.Generator(np.random.PCG64(0))
    at = Solution(ARCH, {name: np.asarray(w, float) for name, w in run.params.items()}, DATA)
    directions = [
        {name: rng.normal(size=w.shape) * np.linalg.norm(w) / np.sqrt(w.size)
         for name, w in at.params.items()}
        for _ in range(2)
    ]  # fmt: skip
    x, y = np.linspace(-1, 1, 21), np.linspace(-0.5, 0.5, 11)
    one, other = directions

    def loss(a, b):
        moved = {name: w + a * one[name] + b * other[name] for name, w in at.params.items()}
        return at.with_params(**moved).loss()

    return x, y, np.array([[loss(a, b) for a in x] for b in y])


@pytest.mark.parametrize("zscale", ["linear", "log"])
def test_a_surface_is_least_where_the_training_ended(drawn, runs, zscale):
    x, y, z = landscape(runs["SGD"][0])
    assert np.unravel_index(z.argmin(), z.shape) == (5, 10)
    panel = Surface(
        "loss", "direction 1", "direction 2", "training loss", x, y, z, zscale,
        (Mark("end of training", 0.0, 0.0),),
    )  # fmt: skip
    (ax,) = drawn(plot(panel))
    low, high = ax.get_zlim()
    shown = np.log10(z) if zscale == "log" else z
    assert high == pytest.approx(shown.max()) and low < shown.min()
    assert "end of training" in [text.get_text().strip() for text in ax.texts]
    ends = ax.lines[-1].get_data_3d()
    assert [float(values[-1]) for values in ends] == pytest.approx([0, 0, shown.min()])


def test_curves_have_marks_and_gaps_where_values_are_missing(drawn):
    x, y = np.arange(4.0), np.array([[1.0, np.nan, np.nan, 4.0], [3.0, 2.0, np.nan, 4.0]])
    curve = Curve("found", "sam", x, y, error=np.full(4, 0.5))
    law = Curve("law", "reference", x, x[None])
    panel = Curves("", "y", (curve, law), marks=(Mark("here", 1.0, 2.0),), xscale="linear")
    (ax,) = drawn(plot(panel))
    mean = ax.lines[0].get_ydata()
    assert np.ma.filled(mean, -1.0).tolist() == [2.0, 2.0, -1.0, 4.0]
    assert "here" in [text.get_text() for text in ax.texts]
    assert {line.get_linestyle() for line in ax.lines} >= {"--"}


def test_one_role_has_one_colour_in_all_panels(drawn):
    def panel(*roles):
        return Dots("", "x", tuple(Dot(role, role, (1.0, 2.0)) for role in roles))

    left, right = drawn(plot(panel("sam", "deep", "wide"), panel("wide", "sam")))
    colours = [
        {int(line.get_ydata()[0]): line.get_color() for line in ax.lines if len(line.get_xdata())}
        for ax in (left, right)
    ]
    assert colours[0][2] == colours[1][0] and colours[0][0] == colours[1][1]
    assert len(set(colours[0].values())) == 3


def test_a_panel_alone_is_larger_and_a_surface_has_room():
    curves = Curves("", "y", (Curve("", "sam", np.arange(3.0), np.ones((1, 3))),))
    alone, two = size(plot(curves)), size(plot(curves, curves))
    assert alone[0] > 5 and two[0] < 2 * alone[0]
    surface = Surface("", "x", "y", "z", np.arange(3.0), np.arange(2.0), np.ones((2, 3)))
    assert min(size(plot(surface))) > 4
