import struct

import numpy as np
import pytest
from matplotlib.figure import Figure

from flatlab.errors import UserError
from flatlab.outside.tables import markdown, number
from flatlab.plots import Curve, Curves, Dot, Dots, Plot, Reference
from flatlab.report import axes, draw, save

MAGIC = b"\x89PNG\r\n\x1a\n"
X = np.array([0.0, 1.0, 10.0, 100.0])


def series(*rows, role="sam", x=X):
    return Curve(role, role, x, np.array(rows, dtype=float))


def plot(*panels, **changes):
    return Plot("name", "A title", (panels,), **changes)


def size(png):
    """Return width and height out of the header."""
    assert png.startswith(MAGIC)
    return struct.unpack(">II", png[16:24])


def shown_ticks(axis):
    """Return the labels of the ticks within the axis' limits."""
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return [text.get_text() for value, text in ticks if low <= value <= high and text.get_text()]


CASES = {
    "one seed": Curves("a", "loss", (series([1, 0.1, 0.01, 0.001]),), yscale="log"),
    "several seeds": Curves("a", "loss", (series([1, 2, 3, 4], [2, 3, 4, 5], [1, 1, 1, 1]),)),
    "no series": Curves("a", "loss", ()),
    "no series, log, a line": Curves("a", "trace", (), (Reference("floor", 21.9),), yscale="log"),
    "one point": Curves("a", "loss", (series([1.0], x=np.array([0.0])),), yscale="log"),
    "constant": Curves(
        "a", "trace", (series([2, 2, 2, 2]),), (Reference("floor", 2.0),), yscale="log"
    ),
    "zero on a log axis": Curves("a", "loss", (series([1, 0.1, 0, 0]),), yscale="log"),
    "negative on a log axis": Curves(
        "a",
        "trace",
        (series([1, -2, 3, 4], [1, 2, 3, 4]),),
        (Reference("floor", 2.0),),
        yscale="log",
    ),
    "unknown roles": Curves(
        "a", "loss", tuple(series([1, 2, 3, 4], role=f"r{k}") for k in "abcde")
    ),
    "fixed limits": Curves("a", "test error", (series([0.5, 0.4, 0, 0]),), ylim=(-0.02, 0.6)),
}


@pytest.mark.parametrize("panel", CASES.values(), ids=CASES)
def test_every_kind_of_panel_becomes_a_png_of_sane_size(panel):
    width, height = size(draw(plot(panel, panel)))
    # Two panels of 3.7 by 2.9 inches with margins at 150 dpi: about 1170 by 630 pixels.
    assert 900 < width < 1500 and 450 < height < 900


def test_a_picture_grows_with_its_panels():
    panel = CASES["several seeds"]
    two = size(draw(Plot("n", "t", ((panel, panel),))))
    many = size(draw(Plot("n", "t", ((panel,) * 4, (panel,) * 4))))
    assert many[0] > 1.8 * two[0] and many[1] > 1.5 * two[1]


def test_a_plot_may_have_rows_of_different_lengths(drawn):
    panel = CASES["one seed"]
    ragged = size(draw(Plot("n", "t", ((panel, panel), (panel,)))))
    assert ragged == size(draw(Plot("n", "t", ((panel, panel), (panel, panel)))))
    shown = drawn(Plot("n", "t", ((panel, panel), (panel,))))
    # No empty axes; the lowest of each column has the labels of the x axis.
    assert [ax.get_xlabel() for ax in shown] == ["", "epoch", "epoch"]
    labels = [ax.xaxis.get_tick_params()["labelbottom"] for ax in shown]
    assert labels == [False, True, True]


@pytest.mark.parametrize(
    "low, high",
    [(2.0, 2.1), (2.1, 2.9), (3.1, 4.4), (6.0, 9.5), (20.0, 70.0), (1e-9, 1.0), (0.03, 0.04)],
)
def test_a_log_axis_always_has_labels(drawn, low, high):
    panel = Curves("a", "trace", (series(np.geomspace(low, high, 4)),), yscale="log")
    (ax,) = drawn(plot(panel))
    # With fewer than two numbers on an axis nobody can read a value off it.
    assert len(shown_ticks(ax.yaxis)) >= 2


