"""The page of results: verdicts, pictures, findings, and seconds next to the paper's hours.

    python -m flatlab.report.results_page results/SOURCE-lab docs/results/SOURCE.md

A third argument, the folder of the same experiments in another preset, adds the verdicts of that
preset. Everything on the page is read from `results.json`. Next to the page, the pictures go to
`images` in compact form, and the document to SOURCE-results.json.
"""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import FlatlabError, StoreError, UserError
from ..experiments.results import FILE, Judged, Part, Results
from ..files.durable import ensure_directory, read, write_atomically
from ..outside.tables import interval
from .compact import compact
from .pages import render

IMAGES = "images"
MOST_ROWS = 24  # longer tables of an experiment are only in results.json


def page(
    results: Results,
    *,
    document: str = FILE,
    picture: Callable[[str], str] = str,
    made_by: str = "",
    other: Results | None = None,
) -> str:
    """Return the page as Markdown.

    Args:
        results: The results to show.
        document: Path of the stored results, relative to the page.
        picture: A figure's file → its path relative to the page.
        made_by: The command that makes the page.
        other: Results in another preset, whose verdicts are shown too.
    """
    titles = dict.fromkeys(part.source for part in results.experiments)
    rate = max((part.paper_hours_per_epoch or 0.0 for part in results.experiments), default=0.0)
    failing = [v for v in results.verdicts if v.verdict == "fails"]
    alone = all("/" in each or ":" in each for each in results.ids)
    verb = "run" if alone else "reproduce"
    return render(
        "results",
        results=results,
        title=", ".join(titles) or results.name,
        command=" ".join((f"flatlab {verb}", *results.ids, *results.flags)),
        document=document,
        made_by=made_by,
        agreement=agreement(results, other) if other else "",
        left_open=[
            group
            for pair in ((results, other), (other, results))
            if other and (group := left_open(*pair))
        ],
        verdicts=_verdicts(results, other),
        failing=[
            (because, list(group))
            for because, group in itertools.groupby(failing, key=lambda v: v.because)
        ],
        seconds=_seconds(results, rate),
        hours=100_000 * rate,
        versions=", ".join(f"{name} {number}" for name, number in results.versions.items()),
        most_rows=MOST_ROWS,
        interval=_interval,
        word=_word,
        picture=picture,
        stem=lambda figure: Path(figure).stem,
    )


def agreement(results: Results, other: Results) -> str:
    """Say on how many claims two presets agree, and name the claims on which they do not."""
    theirs = {v.claim: v.verdict for v in other.verdicts}
    pairs = {v.claim: {v.verdict, theirs[v.claim]} for v in results.verdicts if v.claim in theirs}
    opposed = [f"`{claim}`" for claim, words in pairs.items() if words == {"holds", "fails"}]
    same = sum(words in ({"holds"}, {"fails"}) for words in pairs.values())
    neither = sum(words == {"not assessed"} for words in pairs.values())
    alone = len(pairs) - same - neither - len(opposed)
    text = (
        f"Of {len(pairs)} claims that the presets {results.preset} and {other.preset} both "
        f"have, {same} are decided alike, {alone} are decided by only one of them, {neither} by "
        f"neither, and {len(opposed)} are decided differently"
    )
    return textwrap.fill(f"{text}{': ' if opposed else ''}{', '.join(opposed)}.", 100)


def left_open(results: Results, other: Results) -> dict[str, Any] | None:
    """Return the claims that only the other preset decides; None if there are none."""
    theirs = {v.claim: v for v in other.verdicts if v.verdict != "not assessed"}
    seeds, their_seeds = ({p.id: p.seeds for p in r.experiments} for r in (results, other))
    rows = [
        {
            "claim": v.claim,
            "here": _interval(v),
            "seeds": seeds[v.experiment],
            "reason": v.reason,
            "word": theirs[v.claim].verdict,
            "there": _interval(theirs[v.claim]),
            "their_seeds": their_seeds[theirs[v.claim].experiment],
        }
        for v in results.verdicts
        if v.verdict == "not assessed" and v.claim in theirs
    ]
    return {"decided": other.preset, "open": results.preset, "rows": rows} if rows else None


