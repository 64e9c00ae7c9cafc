"""The documents say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import environment
from flatlab.measures import CATALOGUE
from flatlab.training.config import RunConfig

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
PREFIXES = ("ggn_", "fisher_", "gram_")  # the same measures of other matrices


def table_of_measures():
    """Return the table of docs/measures.md, from the catalogue."""
    head = "| name | what | formula | ReLU | BatchNorm | permutation | cost | exact |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for name, measure in CATALOGUE.items():
        if not (name.startswith(PREFIXES) and name.partition("_")[2] in CATALOGUE):
            a = measure.about
            cells = (
                f"`{name}`", a.title, a.formula, a.relu, a.batchnorm, a.permutation, a.cost, a.exact
            )  # fmt: skip
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def test_the_table_of_measures_is_the_catalogue():
    text = (DOCS / "measures.md").read_text(encoding="utf-8")
    _, _, table = text.partition("<!-- table -->\n")
    assert table.strip() == table_of_measures()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    files = [link.partition("#")[0] for link in links if not link.startswith("http")]
    missing = [file for file in files if not (page.parent / file).exists()]
    assert not missing


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "training.md"], ids=lambda p: p.name)
def test_the_training_snippets_run(page, tmp_path):
    code = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    code = [part for part in code if "fl.train(" in part]
    assert code
    ended = "assert run.status in ('done', 'reached')"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join([*code, ended])],
        cwd=tmp_path,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_run_file_is_a_run():
    text = (DOCS / "training.md").read_text(encoding="utf-8")
    RunConfig.from_dict(tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.S)[1]))


if __name__ == "__main__":  # python tests/test_documents.py writes the table anew
    path = DOCS / "measures.md"
    before, mark, _ = path.read_text(encoding="utf-8").partition("<!-- table -->\n")
    path.write_text(f"{before}{mark}{table_of_measures()}\n", encoding="utf-8")
