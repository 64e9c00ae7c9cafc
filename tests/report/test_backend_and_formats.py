"""Pictures in several formats, and whatever backend of matplotlib the environment names."""

import subprocess
import sys

import numpy as np
import pytest

from conftest import environment
from flatlab.errors import UserError
from flatlab.plots import Curve, Curves, Plot
from flatlab.report import draw, formats_of, save

PLOT = Plot(
    "one", "Title", ((Curves("t", "y", (Curve("a", "sam", np.arange(3.0), np.ones((1, 3))),)),),)
)
STARTS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def test_a_picture_is_the_same_file_every_time_in_every_format(tmp_path):
    paths = save([PLOT], tmp_path, STARTS)
    assert [path.name for path in paths] == ["one.png", "one.pdf", "one.svg"]
    for path, (name, start) in zip(paths, STARTS.items(), strict=True):
        assert path.read_bytes().startswith(start)
        assert draw(PLOT, name) == path.read_bytes()


def test_an_unknown_format_is_refused_before_anything_runs(main, tmp_path):
    assert formats_of("png,pdf") == ("png", "pdf")
    with pytest.raises(UserError, match="unknown format ''"):
        formats_of("png,")
    code, out, err = main("run", "wen2023/fig3", "--preset", "quick", "--format", "png,gif")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "unknown format 'gif'" in err and "pdf, png, svg" in err
    assert not (tmp_path / "results").exists()


def test_run_draws_the_formats_it_is_asked_for(main, tmp_path):
    code, _, err = main("run", "wen2023/fig3", "--preset", "quick", "--format", "pdf,svg")
    assert (code, err) == (0, "")
    pictures = tmp_path / "results" / "wen2023-fig3-quick" / "pictures"
    assert {path.name for path in pictures.iterdir()} == {"fig3.png", "fig3.pdf", "fig3.svg"}


DRAWS = """
import os, sys
from flatlab.report import draw
sys.path.insert(0, {tests!r})
from report.test_backend_and_formats import PLOT
assert draw(PLOT).startswith(b"\\x89PNG")
assert "matplotlib.pyplot" not in sys.modules
assert os.environ["MPLBACKEND"] == {name!r}
import matplotlib
print(dict.__getitem__(matplotlib.rcParams, "backend"))
"""


@pytest.mark.parametrize("name", ["nonsense", "module://matplotlib_inline.backend_inline", "svg"])
def test_no_backend_of_the_environment_is_in_the_way(name):
    tests = str(next(p for p in sys.path if p.endswith("tests")))
    done = subprocess.run(
        [sys.executable, "-c", DRAWS.format(tests=tests, name=name)],
        env=environment(MPLBACKEND=name, PYTHONPATH=":".join(filter(None, sys.path))),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # A name that matplotlib knows is left to the user's pyplot; inline is known in notebooks.
    assert name != "svg" or done.stdout.strip() == name


def test_the_state_of_pyplot_is_left_alone():
    import matplotlib.pyplot as plt

    before, figures = plt.get_backend(), plt.get_fignums()
    style = dict(plt.rcParams)
    draw(PLOT)
    assert (plt.get_backend(), plt.get_fignums(), dict(plt.rcParams)) == (before, figures, style)
