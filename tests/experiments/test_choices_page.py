"""docs/choices.md: every choice is there once, its files exist, its numbers are those measured.

    flatlab run wen2023/sensitivity --json > results.json
    python tests/experiments/test_choices_page.py results.json

writes the measured parts of the page anew, and the numbers behind them to docs/choices.json.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from flatlab.experiments.wen2023 import sensitivity

ROOT = Path(__file__).parents[2]
PAGE, NUMBERS = ROOT / "docs/choices.md", ROOT / "docs/choices.json"
CHOICES = sorted({*sensitivity.STATEMENTS, "sharpness"} - {"base"})
PART = re.compile(r"<!-- (\w+) -->.*?<!-- end -->", re.DOTALL)
WORDS = {True: "turns no answer; nearest to it, {}.", False: "matters: {}.", None: "undecided: {}."}


def numbers(document):
    """Return what the page needs of the JSON that a run prints."""
    (part,) = document["experiments"]
    kept = {"id": part["id"], "preset": document["preset"], "finding": part["finding"]}
    return {**kept, "verdicts": document["verdicts"], "rows": part["tables"]["sensitivity"]}


def cell(row):
    if row["answer"] == "diverged":
        return "**diverged**"
    text = f"{100 * row['test_error']:.1f} %"
    return {"same": text, "other": f"**{text}**", "undecided": f"{text} ?"}[row["answer"]]


def table(rows):
    """Return the table of test errors: a row for each variation, a column for each network."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    lines = [f"| choice | variation | {' | '.join(networks)} |", "|---" * (len(networks) + 2) + "|"]
    names = dict.fromkeys((row["choice"], row["variation"]) for row in rows)
    order = list(sensitivity.STATEMENTS)
    for choice, variation in sorted(names, key=lambda name: order.index(name[0])):
        here = {
            row["network"]: cell(row)
            for row in rows
            if (row["choice"], row["variation"]) == (choice, variation)
        }
        cells = " | ".join(here.get(network, "") for network in networks)
        lines.append(f"| `{choice}` | {variation} | {cells} |")
    return "\n".join(lines)


def parts(found):
    """Return marker → text."""
    made = {"finding": found["finding"], "table": f"\n{table(found['rows'])}\n"}
    for verdict in found["verdicts"]:
        choice = verdict["claim"].rpartition(".")[2]
        made[choice] = WORDS[verdict["holds"]].format(verdict["reason"])
    return made


def written(text, found):
    """Return the page with its measured parts made anew."""
    made = parts(found)
    return PART.sub(lambda m: f"<!-- {m[1]} -->{made[m[1]]}<!-- end -->", text)


def text():
    return PAGE.read_text(encoding="utf-8")


def test_the_measured_parts_are_those_of_the_results():
    found = json.loads(NUMBERS.read_text(encoding="utf-8"))
    assert (found["id"], found["preset"]) == ("wen2023/sensitivity", "lab")
    assert written(text(), found) == text()
    assert found["finding"] in text()


@pytest.mark.parametrize("choice", CHOICES)
def test_the_page_tells_every_choice_once(choice):
    assert text().count(f"- Measured (`{choice}`)") == 1
    assert text().count(f"<!-- {choice} -->") == 1


def test_every_section_says_what_where_and_why():
    sections = text().split("\n### ")[1:]
    assert len(sections) >= 15
    for section in sections:
        section = section.partition("\n## ")[0]
        for entry in ("- Unsaid: ", "- Chosen: ", "- Where: ", "- Why: "):
            assert section.count(entry) == 1, section
        assert "- Measured (`" in section or "- Not varied, because " in section, section


def test_the_files_it_names_exist():
    named = set(re.findall(r"`((?:src|docs|tests)/[\w./]+)`", text()))
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_rows_are_those_of_the_experiment():
    rows = json.loads(NUMBERS.read_text(encoding="utf-8"))["rows"]
    trained = {(row["network"], row["choice"], row["variation"]) for row in rows}
    labels = {s.key: s.label for s in sensitivity.scenarios(sensitivity.PRESETS["lab"])}
    for v in sensitivity.VARIATIONS:
        for key in v.scenarios:
            assert (labels[key], v.choice, v.label) in trained


if __name__ == "__main__":
    results = numbers(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    PAGE.write_text(written(text(), results), encoding="utf-8")
    NUMBERS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