def test_a_reference_line_is_within_the_picture_and_labelled(drawn):
    panel = Curves(
        "a", "trace", (series([70, 60, 50, 40]),), (Reference("floor", 21.9),), yscale="log"
    )
    (ax,) = drawn(plot(panel))
    low, high = ax.get_ylim()
    assert low < 21.9 < high
    assert "floor" in [text.get_text() for text in ax.texts]


def test_epochs_are_written_in_full_up_to_a_thousand(drawn):
    x = np.array([0.0, 1.0, 1e3, 1e5])
    (ax,) = drawn(plot(Curves("a", "loss", (series([1, 2, 3, 4], x=x),))))
    labels = shown_ticks(ax.xaxis)
    assert {"0", "1", "100", "$10^{3}$", "$10^{5}$"} <= set(labels)


def test_seeds_become_a_mean_with_a_band_from_smallest_to_largest(drawn):
    (ax,) = drawn(plot(Curves("a", "loss", (series([1, 2, 3, 4], [3, 4, 5, 8]),))))
    (curve,) = [line for line in ax.lines if len(line.get_xdata()) == len(X)]
    assert curve.get_ydata().tolist() == [2, 3, 4, 6]  # exact: means of small whole numbers
    (band,) = ax.collections
    ys = band.get_paths()[0].vertices[:, 1]
    assert (ys.min(), ys.max()) == (1, 8)


def test_long_curves_have_no_markers_and_short_ones_have(drawn):
    for points, marker in ((12, "o"), (13, "")):
        x = np.arange(float(points))
        (ax,) = drawn(plot(Curves("a", "loss", (series(x + 1, x=x),))))
        assert ax.lines[0].get_marker() == marker


def test_the_legend_names_each_algorithm_once(drawn):
    panel = Curves("a", "loss", (series([1, 2, 3, 4]), series([2, 3, 4, 5], role="gd")))
    shown = drawn(plot(panel, panel, panel))
    (legend,) = shown[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["sam", "gd"]


def test_drawing_twice_gives_the_same_bytes():
    assert draw(plot(CASES["several seeds"])) == draw(plot(CASES["several seeds"]))


def test_save_writes_one_png_a_plot(tmp_path):
    plots = tuple(Plot(f"p{k}", "t", ((CASES["one seed"],),)) for k in range(2))
    paths = save(plots, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["p0.png", "p1.png"]
    assert all(path.read_bytes().startswith(MAGIC) for path in paths)


def test_save_refuses_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file is not a directory"):
        save((plot(CASES["one seed"]),), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "–"),
        (0.0, "0"),
        (21.912345, "21.91"),
        (0.000123456, "0.0001235"),
        (1e-9, "1e-09"),
        (123456.0, "1.235e+05"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (100000, "100000"),
        (True, "True"),
        ("a b", "a b"),
    ],
)
def test_numbers_have_four_significant_figures(value, text):
    assert number(value) == text


def test_markdown_has_a_header_and_a_line_a_row():
    rows = [{"name": "a", "value": 0.5, "error": None}, {"name": "b", "value": 2, "error": 1e-9}]
    assert markdown(rows).splitlines() == [
        "| name | value | error |",
        "|---|---|---|",
        "| a | 0.5 | – |",
        "| b | 2 | 1e-09 |",
    ]
    assert markdown([]) == "(empty)"


@pytest.mark.parametrize(
    "values, scale", [((20.0, 25.0), "linear"), ((2.0, 25.0), "log"), ((), "linear")]
)
def test_a_logarithmic_axis_of_dots_needs_a_range_that_it_can_label(values, scale):
    ax = Figure().subplots()
    panel = Dots("t", "x", (Dot("one", "sam", values),), xscale="log")
    axes.dots(ax, panel, {"sam": "blue"})
    assert ax.get_xscale() == scale
