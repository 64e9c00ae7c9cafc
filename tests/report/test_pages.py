"""Pages of made-up results: their content and its order."""

import io
from importlib import resources

import pytest
from rich.console import Console

from flatlab.cli import console
from flatlab.outside.tables import markdown
from flatlab.report.pages import render
from flatlab.report.publishing import as_csv
from flatlab.report.results_page import agreement, left_open, page
from results_for_tests import left_out, part, results

LAB = results(
    {
        "a": {"holds": True},
        "b": {"holds": False, "because": "the trace | stayed high"},
        "c": {"holds": False, "because": "the trace | stayed high"},
        "d": {"holds": None, "paper": "ours", "measured": 0.2},
    },
    experiments=(
        part(
            "wen2023/fig4",
            finding="It is flatter.",
            notes=("one diverged",),
            tables={"short": [{"x": 1, "y": 0.5, "y_low": 0.25, "y_high": 0.75}]},
            figures=("pictures/fig4.png",),
        ),
    ),
    left_out=(left_out("wen2023/fig5", "it did not fit the budget"),),
)
PAPER = results(
    {"a": {"holds": False}, "b": {"holds": False}, "d": {"holds": True, "measured": 0.3}},
    preset="paper",
)


def test_a_reason_that_open_verdicts_share_is_said_once(monkeypatch):
    open_, reason = {"holds": None}, "the interval contains 0.1"
    several = results({"a": open_, "b": {"holds": True}, "c": open_})
    assert several.shared("wen2023/fig4") == {reason: 2}
    text = page(several)
    assert text.count(reason) == 1
    assert f"- not assessed, 2 claims: {reason}." in text
    for width in (80, 140):
        printed = io.StringIO()
        monkeypatch.setattr(console, "out", Console(file=printed, width=width))
        console.print_results(several)
        assert printed.getvalue().count(reason) == 1
        assert f"not assessed, 2 claims: {reason}" in printed.getvalue()
    assert page(results({"a": open_})).count(reason) == 1


def test_a_page_says_what_holds_what_fails_and_what_was_left_out():
    text = page(LAB)
    assert text.startswith(
        "# Results: Nobody 1900\n\n4 claims: 1 hold, 2 fail, 1 are not assessed."
    )
    assert "Of these the paper speaks of 3: 1 hold, 2 fail, 0 are not assessed." in text
    assert "| `b` | yes | 0.5 [0.4, 0.6] | **fails** |" in text
    failures = text.partition("## What fails, and why\n")[2].partition("\n## ")[0]
    # What happened is told once for neighbours that share it.
    assert failures.count("- `") == 2 and failures.count("What happened: the trace") == 1
    assert "- wen2023/fig5: it did not fit the budget.\n" in text
    assert "![Figure 0: fig4](pictures/fig4.png)" in text
    assert "- **wen2023/fig4**: It is flatter.\n- **wen2023/fig4**, note: one diverged" in text
    assert "| x | y |\n|---|---|\n| 1 | 0.5 [0.25, 0.75] |" in text
    # 3,000 epochs at the paper's rate, over 12 seconds: 0.36 h = 1,296 s.
    assert "| wen2023/fig4 | 3 | 2 | 3,000 | 12 | 7 | 5,000 | 0.6 | 108 |" in text
    assert "judged at commit unknown; one, 2 cores.\n" in text
    assert "\n\n\n" not in text and "presets" not in text


def test_a_page_beside_another_preset_says_where_they_differ():
    text = page(LAB, other=PAPER, made_by="a command")
    assert "\n    a command\n" in text
    assert agreement(LAB, PAPER) in text
    assert "| claim | paper | measured | verdict | preset paper |" in text
    assert "| `c` | yes | 0.5 [0.4, 0.6] | **fails** | – |" in text
    assert (
        "Decided by paper and open in lab:\n\n- `d`: 0.2 (seeds: 3), the interval contains 0.1; "
        "paper: holds, 0.3 [0.2, 0.4] (seeds: 3).\n" in text
    )
    assert "open in paper" not in text and "\n\n\n" not in text


def test_agreement_counts_every_pair_once():
    said = " ".join(agreement(LAB, PAPER).split())
    assert said == (
        "Of 3 claims that the presets lab and paper both have, 1 are decided alike, 1 are decided "
        "by only one of them, 0 by neither, and 1 are decided differently: `a`."
    )
    assert left_open(PAPER, LAB) is None


def test_a_table_of_verdicts_keeps_all_digits_and_has_no_none():
    made = results({"a": {"holds": True, "measured": 0.1 + 0.2}, "b": {"holds": None}})
    _, first, second = as_csv(made.verdicts).splitlines()
    assert "0.30000000000000004" in first and "None" not in second


def test_a_cell_stays_on_one_line_and_in_its_column():
    made = markdown([{"a": "x | y\nz", "b": None}])
    assert made.splitlines()[2] == "| x \\| y z | – |"


def test_templates_are_part_of_the_package_and_refuse_what_is_missing():
    names = {path.name for path in (resources.files("flatlab.report") / "templates").iterdir()}
    assert names == {"results.md.j2", "errata.md.j2"}
    with pytest.raises(Exception, match="is undefined"):
        render("errata", seed=0)
