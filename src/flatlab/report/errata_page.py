"""The page of errata: the printed statement, the correct one, and the numbers that decide.

    python -m flatlab.report.errata_page docs/errata.md

The text comes from the registry of errata. The checks of the claims that name an erratum compute
the numbers when the page is made.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..claims import Line
from ..claims.errata import ERRATA
from ..claims.sources import SOURCES
from ..claims.verifying import Verification, verify
from ..errors import FlatlabError, UserError
from ..files.durable import write_atomically
from .pages import render

COMMAND = "python -m flatlab.report.errata_page docs/errata.md"


def page(found: Verification) -> str:
    """Return the page as Markdown from the results of the claims that decide errata."""
    sources = dict.fromkeys(erratum.source for erratum in ERRATA.values())
    shown_first: dict[str, str] = {}
    for erratum in ERRATA.values():
        for claim in erratum.decided_by:
            shown_first.setdefault(claim.id, erratum.id)
    return render(
        "errata",
        seed=found.seed,
        command=COMMAND,
        sources=[
            (SOURCES[source], [e for e in ERRATA.values() if e.source == source])
            for source in sources
        ],
        results={result.claim.id: result for result in found.results},
        shown_first=shown_first,
        evidence=lambda result: [_row(line) for line in result.lines],
    )


def _row(line: Line) -> dict[str, str]:
    measured, should = f"{line.measured:.6g}", line.should
    if line.relation == "is":
        should = ""
        if line.holds is not None:
            measured, should = str(bool(line.measured)).lower(), "true"
    judged = {True: "yes", False: "no", None: ""}[line.holds]
    return {"evidence": line.what, "measured": measured, "should be": should, "is it?": judged}


def make(path: Path, workers: int | None = None) -> None:
    """Check the claims that decide errata and write the page.

    Raises:
        UserError: A claim did not come out as expected; the page is not written.
    """
    deciding = {claim.id for erratum in ERRATA.values() for claim in erratum.decided_by}
    found = verify(sorted(deciding), workers=workers)
    wrong = [*(result.claim.id for result in found.surprises), *found.left]
    if wrong:
        raise UserError(f"not written, these claims came out wrong: {', '.join(wrong)}")
    write_atomically(path, page(found).encode())


if __name__ == "__main__":
    try:
        make(Path(next(iter(sys.argv[1:]), "docs/errata.md")))
    except FlatlabError as error:
        sys.exit(f"errata: {error}")
