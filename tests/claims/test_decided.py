"""Claims that an experiment decides: `flatlab verify` shows the stored verdict."""

import json
from pathlib import Path

import pytest

from flatlab.cli import console
from results_for_tests import results


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Have room for every row on one line, whatever the terminal of the one who tests."""
    monkeypatch.setattr(console.out, "_width", 140)


def store(folder, verdicts, preset="lab"):
    """Store results of Figure 4: claim → (paper, holds)."""
    folder.mkdir(parents=True)
    options = {
        claim: {"paper": paper, "holds": holds} for claim, (paper, holds) in verdicts.items()
    }
    results(options, "wen2023/fig4", preset, folder).save()


def found_of(main, *arguments):
    code, out, err = main("verify", "wen2023.fig4", *arguments, "--json")
    assert (code, err) == (0, "")
    (claim,) = json.loads(out)["claims"]
    assert claim["word"] == "by experiment"  # an experiment is no check
    return claim["decided"]


def test_the_stored_verdict_of_an_experiment_is_shown(main, tmp_path):
    assert found_of(main) is None
    code, out, _ = main("verify", "wen2023.fig4")
    assert code == 0 and "flatlab run wen2023/fig4" in out
    held = {"wen2023.fig4.worse": ("yes", True), "wen2023.fig4.extra": ("ours", False)}
    store(Path("results", "wen2023-fig4-lab"), held)
    assert found_of(main) == {
        "verdict": "holds",  # what is ours does not count against the paper
        "holds": 1, "fails": 0, "open": 0, "preset": "lab", "folder": "results/wen2023-fig4-lab",
    }  # fmt: skip
    code, out, _ = main("verify", "wen2023.fig4")
    assert code == 0
    assert "by experiment: holds" in out and "(1 hold; results/wen2023-fig4-lab)" in out
    code, out, _ = main("verify", "wen2023.fig4", "--show")
    assert "by experiment: holds (1 hold; results/wen2023-fig4-lab)" in out
    Path("elsewhere").mkdir()
    assert found_of(main, "--results", "elsewhere") is None


def test_of_several_results_those_that_decide_most_are_shown(main, tmp_path):
    """A quick look must not hide what a larger run decided, whichever came last."""
    decided = {"wen2023.fig4.worse": ("yes", True), "wen2023.fig4.flatter": ("yes", False)}
    store(tmp_path / "all" / "wen2023-lab", decided)
    left_open = dict.fromkeys(decided, ("yes", None))
    store(tmp_path / "all" / "wen2023-fig4-quick", left_open, "quick")
    found = found_of(main, "--results", tmp_path / "all")
    assert (found["verdict"], found["preset"]) == ("fails", "lab")
    assert (found["holds"], found["fails"], found["open"]) == (1, 1, 0)


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', '{"format": 2}'])
def test_results_that_cannot_be_read_are_named_and_passed_over(main, tmp_path, text):
    store(tmp_path / "all" / "good", {"wen2023.fig4.worse": ("yes", None)})
    bad = tmp_path / "all" / "bad" / "results.json"
    bad.parent.mkdir()
    bad.write_text(text)
    command = ("verify", "wen2023.fig4", "--results", tmp_path / "all")
    code, out, err = main(*command, "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["claims"][0]["decided"]["verdict"] == "not assessed"
    (warning,) = document["warnings"]
    assert str(bad) in warning and "run the command that made it again" in warning
    code, out, err = main(*command)
    assert code == 0 and "not assessed" in out
    assert err == f"flatlab: warning: passed over: {warning}\n"


def test_a_folder_of_results_that_does_not_exist_is_an_error(main, tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("nowhere", "file"):
        code, out, err = main("verify", "wen2023.fig4", "--results", tmp_path / name)
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert f"there is no folder {tmp_path / name}" in err
