"""The measured parts of pages, made from the code; the tests compare them with the pages.

python tests/documents.py                 # the tables of README.md and docs/measures.md
python tests/documents.py results.json    # docs/choices.md and docs/choices.json, from
                                          # `flatlab run wen2023/sensitivity --json`
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from conftest import environment
from flatlab.experiments.wen2023 import sensitivity
from flatlab.measures import CATALOGUE

ROOT = Path(__file__).parents[1]
README, MEASURES = ROOT / "README.md", ROOT / "docs/measures.md"
CHOICES, NUMBERS = ROOT / "docs/choices.md", ROOT / "docs/choices.json"

# README.md: the code of its measuring section and the table below it.
SNIPPET = re.compile(
    r"(## Measure your own model\n\n(?P<text>.*?)```\n\n```\n)(?P<table>.*?)```\n", re.S
)
# docs/measures.md: the table is everything below this line.
MARK = "<!-- table -->\n"
PREFIXES = ("ggn_", "fisher_", "gram_")  # the same measures of other matrices
# docs/choices.md: a measured part stands between two comments.
PART = re.compile(r"<!-- (\w+) -->.*?<!-- end -->", re.DOTALL)
WORDS = {True: "turns no answer; nearest to it, {}.", False: "matters: {}.", None: "undecided: {}."}


def printed(folder):
    """Run the README's measuring snippet as a file in a folder; return what it prints."""
    text = SNIPPET.search(README.read_text(encoding="utf-8"))["text"] + "```"
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


def numbers(document):
    """Return what docs/choices.md needs of the JSON that a run prints."""
    (part,) = document["experiments"]
    kept = {"id": part["id"], "preset": document["preset"], "finding": part["finding"]}
    return {**kept, "verdicts": document["verdicts"], "rows": part["tables"]["sensitivity"]}


def cell(row):
    """Return one entry of that page's table; another answer is bold."""
    if row["answer"] == "diverged":
        return "**diverged**"
    text = f"{100 * row['test_error']:.1f} %"
    return {"same": text, "other": f"**{text}**", "undecided": f"{text} ?"}[row["answer"]]


def table_of_choices(rows):
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
    made = {"finding": found["finding"], "table": f"\n{table_of_choices(found['rows'])}\n"}
    for verdict in found["verdicts"]:
        choice = verdict["claim"].rpartition(".")[2]
        made[choice] = WORDS[verdict["holds"]].format(verdict["reason"])
    return made


def written(text, found):
    """Return the text of docs/choices.md with its measured parts made anew."""
    made = parts(found)
    return PART.sub(lambda m: f"<!-- {m[1]} -->{made[m[1]]}<!-- end -->", text)


def main():
    """Write the pages anew."""
    if len(sys.argv) > 1:
        found = numbers(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
        CHOICES.write_text(written(CHOICES.read_text(encoding="utf-8"), found), encoding="utf-8")
        NUMBERS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    before, mark, _ = MEASURES.read_text(encoding="utf-8").partition(MARK)
    MEASURES.write_text(f"{before}{mark}{table_of_measures()}\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        table = printed(Path(folder))
    text = README.read_text(encoding="utf-8")
    README.write_text(SNIPPET.sub(lambda m: f"{m[1]}{table}```\n", text), encoding="utf-8")


if __name__ == "__main__":
    main()
