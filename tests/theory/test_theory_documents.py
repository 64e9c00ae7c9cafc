"""What the documents say of the claims is what the registry says."""

import re
from collections import Counter
from pathlib import Path

import pytest

from flatlab.claims import claims

ROOT = Path(__file__).parents[2]
WORDS = ("holds", "holds corrected", "consistent", "refuted", "by experiment", "not checkable",
         "not yet")  # fmt: skip
IDS = re.compile(r"`((?:wen2023|kaur2022|wu2025|flatlab|summary001)\.[\w.]+)`")


def table():
    """Return the README's table of claims for each source and word."""
    rows = [f"| source | claims | {' | '.join(WORDS)} |", "|---" * (len(WORDS) + 2) + "|"]
    sources = dict.fromkeys(each.source for each in claims().values())
    for source in [*sources, "all"]:
        found = [each for each in claims().values() if source in (each.source, "all")]
        count = Counter(each.expected for each in found)
        cells = " | ".join(str(count[word] or "") for word in WORDS)
        rows.append(f"| {source} | {len(found)} | {cells} |")
    return "\n".join(rows)


def test_the_readme_counts_the_claims():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    checks = sum(each.check is not None for each in claims().values())
    assert table() in text and f"{checks} of {len(claims())}" in text


@pytest.mark.parametrize("page", ["README.md", "docs/theory.md", "docs/errata.md"])
def test_every_id_in_the_documents_exists(page):
    found = set(IDS.findall((ROOT / page).read_text(encoding="utf-8")))
    files = {"flatlab.theory", "flatlab.optim", "flatlab.measure", "flatlab.engine"}
    unknown = {each for each in found if each not in claims() and not each.startswith(tuple(files))}
    assert not unknown


def test_the_walk_through_the_theory_names_the_theorems():
    text = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    for place in ("thm3.1", "thm3.2", "thm4.1", "thm5.1", "lem4.1", "eq5", "prop4.1", "prop5.2"):
        assert f"`wen2023.{place}`" in text


if __name__ == "__main__":
    print(table())
