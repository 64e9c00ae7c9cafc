"""The table of docs/measures.md: how often error bars cover the truth, measure by measure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .judging import BEATEN, Share

PAGE = Path(__file__).parents[2] / "docs/measures.md"
# The table stands between these two comments.
PART = re.compile(r"(<!-- coverage -->\n).*?(<!-- end of coverage -->)", re.S)


def percent(share: float) -> str:
    """Write a share.

    >>> percent(0.9514), percent(1.0)
    ('95.1', '100')
    """
    return f"{100 * share:.1f}".removesuffix(".0")


def _bar(share: Share) -> str:
    if not share.estimates:
        return "exact"
    return "∞" if np.isinf(share.bar) else f"{100 * share.bar:.2g} %"


def row(share: Share) -> str:
    """Return the row of a measure with error bars."""
    covered = "–"
    if share.estimates:
        low, high = share.interval
        covered = (
            f"{percent(share.covered / share.estimates)} % of {share.estimates} "
            f"({percent(low)} to {percent(high)})"
        )
    cells = (f"`{share.name}`", f"{share.readings}", f"{share.exact}", covered,
             f"{len(share.wrong)}", _bar(share))  # fmt: skip
    return f"| {' | '.join(cells)} |"


def search_row(share: Share) -> str:
    """Return the row of a measure that searches."""
    most = max(0.0, *share.beaten)
    cells = (f"`{share.name}`", f"{share.readings}", f"{share.higher}", f"{100 * most:.2g} %",
             f"{len(share.wrong)}")  # fmt: skip
    return f"| {' | '.join(cells)} |"


def tables(found: Sequence[Share], problems: int, first: int, lost: int = 0) -> str:
    """Return both tables with a line that says where they come from."""
    bars = sorted((share for share in found if not share.beaten), key=_order)
    searches = [share for share in found if share.beaten]
    lines = [
        f"{problems} random problems, seeds {first} to {first + problems - 1}"
        + (f", {lost} of which the oracle could not do." if lost else "."),
        "",
        "| measure | readings | exact | intervals that cover the truth | off | median bar |",
        "|---|---|---|---|---|---|",
        *map(row, bars),
        "",
        f"| search | readings | beaten by {BEATEN:.0%} | by at most | off |",
        "|---|---|---|---|---|",
        *map(search_row, searches),
    ]
    return "\n".join(lines)


def _order(share: Share) -> tuple[bool, str]:
    """Put the Hessian's own measures before those of other matrices."""
    other = share.name != "fisher_rao" and share.name.startswith(("ggn_", "fisher_", "gram_"))
    return other, share.name


def write(text: str, page: Path = PAGE) -> None:
    """Put the tables between the markers of a page."""
    before = page.read_text(encoding="utf-8")
    page.write_text(PART.sub(lambda m: f"{m[1]}{text}\n{m[2]}", before), encoding="utf-8")