def _verdicts(results: Results, other: Results | None) -> list[dict[str, str]]:
    """Return the verdicts in columns that fit on a page."""
    theirs = {v.claim: v for v in other.verdicts} if other else {}
    rows = []
    for v in results.verdicts:
        row = {"claim": f"`{v.claim}`", "paper": str(v.paper)}
        row |= {"measured": _interval(v), "verdict": _word(v)}
        if other:
            beside = theirs.get(v.claim)
            said = f"{_word(beside)}: {_interval(beside)}" if beside else "–"
            row[f"preset {other.preset}"] = said
        rows.append(row)
    return rows


def _word(v: Judged) -> str:
    return f"**{v.verdict}**" if v.verdict == "fails" else v.verdict


def _interval(v: Judged) -> str:
    return interval(v.measured, v.low, v.high)


def _seconds(results: Results, rate: float) -> list[dict[str, Any]]:
    """Return the table of seconds; the last row is for all experiments."""
    alike = results.preset != "quick"
    rows = [
        {"experiment": p.id, "seeds": p.seeds, "runs": p.runs}
        | _times(p, rate > 0, p.paper_hours_per_epoch if alike else None)
        for p in results.experiments
    ]
    whole = {"experiment": "all", "seeds": None, "runs": results.done}
    return [*rows, whole | _times(results, rate > 0, rate if alike else None)]


def _times(part: Part | Results, timed: bool, rate: float | None) -> dict[str, Any]:
    """Return epochs and seconds, with the paper's epochs and hours; `rate` is hours per epoch."""
    row: dict[str, Any] = {
        "epochs": f"{part.epochs:,}",
        "training s": part.training_seconds,
        "wall s": part.wall_seconds,
    }
    if timed:
        hours, seconds = part.paper_hours, part.training_seconds
        row["paper's epochs"] = "–" if hours is None else f"{part.paper_epochs:,}"
        row["paper's hours"] = "–" if hours is None else f"{hours:.3g}"
        ratio = 3600 * rate * part.epochs / seconds if rate and seconds else 0
        row["ratio"] = f"{ratio:,.0f}" if ratio else "–"
    return row


def make(folder: Path, path: Path, other: Path | None = None) -> list[Path]:
    """Write the page, its pictures and the document; return the files, the page last.

    `other` is the folder of the same request in another preset, to compare with.

    Raises:
        UserError: A folder is not a request's, or the two are of different requests.
        StoreError: A document or a picture is damaged.
    """
    if not path.name:
        raise UserError(f"the page needs a file name, got {str(path)!r}: give one that ends in .md")
    results, name = Results.load(folder), path.stem
    beside = Results.load(other) if other else None
    if beside and beside.ids != results.ids:
        raise UserError(
            f"{other} has the results of {beside.name!r}: give a folder of {results.name!r}"
        )
    places = [folder, path, *([other] if other else [])]
    document = path.parent / f"{name}-results.json"
    images = {
        figure: path.parent / IMAGES / f"{name}-{Path(figure).name}"
        for part in results.experiments
        for figure in part.figures
    }
    command = ["python -m flatlab.report.results_page", *(p.as_posix() for p in places)]
    text = page(
        results,
        document=document.name,
        picture=lambda figure: f"{IMAGES}/{images[figure].name}",
        made_by=" ".join(command),
        other=beside,
    )
    files = {document: _content(folder / FILE)}
    files |= {image: _picture(folder / figure) for figure, image in images.items()}
    files[path] = text.encode()
    ensure_directory(path.parent / IMAGES)
    for target, content in files.items():
        write_atomically(target, content)
    return list(files)


def _picture(path: Path) -> bytes:
    try:
        return compact(_content(path))
    except OSError:  # from PIL
        raise StoreError(f"{path} is damaged, it is not a picture: run it again") from None


def _content(path: Path) -> bytes:
    data = read(path)
    if data is None:
        raise UserError(f"{path} does not exist: run the command that made the results again")
    return data


if __name__ == "__main__":
    try:
        if len(sys.argv) not in (3, 4):
            raise UserError(
                "give two arguments, the folder of some results and the page, or a third, the "
                "folder of results to compare with"
            )
        make(*map(Path, sys.argv[1:]))
    except FlatlabError as error:
        sys.exit(f"results: {error}")
