"""docs/choices.md: every choice is there once, its files exist, its numbers are those measured."""

from __future__ import annotations

import json
import re

import pytest

from documents import CHOICES as PAGE
from documents import NUMBERS, ROOT, written
from flatlab.experiments.wen2023 import sensitivity

CHOICES = sorted({*sensitivity.STATEMENTS, "sharpness"} - {"base"})


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
