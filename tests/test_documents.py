"""The documents say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from conftest import environment
from documents import MARK, MEASURES, ROOT, table_of_measures
from flatlab.training.config import RunConfig

DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


def test_the_table_of_measures_is_the_catalogue():
    _, _, table = MEASURES.read_text(encoding="utf-8").partition(MARK)
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
