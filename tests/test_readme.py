"""The README's measuring section: what it shows is what its code prints."""

from __future__ import annotations

import re

import pytest

from documents import README, SNIPPET, printed


def cells(table):
    """Return {measure: (number, method without its numbers)} and the last line."""
    *lines, last = table.strip().splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[2:]]
    return {
        name: (float(re.search(r"[=≥] ([-\d.e]+)", value)[1]), re.sub(r"\d+", "#", method))
        for name, value, method, *_ in rows
    }, last


def test_the_snippet_runs_anywhere_and_prints_the_table(tmp_path):
    shown = SNIPPET.search(README.read_text(encoding="utf-8"))["table"]
    (expected, footnote), (found, last) = cells(shown), cells(printed(tmp_path))
    assert last == footnote and list(found) == list(expected)
    for name, (value, method) in expected.items():
        # Rounding differs between processors and the training amplifies it; estimates have 5 %.
        assert found[name] == (pytest.approx(value, rel=0.05), method), name


def test_it_is_the_door_and_not_the_basement():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    assert len(SNIPPET.search(text)["text"].partition("```python\n")[2].splitlines()) <= 17
