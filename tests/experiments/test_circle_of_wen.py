import dataclasses
import json

import numpy as np
import pytest

from flatlab.errors import UserError
from flatlab.experiments.catalogue import settings_of
from flatlab.experiments.contract import Fit
from flatlab.experiments.wen2023 import fig3


def test_the_paper_and_lab_presets_of_figure_3_decide_and_hold():
    lab = fig3.PRESETS["lab"]
    found = fig3.EXPERIMENT.analyse(lab, "lab", {})
    assert {v.word for v in found.verdicts} == {"holds"} and len(found.verdicts) == 4
    rows = found.tables["fig3"]
    assert len(rows) == 10 and rows[-1]["epsilon"] == 0.1 / 2**9
    for row in rows:
        # The floor on n points of the unit circle, 4√2; the share is counted on 200,000 points.
        assert row["floor"] == pytest.approx(4 * np.sqrt(2), rel=1e-12)
        assert row["share"] == pytest.approx(min(1, row["arcs"]), abs=24 / 200_000)
    assert "exponent 0.500" in found.finding


@pytest.mark.parametrize(
    "name, change",
    [
        ("interpolates", {"loss": 1e-3}),
        ("zero_outside", {"outside": 1e-9}),
        ("flattest", {"trace": 5.7}),
        ("flattest", {"trace": 5.6}),
        ("shrinks", {"share": 0.3}),
    ],
)
def test_one_change_of_a_network_turns_its_verdict(name, change):
    found = fig3.networks(dataclasses.replace(fig3.PRESETS["lab"], n_test=20_000))
    found[5] = dataclasses.replace(found[5], **change) if name != "shrinks" else found[5]
    if name == "shrinks":
        found = [dataclasses.replace(each, **change) for each in found]
    assert {v.claim.split(".")[2]: v.word for v in fig3.judged(found, Fit())}[name] == "fails"
    left_open = {(v.word, v.reason) for v in fig3.judged(found, Fit("n is 3 (needs 12)"))}
    assert left_open == {("not assessed", "n is 3 (needs 12)")}


def test_arcs_that_overlap_say_nothing_of_the_exponent():
    settings = dataclasses.replace(fig3.PRESETS["lab"], epsilon=0.12, halvings=2)
    shrinks = fig3.EXPERIMENT.analyse(settings, "lab", {}).verdicts[-1]
    assert (shrinks.word, shrinks.measured) == ("not assessed", None)
    assert "overlap" in shrinks.reason


def test_figure_3_runs_without_runs_from_the_command_line(main, tmp_path):
    code, out, err = main("run", "wen2023/fig3", "--preset", "quick", "--out", tmp_path, "--json")
    assert code == 0, err
    document = json.loads(out)
    (part,) = document["experiments"]
    assert document["runs"] == [] and len(part["tables"]["fig3"]) == 3
    assert {v["holds"] for v in document["verdicts"]} == {None}
    (figure,) = part["figures"]
    assert (tmp_path / document["folder"] / figure).read_bytes().startswith(b"\x89PNG")
    code, out, _ = main("run", "wen2023/fig3", "--preset", "quick", "--out", tmp_path)
    assert code == 0 and f"picture: {document['folder']}/{figure}" in out


def test_figure_3_has_no_seeds():
    with pytest.raises(UserError, match="wen2023/fig3 has no seeds, since nothing is random"):
        settings_of([fig3.EXPERIMENT], "lab", 3)


@pytest.mark.parametrize(
    "changes, epsilon",
    [
        ({}, 0.1),
        ({"n": 20}, 0.75 * (1 - np.cos(np.pi / 10))),
        ({"n": 20, "epsilon": 0.02}, 0.02),
        ({"halvings": 2}, 0.1),
    ],
)
def test_settings_reach_the_picture(changes, epsilon):
    """`--set n=20` draws twenty points with arcs that fit, `--set epsilon=…` arcs of that width."""
    s = settings_of([fig3.EXPERIMENT], "quick", None, changes)[fig3.EXPERIMENT.id]
    assert s.epsilon == pytest.approx(epsilon, rel=1e-12)
    found = fig3.EXPERIMENT.analyse(s, "quick", {})
    assert found.tables["fig3"][0]["epsilon"] == s.epsilon
    (plot,) = found.plots
    (row,) = plot.panels
    assert plot.name == "fig3" and len(row) == min(3, s.halvings)
    assert row[0].title.startswith(f"ε = {s.epsilon:.3g}: ")
    assert sum(len(cloud.x) for cloud in row[0].clouds) == s.n
    _, *arcs = row[0].outlines
    assert sum(len(each.x) for each in arcs) == s.n
    # The arc of the first point, at angle 0, ends at arccos(1 − ε).
    end = np.arctan2(arcs[0].y[0, -1], arcs[0].x[0, -1])
    assert end == pytest.approx(np.arccos(1 - s.epsilon), abs=1e-4)


def test_an_epsilon_that_does_not_fit_is_refused_before_anything_is_done():
    with pytest.raises(UserError, match=r"epsilon must be < 0\.0489435, the margin of 20 points"):
        settings_of([fig3.EXPERIMENT], "quick", None, {"n": 20, "epsilon": 0.1})
    with pytest.raises(UserError, match="epsilon must be > 0 or left out, got 0"):
        settings_of([fig3.EXPERIMENT], "quick", None, {"epsilon": 0})


def test_the_command_draws_what_is_set(main, tmp_path):
    drawn, settings = [], []
    for k, n in enumerate((8, 20)):
        code, out, err = main(
            "run", "wen2023/fig3", "--preset", "quick", "--set", f"n={n}",
            "--out", tmp_path / str(k), "--json",
        )  # fmt: skip
        assert code == 0, err
        (part,) = json.loads(out)["experiments"]
        settings.append(part["settings"])
        (path,) = (tmp_path / str(k)).rglob("fig3.png")
        drawn.append(path.read_bytes())
    assert drawn[0] != drawn[1]
    assert [s["n"] for s in settings] == [8, 20]
    assert [s["epsilon"] for s in settings] == [0.1, pytest.approx(0.036708, abs=1e-6)]
