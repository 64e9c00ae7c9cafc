"""The page of errata: what is printed, what is right, and the numbers that decide it.

    python -m flatlab.report.errata_page docs/errata.md

The words come from the registry of errata. The numbers are computed when the page is made, by the
checks of the claims that name an erratum.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ..claims import Line
from ..claims.errata import ERRATA, Erratum
from ..claims.sources import SOURCES
from ..claims.verifying import Result, Verification, verify
from ..errors import FlatlabError, UserError
from ..files.durable import write_atomically

COMMAND = "python -m flatlab.report.errata_page docs/errata.md"
HEADER = """# Errata of the sources

What is printed wrongly in the sources, in our words, and what is right. Every number below was
computed when this page was made, with seed {seed}; anyone can repeat it with
`flatlab verify --show ID` and the id of a claim. A line marked *as printed* tries the printed
statement, and should fail; the other lines try the corrected one, and should hold. The page is
made by

    {command}
"""


def page(found: Verification) -> str:
    """Return the page as Markdown.

    Args:
        found: What came of the claims that decide errata.
    """
    results = {result.claim.id: result for result in found.results}
    shown: dict[str, str] = {}
    parts = [HEADER.format(command=COMMAND, seed=found.seed)]
    for source in dict.fromkeys(erratum.source for erratum in ERRATA.values()):
        parts.append(f"## {SOURCES[source]}\n")
        parts += [
            _section(erratum, results, shown)
            for erratum in ERRATA.values()
            if erratum.source == source
        ]
    return "\n".join(parts)


def _section(erratum: Erratum, results: Mapping[str, Result], shown: dict[str, str]) -> str:
    lines = [
        f"### {erratum.id}\n",
        f"{erratum.place}\n",
        f"- Printed: {erratum.printed}",
        f"- Right: {erratum.right}",
        f"- Why it matters: {erratum.matters}",
        "",
    ]
    for claim in erratum.decided_by:
        if claim.id in shown:
            first = shown[claim.id]
            lines += [f"`{claim.id}`: see the evidence under [{first}](#{first.lower()}).\n"]
            continue
        shown[claim.id] = erratum.id
        result = results[claim.id]
        lines += [f"`{claim.id}`: {result.word}.\n"]
        if result.lines:
            lines += ["| evidence | measured | should be | is it? |", "|---|---|---|---|"]
            lines += [_row(line) for line in result.lines] + [""]
    return "\n".join(lines)


def _row(line: Line) -> str:
    should, judged = f"{line.relation} {line.expected:.6g}", {True: "yes", False: "no", None: ""}
    if line.relation == "is":
        should = "" if line.holds is None else "true"
    true_or_false = line.relation == "is" and line.holds is not None
    measured = str(bool(line.measured)).lower() if true_or_false else f"{line.measured:.6g}"
    what = line.what.replace("|", "\\|")
    return f"| {what} | {measured} | {should} | {judged[line.holds]} |"


def make(path: Path, workers: int | None = None) -> None:
    """Check the claims that decide errata and write the page.

    Raises:
        UserError: A claim did not come out as expected; the page is left as it was.
    """
    deciding = {claim.id for erratum in ERRATA.values() for claim in erratum.decided_by}
    found = verify(sorted(deciding), workers=workers)
    wrong = [*(result.claim.id for result in found.surprises), *found.left]
    if wrong:
        raise UserError(f"not written, as these claims did not come out: {', '.join(wrong)}")
    write_atomically(path, page(found).encode())


if __name__ == "__main__":
    try:
        make(Path(next(iter(sys.argv[1:]), "docs/errata.md")))
    except FlatlabError as error:
        sys.exit(f"errata: {error}")
