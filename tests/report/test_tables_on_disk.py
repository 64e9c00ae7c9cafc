"""The tables and settings that a run leaves on disk, as CSV, LaTeX and JSON."""

import csv
import json
import re

import pytest

from flatlab import report
from flatlab.report.latex import escaped, latex
from results_for_tests import part, results

ROWS = [
    {"arm": "50 % of {γ}_1 & more", "loss": 1 / 3, "y": 0.5, "y_low": 0.25, "y_high": 0.75},
    {"arm": "a\\b, ρ ≤ 0.1", "loss": None, "y": 1.0, "y_low": None, "y_high": None},
]


def made(tmp_path, *ids):
    parts = tuple(part(id, tables={"final values": ROWS}, setting="xor: d = 4.") for id in ids)
    found = results({"a": {"holds": True}}, ids[0], folder=tmp_path, experiments=parts)
    report.publish(found.model_copy(update={"changes": {"d": 4}}))
    return tmp_path


def test_settings_and_tables_are_on_disk(tmp_path):
    folder = made(tmp_path, "wen2023/fig4")
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["changes"] == {"d": 4} and settings["preset"] == "lab"
    assert settings["experiments"] == {"wen2023/fig4": {"seeds": 3}}
    with open(folder / "tables" / "fig4-final-values.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == [row["arm"] for row in ROWS]
    assert float(rows[0]["loss"]) == 1 / 3 and rows[1]["loss"] == ""
    text = (folder / "tables" / "fig4-final-values.tex").read_text()
    first = "% A plain tabular: it needs no package.\n"
    assert text.startswith(f"{first}% wen2023/fig4. xor: d = 4.\n\\begin{{tabular}}{{lrl}}\n")
    assert r"50 \% of \{$\gamma$\}\_1 \& more & 0.3333 & 0.5 [0.25, 0.75] \\" in text
    assert r"a\textbackslash{}b, $\rho$ $\leq$ 0.1 & -- & 1 \\" in text
    verdicts = (folder / "verdicts.tex").read_text()
    assert text.isascii() and verdicts.isascii() and verdicts.startswith(first)
    assert r"a & yes & 0.5 [0.4, 0.6] & holds \\" in verdicts


def test_tables_of_several_sources_do_not_overwrite_each_other(tmp_path):
    folder = made(tmp_path, "wen2023/fig4", "other/fig4")
    names = {path.name for path in (folder / "tables").iterdir()}
    assert {"wen2023-fig4-final-values.csv", "other-fig4-final-values.csv"} <= names


@pytest.mark.parametrize("rows", [[], [{}], [{"a": 1}, {"b": "x_y"}]])
def test_a_table_is_balanced_whatever_its_rows(rows):
    text = latex(rows)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    columns = len(re.search(r"tabular}{(\w+)}", text)[1])
    for line in text.splitlines():
        if line.endswith(r"\\"):
            assert line.count("&") == columns - 1


# Commands of plain LaTeX in its first font encoding; others need a package.
TEXT = (
    "textbackslash textasciitilde textasciicircum textless textgreater textbar ldots ss O o AE ae "
    "OE oe L l i j r H v c u"
)
MATHS = (
    "pm times cdot leq geq neq approx surd infty nabla to frac varepsilon epsilon sum partial "
    "alpha beta gamma delta zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi "
    "chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)


def signs():
    ranges = (range(0, 0x250), range(0x300, 0x400), range(0x2000, 0x2C00), range(0x1F600, 0x1F610))
    return "".join(chr(code) for codes in ranges for code in codes)


def test_every_text_is_ascii_that_plain_latex_takes():
    """No sign opens or ends anything but its own maths, and every command is one of plain LaTeX."""
    for sign in signs():
        text = escaped(f"a{sign}b")
        assert text.isascii() and text.isprintable(), ascii(sign)
        maths, outside = "".join(re.findall(r"\$([^$]*)\$", text)), re.sub(r"\$[^$]+\$", "", text)
        assert set(re.findall(r"\\([A-Za-z]+)", outside)) <= set(TEXT.split()), ascii(sign)
        assert set(re.findall(r"\\([A-Za-z]+)", maths)) <= set(MATHS.split()), ascii(sign)
        left = re.sub(r"\\[A-Za-z]+|\\[^A-Za-z]", "", outside)  # without commands
        assert not set(left) & set('&%$#_^~\\"'), ascii(sign)
        assert left.count("{") == left.count("}"), ascii(sign)
    assert escaped("[1, 2]").startswith("{[}")  # not an option of the line before


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("λ_max ≤ 2ρ²", r"$\lambda$\_max $\leq$ 2$\rho$$^{2}$"),
        ("√η ± 5 % ✓ − ∞", r"$\surd$$\eta$ $\pm$ 5 \% $\surd$ $-$ $\infty$"),
        ('Gauß "é" ï ű #1', "Gau\\ss{} ''\\'{e}'' \\\"{\\i} \\H{u} \\#1"),
        ("a Ð \x7f 😀", "a [U+00D0] [U+007F] [U+1F600]"),
    ],
)
def test_signs_of_names_statements_and_values(text, made):
    assert escaped(text) == made


def test_the_tables_of_every_experiment_are_ascii():
    """Names, claims and settings of the whole catalogue."""
    from flatlab.experiments.catalogue import CATALOGUE

    rows = [{"claim": text, "experiment": e.id} for e in CATALOGUE.values() for text in says(e)]
    assert len(rows) >= len(CATALOGUE) and latex(rows, "ρ = ½").isascii()
    assert "[U+" not in latex(rows)


def says(experiment):
    return [value for value in vars(experiment).values() if isinstance(value, str)]


def test_greek_letters_have_commands_that_latex_knows():
    assert escaped("αΩΡο") == r"$\alpha$$\Omega$$P$$o$"
    assert escaped("a ϸ") == "a [U+03F8]"
