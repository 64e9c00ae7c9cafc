"""Experiments in files of the user's own, and sources that are not experiments."""

import json
import re
from pathlib import Path

import pytest

from flatlab.experiments import CATALOGUE

PAGE = Path(__file__).parents[2] / "docs" / "reproduce.md"


def documented():
    """Return the complete example of the page."""
    (code,) = (
        code
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
        if "EXPERIMENT = Comparison(" in code
    )
    return code


def test_the_documented_experiment_runs_in_other_processes(flatlab, tmp_path):
    (tmp_path / "mine.py").write_text(documented())
    command = ("run", "mine.py:EXPERIMENT", "--preset", "quick", "--set", "rho=0.1", "--jobs", "2")
    done = flatlab(*command, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["folder"] == "results/mine-flatter-quick-rho=0.1"
    assert found["verdicts"][0]["claim"] == "mine.flatter.flatter"
    assert {run["status"] for run in found["runs"]} == {"done"} and len(found["runs"]) == 4
    page = (tmp_path / found["folder"] / "results.md").read_text()
    assert "`flatlab run mine.py:EXPERIMENT --preset quick --set rho=0.1`" in page
    assert (tmp_path / found["folder"] / "pictures" / "flatter.png").exists()
    again = flatlab(*command, "--json")
    assert all(run["reused"] for run in json.loads(again.stdout)["runs"])


COMPUTES = """
from flatlab.experiments import Computation, Experiment, Findings, Verdict
from flatlab.specs import spec

@spec
class Settings:
    n: int = 3

def double(payload, report):
    return {"twice": 2 * payload["n"]}

def plan(s):
    return [Computation("double", f"{__name__}:double", {"n": s.n})]

def analyse(s, preset, made):
    twice = made["double"].result["twice"] if made else None
    verdict = Verdict("mine.double", "it doubles", "yes", twice, None, None, twice == 2 * s.n, "so")
    return Findings((verdict,), {}, ())

EXPERIMENT = Experiment(
    "mine/double", "mine", "-", "it doubles", {"lab": Settings()}, plan, analyse, __name__
)
NUMBER = 3
TAKEN = Experiment("wen2023/fig4", "x", "-", "x", {"lab": Settings()}, plan, analyse, __name__)
UNNAMED = Experiment("x", "x", "-", "x", {"lab": Settings()}, plan, analyse, __name__)
BROKEN = Experiment("mine/b", "x", "-", "x", {"lab": Settings()}, lambda s: 1 / 0, analyse, "x")
LATE = Experiment("mine/l", "x", "-", "x", {"lab": Settings()}, plan, lambda *a: 1 / 0, "x")
"""


def test_a_computation_of_the_same_file_is_found_in_another_process(flatlab, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.py").write_text(COMPUTES)
    done = flatlab("run", "folder/mine.py:EXPERIMENT", "--set", "n=5", "--jobs", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["verdicts"][0]["measured"] == 10 and found["verdicts"][0]["verdict"] != "fails"


@pytest.mark.parametrize(
    "name, said",
    [
        ("mine.py", "mine.py:EXPERIMENT"),
        ("nothing.py:EXPERIMENT", "cannot import nothing.py"),
        ("mine.py:MISSING", "mine.py has no object 'MISSING'"),
        ("mine.py:NUMBER", "must be an Experiment or a Comparison, got int"),
        ("mine.py:TAKEN", "'wen2023/fig4', which is taken"),
        ("mine.py:UNNAMED", "must be like 'mine/first', got 'x'"),
        ("mine.py:BROKEN", "the plan of mine.py:BROKEN failed: ZeroDivisionError"),
        ("mine.py:LATE", "the analysis of mine.py:LATE failed: ZeroDivisionError"),
    ],
)
def test_a_mistake_in_an_own_experiment_is_one_line(main, tmp_path, name, said):
    (tmp_path / "mine.py").write_text(COMPUTES)
    code, out, err = main("run", name, "--jobs", "1")
    assert (code, out) == (2, "") and err.count("\n") == 1 and said in err


def test_a_source_is_not_an_experiment(main):
    code, out, err = main("run", "wen2023", "--preset", "quick")
    assert (code, out) == (2, "") and err.count("\n") == 1
    count = sum(id.startswith("wen2023/") for id in CATALOGUE)
    assert f"`flatlab reproduce wen2023` runs all of its {count} experiments" in err
