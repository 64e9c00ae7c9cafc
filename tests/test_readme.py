"""The README's measuring section: what it shows is what its code prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import environment

README = Path(__file__).parents[1] / "README.md"
PLACE = re.compile(
    r"(## Measure your own model\n\n(?P<text>.*?)```\n\n```\n)(?P<table>.*?)```\n", re.S
)


def printed(folder):
    """Run the snippet as a file of its own in some folder; return what it prints."""
    text = PLACE.search(README.read_text(encoding="utf-8"))["text"] + "```"
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))
    (folder / "mine.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "mine.py"],
        cwd=folder,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cells(table):
    """Return {measure: (number, method without its numbers)} and the last line."""
    *lines, last = table.strip().splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[2:]]
    return {
        name: (float(re.search(r"= ([-\d.e]+)", value)[1]), re.sub(r"\d+", "#", method))
        for name, value, method, *_ in rows
    }, last


def test_the_snippet_runs_anywhere_and_prints_the_table(tmp_path):
    shown = PLACE.search(README.read_text(encoding="utf-8"))["table"]
    (expected, footnote), (found, last) = cells(shown), cells(printed(tmp_path))
    assert last == footnote and list(found) == list(expected)
    for name, (value, method) in expected.items():
        # Rounding differs between processors and the training amplifies it; estimates have 5 %.
        assert found[name] == (pytest.approx(value, rel=0.05), method), name


if __name__ == "__main__":  # python tests/test_readme.py writes the table anew
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        table = printed(Path(folder))
    text = README.read_text(encoding="utf-8")
    README.write_text(PLACE.sub(lambda m: f"{m[1]}{table}```\n", text), encoding="utf-8")
