"""The documents say what the code says."""

from __future__ import annotations

from pathlib import Path

from flatlab.measures import CATALOGUE

DOCS = Path(__file__).parents[1] / "docs"
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


if __name__ == "__main__":  # python tests/test_documents.py writes the table anew
    path = DOCS / "measures.md"
    before, mark, _ = path.read_text(encoding="utf-8").partition("<!-- table -->\n")
    path.write_text(f"{before}{mark}{table_of_measures()}\n", encoding="utf-8")
