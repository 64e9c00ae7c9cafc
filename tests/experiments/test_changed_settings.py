"""Settings that a request changes: where its files go, and what they say about it."""

import pytest

from flatlab import experiments, report
from flatlab.claims import claims
from flatlab.claims.decided import decided
from flatlab.experiments import CATALOGUE, Results
from flatlab.experiments.setting import folder_name
from results_for_tests import results

SHORT = {"gd_epochs": 2, "sam_epochs": 1, "sam_epochs_second": 1, "n_test": 20, "width": 5}


@pytest.fixture(scope="module")
def presets():
    """Figure 4 with a tiny preset of its own, in place of the catalogue's."""
    import dataclasses

    whole = CATALOGUE["wen2023/fig4"]
    small = dataclasses.replace(whole.presets["quick"], n=8, **SHORT)
    return dataclasses.replace(whole, presets={"lab": small})


def test_a_changed_setting_has_a_folder_and_a_caption_of_its_own(presets, tmp_path, monkeypatch):
    monkeypatch.setitem(CATALOGUE, "wen2023/fig4", presets)
    made = {}
    for name, changes in {"own": {}, "same": {"d": 10}, "d": {"d": 4}}.items():
        found = experiments.run("wen2023/fig4", out=tmp_path, changes=changes, workers=0)
        report.publish(found)
        made[name] = found
    assert made["own"].folder == made["same"].folder == str(tmp_path / "wen2023-fig4-lab")
    assert made["d"].folder == str(tmp_path / "wen2023-fig4-lab-d=4")
    kept = Results.load(tmp_path / "wen2023-fig4-lab")
    assert kept.experiments[0].settings["d"] == 10 and kept.changes == {}
    assert Results.load(tmp_path / "wen2023-fig4-lab-d=4").changes == {"d": 4}
    (own,), (other,) = made["own"].plots.values(), made["d"].plots.values()
    said = "xor: d = 10, n = 8, 20 test points; width 5; seeds 0 to 1."
    assert own[0].caption.endswith(said)
    assert other[0].caption.endswith(f"{said.replace('10', '4')} Changed: d = 4 (lab: 10).")
    page = (tmp_path / "wen2023-fig4-lab-d=4" / "results.md").read_text()
    assert "`flatlab run wen2023/fig4 --preset lab --set d=4`" in page
    assert "Table `fig4` (xor: d = 4, n = 8" in page
    # Runs are in one place, whatever the folder of the results.
    assert len(list((tmp_path / "runs").iterdir())) == len(made["own"].runs) * 2
    assert not list(tmp_path.glob("wen2023-fig4-lab*/runs"))


def test_the_number_of_seeds_is_a_changed_setting(presets, tmp_path, monkeypatch):
    monkeypatch.setitem(CATALOGUE, "wen2023/fig4", presets)
    found = experiments.run("wen2023/fig4", out=tmp_path, seeds=1, workers=0)
    assert found.folder == str(tmp_path / "wen2023-fig4-lab-seeds=1")
    assert "; seed 0." in found.plots["wen2023/fig4"][0].caption


def test_names_of_folders_are_short_and_differ():
    many = {f"setting_{k}": k / 7 for k in range(20)}
    long = folder_name(["a/b"], "lab", many)
    assert len(long) < 80 and long.startswith("a-b-lab-setting_0=0-19-more-")
    assert long != folder_name(["a/b"], "lab", many | {"setting_19": 1.0})
    odd = folder_name(["a/b"], "lab", {"where": "../x y"})
    assert "/" not in odd and " " not in odd
    assert odd != folder_name(["a/b"], "lab", {"where": "../x z"})
    close = [folder_name(["a/b"], "lab", {"x": x}) for x in (0.12345678, 0.12345679)]
    assert len(set(close)) == 2


def test_verify_prefers_the_presets_own_settings(tmp_path):
    claim = claims()["wen2023.fig4"]
    two = ("wen2023.fig4.worse", "wen2023.fig4.flatter")
    own = results({two[0]: {"holds": True}, two[1]: {"holds": None}})
    changed = results({key: {"holds": False} for key in two}, changes={"d": 4})
    there = {tmp_path / "changed": changed, tmp_path / "own": own}
    assert decided(claim, there).folder == str(tmp_path / "own")
    seeds = results({key: {"holds": False} for key in two}, changes={"seeds": 9})
    assert decided(claim, there | {tmp_path / "seeds": seeds}).verdict == "fails"
    still_open = results({key: {"holds": None} for key in two})
    there[tmp_path / "own"] = still_open
    assert decided(claim, there).folder == str(tmp_path / "changed")
