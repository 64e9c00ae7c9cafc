"""What the documents say of the claims is what the registry says."""

import re
from collections import Counter
from pathlib import Path

import pytest

from flatlab.claims import claims
from flatlab.claims.errata import ERRATA

ROOT = Path(__file__).parents[2]
WORDS = ("holds", "holds corrected", "consistent", "refuted", "by experiment", "not checkable")
IDS = re.compile(r"`((?:wen2023|kaur2022|wu2025|flatlab|summary001)\.[\w.]+)`")


COLUMNS = ("wen2023", "kaur2022", "wu2025", "others", "all")


def column(claim):
    return claim.source if claim.source in COLUMNS else "others"


def table():
    """Return the table of docs/theory.md: the number of claims for each verdict and source."""
    count = Counter((each.expected, column(each)) for each in claims().values())
    count += Counter((each.expected, "all") for each in claims().values())
    rows = [f"| verdict | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for word in WORDS:
        cells = " | ".join(str(count[word, name] or "") for name in COLUMNS)
        rows.append(f"| {word} | {cells} |")
    totals = (sum(count[word, name] for word in WORDS) for name in COLUMNS)
    return "\n".join([*rows, f"| claims | {' | '.join(map(str, totals))} |"])


def test_the_page_of_the_theory_counts_the_claims():
    text = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    checks = sum(each.check is not None for each in claims().values())
    assert table() in text and f"{checks} of {len(claims())}" in text
    assert f"{len(ERRATA)} errata" in text


def test_the_readme_counts_the_claims():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    count = Counter((each.source, each.expected) for each in claims().values())
    for source, author in (("wen2023", "K. Wen"), ("kaur2022", "S. Kaur"), ("wu2025", "L. Wu")):
        total = sum(each.source == source for each in claims().values())
        assert re.search(rf"^\| {author}.* \| {total} \| ", text, re.MULTILINE)
    assert f"{count['wen2023', 'holds corrected']} are wrong as printed" in text
    assert count["wen2023", "refuted"] == 1 and "and one is refuted" in text
    checked = sum(count["kaur2022", word] for word in ("holds", "holds corrected", "consistent"))
    assert f"its {checked} claims of theory are checked" in text


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
