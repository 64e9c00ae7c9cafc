"""The page of a reproduction: verdicts, seconds beside the paper's hours, pictures, findings.

    python -m flatlab.report.results_page results/reproduce-SOURCE-lab docs/results/SOURCE.md

A third argument, the folder of a reproduction in another preset, puts its verdicts beside these.
Everything on it is read from the files that `flatlab reproduce` wrote. Pictures are copied, made
compact, to `images` beside the page, and the manifest to SOURCE-manifest.json.
"""

from __future__ import annotations

import itertools
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FlatlabError, StoreError, UserError
from ..files.durable import ensure_directory, read, write_atomically
from . import compact, markdown
from .reproduction import SECONDS, cells, findings, made_with, summary

IMAGES, VERDICTS = "images", "verdicts.json"
MOST_ROWS = 24  # of a table of an experiment's own; longer ones stay in verdicts.json
HEADER = """# {title}

{summary}

Every number on this page was measured by `flatlab reproduce {source} --preset {preset}`{wall}, and
the page was made from its files by

    {command}

The runs behind it, with the digest of each configuration and the checksum of each stored result,
are listed in [{manifest}]({manifest}).
"""
HOURS = """The paper's hours are its own statement, around {hours:g} hours per 100,000 epochs with
GPUs, times the epochs of its own runs for one seed; runs that are ours are not counted. *Ratio* is
what as many epochs as were run here would have taken at that rate, over the training seconds here,
each run on one core. It is given where the sizes are the paper's own.
"""


def page(
    found: Mapping[str, Any],
    path: Path,
    folder: Path,
    other: Mapping[str, Any] | None = None,
    other_folder: Path | None = None,
) -> str:
    """Return the page as Markdown.

    Args:
        found: The document of verdicts.json.
        path: Where the page will be.
        folder: Where the document was read, for the command on the page.
        other: The document of another preset, whose verdicts are to stand beside these.
        other_folder: Where that was read.
    """
    experiments, name = found["experiments"], path.stem
    titles = list(dict.fromkeys(part["source"] for part in experiments))
    places = [folder, path, *([other_folder] if other_folder else [])]
    seconds = found["wall_seconds"]
    wall = f" in {seconds:,.0f} s with {found['jobs']} runs at a time" if seconds else ""
    header = HEADER.format(
        title=f"Results: {', '.join(titles) or found['source']}",
        summary=summary(found),
        source=found["source"],
        preset=found["preset"],
        wall=wall if found["runs"] else "",
        command=" ".join(
            ["python -m flatlab.report.results_page", *(p.as_posix() for p in places)]
        ),
        manifest=f"{name}-manifest.json",
    )
    parts = [header, "## Verdicts\n"]
    if other:
        parts += [agreement(found, other) + "\n"]
        parts += [*left_open(found, other), *left_open(other, found)]
    parts.append(markdown(cells(_verdicts(found, other))))
    failing = [row for row in found["verdicts"] if row["verdict"] == "fails"]
    if failing:
        parts += ["\n## What fails, and why\n", *_failures(failing)]
    if found["left_out"]:
        parts += ["\n## Left out\n"]
        parts += [f"- {part['experiment']}: {part['reason']}." for part in found["left_out"]]
    parts += ["\n## Figures\n", *(_figure(part, found, name) for part in experiments)]
    rate = max((part["paper_hours_per_epoch"] or 0.0 for part in experiments), default=0.0)
    parts += ["## Seconds\n", SECONDS]
    if rate:
        parts.append(HOURS.format(hours=100_000 * rate))
    alike = found["preset"] != "quick"
    whole = {**found, "id": "all", "seeds": None, "paper_hours_per_epoch": rate}
    parts.append(markdown([_times(part, rate > 0, alike) for part in (*experiments, whole)]))
    parts.append(f"\n{made_with(found)}")
    return "\n".join(parts).rstrip() + "\n"


def agreement(found: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Say in how many claims two presets agree, and name those in which they do not.

    >>> rows = [{"claim": c, "verdict": v} for c, v in (("a", "holds"), ("b", "fails"))]
    >>> one, other = ({"preset": name, "verdicts": rows} for name in ("lab", "paper"))
    >>> print(agreement(one, other))  # doctest: +NORMALIZE_WHITESPACE
    Of 2 claims that the presets lab and paper both have, 2 are decided alike, 0 are decided by
    one of them alone, 0 by neither, and 0 are decided differently.
    """
    theirs = {row["claim"]: row["verdict"] for row in other["verdicts"]}
    pairs = {
        row["claim"]: {row["verdict"], theirs[row["claim"]]}
        for row in found["verdicts"]
        if row["claim"] in theirs
    }
    opposed = [f"`{claim}`" for claim, words in pairs.items() if words == {"holds", "fails"}]
    same = sum(words in ({"holds"}, {"fails"}) for words in pairs.values())
    neither = sum(words == {"not assessed"} for words in pairs.values())
    alone = len(pairs) - same - neither - len(opposed)
    text = (
        f"Of {len(pairs)} claims that the presets {found['preset']} and {other['preset']} both "
        f"have, {same} are decided alike, {alone} are decided by one of them alone, {neither} by "
        f"neither, and {len(opposed)} are decided differently"
    )
    return textwrap.fill(f"{text}{': ' if opposed else ''}{', '.join(opposed)}.", 100)


def left_open(found: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield an item for each claim that the other preset decides and this one does not, and why.

    >>> row = {"claim": "a", "experiment": "e", "verdict": "not assessed", "measured": 0.2}
    >>> row |= {"low": 0.0, "high": 0.4, "reason": "the interval contains 0.1"}
    >>> one = {"preset": "lab", "verdicts": [row], "experiments": [{"id": "e", "seeds": 3}]}
    >>> decided = row | {"verdict": "holds", "measured": 0.3, "low": None, "high": None}
    >>> other = {"preset": "paper", "verdicts": [decided], "experiments": [{"id": "e", "seeds": 1}]}
    >>> print("".join(left_open(one, other)))
    Decided by paper and open in lab:
    - `a`: 0.2 [0, 0.4] (seeds: 3), the interval contains 0.1; paper: holds, 0.3 (seeds: 1).
    """
    theirs = {row["claim"]: row for row in other["verdicts"] if row["verdict"] != "not assessed"}
    seeds, their_seeds = (
        {part["id"]: part["seeds"] for part in document["experiments"]}
        for document in (found, other)
    )
    rows = [row for row in found["verdicts"] if row["verdict"] == "not assessed"]
    rows = [row for row in rows if row["claim"] in theirs]
    if rows:
        yield f"Decided by {other['preset']} and open in {found['preset']}:\n"
    for row in rows:
        one, id = theirs[row["claim"]], row["experiment"]
        yield (
            f"- `{row['claim']}`: {_interval(row)} (seeds: {seeds[id]}), {row['reason']}; "
            f"{other['preset']}: {one['verdict']}, {_interval(one)} (seeds: {their_seeds[id]})."
        )
    if rows:
        yield ""


def _verdicts(
    found: Mapping[str, Any], other: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the verdicts in columns that a page has room for."""
    theirs = {row["claim"]: row for row in other["verdicts"]} if other else {}
    rows = []
    for row in found["verdicts"]:
        cells = {
            "claim": f"`{row['claim']}`",
            "paper": str(row["paper"]),
            "measured": _interval(row),
            "verdict": _word(row),
        }
        if other:
            beside = theirs.get(row["claim"])
            said = f"{_word(beside)}: {_interval(beside)}" if beside else "–"
            cells[f"preset {other['preset']}"] = said
        rows.append(cells)
    return rows


def _word(row: Mapping[str, Any]) -> str:
    return f"**{row['verdict']}**" if row["verdict"] == "fails" else str(row["verdict"])


def _failures(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield an item for each claim, and what happened once for neighbours that share it."""
    for because, group in itertools.groupby(rows, key=lambda row: row["because"]):
        for row in group:
            yield (
                f"- `{row['claim']}`: {row['statement']}. The paper: {row['paper']}; measured "
                f"{_interval(row)}: {row['reason']}."
            )
        if because:
            yield f"\n  What happened: {because}.\n"


def _figure(part: Mapping[str, Any], found: Mapping[str, Any], name: str) -> str:
    """Return the section of one experiment: claim, pictures, verdicts, finding, tables."""
    lines = [f"### {part['figure']}: {part['claim']}\n"]
    lines += [
        f"![{part['figure']}: {Path(picture).stem}]({IMAGES}/{_image(name, picture)})\n"
        for picture in part["pictures"]
    ]
    lines += [
        f"- {_word(row)}: {row['statement']}: {_interval(row)} (paper: {row['paper']}); "
        f"{row['reason']}."
        for row in found["verdicts"]
        if row["experiment"] == part["id"]
    ]
    sentences = findings([part])
    lines += [f"\n{sentences}"] if sentences else []
    for title, rows in part["tables"].items():
        if 0 < len(rows) <= MOST_ROWS:
            lines += [f"\nTable `{title}`:\n", markdown(cells(rows))]
    return "\n".join(lines) + "\n"


def _interval(row: Mapping[str, Any]) -> str:
    texts = ["–" if row[k] is None else f"{row[k]:.4g}" for k in ("measured", "low", "high")]
    return texts[0] if row["low"] is None else f"{texts[0]} [{texts[1]}, {texts[2]}]"


def _times(part: Mapping[str, Any], timed: bool, alike: bool) -> dict[str, Any]:
    row = {
        "experiment": part["id"],
        "seeds": part["seeds"],
        "runs": part["runs"],
        "epochs": f"{part['epochs']:,}",
        "training s": part["training_seconds"],
        "wall s": part["wall_seconds"],
    }
    if timed:
        rate, hours, seconds = (
            part[k] for k in ("paper_hours_per_epoch", "paper_hours", "training_seconds")
        )
        row["paper's epochs"] = "–" if hours is None else f"{part['paper_epochs']:,}"
        row["paper's hours"] = "–" if hours is None else f"{hours:.3g}"
        ratio = 3600 * rate * part["epochs"] / seconds if alike and rate and seconds else 0
        row["ratio"] = f"{ratio:,.0f}" if ratio else "–"
    return row


def _image(name: str, picture: str) -> str:
    return f"{name}-{Path(picture).name}"


def make(folder: Path, path: Path, other: Path | None = None) -> list[Path]:
    """Write the page, its pictures and its manifest; return the files, the page last.

    Args:
        folder: That of a reproduction.
        path: The page.
        other: The folder of a reproduction in another preset, to compare with.

    Raises:
        UserError: The folder is not that of a reproduction.
    """
    if not path.name:
        raise UserError(f"the page needs a file name, got {str(path)!r}: give one that ends in .md")
    found, name = _document(folder, VERDICTS), path.stem
    manifest = folder / "manifest.json"
    listed = _document(folder, manifest.name)
    if any(listed.get(key) != found.get(key) for key in ("source", "preset", "commit")):
        raise UserError(
            f"{manifest} and {folder / VERDICTS} are of different reproductions: reproduce it again"
        )
    files = {path.parent / f"{name}-manifest.json": _content(manifest)}
    beside = _document(other, VERDICTS) if other else None
    try:
        if beside and beside["source"] != found["source"]:
            raise UserError(
                f"{other} is a reproduction of {beside['source']!r}: "
                f"give one of {found['source']!r}"
            )
        text = page(found, path, folder, beside, other).encode()
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        places = " or ".join(f"{place / VERDICTS}" for place in (folder, other) if place)
        raise UserError(
            f"{places} was written by another version or changed by hand "
            f"({type(error).__name__}: {error}): reproduce it again"
        ) from error
    for part in found["experiments"]:
        for picture in part["pictures"]:
            image = path.parent / IMAGES / _image(name, picture)
            files[image] = _picture(folder / picture)
    files[path] = text
    ensure_directory(path.parent / IMAGES)
    for target, content in files.items():
        write_atomically(target, content)
    return list(files)


def _document(folder: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads(_content(folder / name))
    except (RecursionError, ValueError) as error:
        raise StoreError(f"{folder / name} is damaged ({error}): reproduce it again") from None
    if not isinstance(found, dict) or "experiments" not in found:
        raise UserError(f"{folder / name} was not written by `flatlab reproduce`")
    return found


def _picture(path: Path) -> bytes:
    try:
        return compact(_content(path))
    except OSError:  # PIL's
        raise StoreError(f"{path} is damaged, it is no picture: reproduce it again") from None


def _content(path: Path) -> bytes:
    data = read(path)
    if data is None:
        raise UserError(f"{path} does not exist: give the folder that `flatlab reproduce` names")
    return data


if __name__ == "__main__":
    try:
        if len(sys.argv) not in (3, 4):
            raise UserError(
                "give two arguments, the folder of a reproduction and the page, or a third, the "
                "folder of a reproduction to compare with"
            )
        make(*map(Path, sys.argv[1:]))
    except FlatlabError as error:
        sys.exit(f"results: {error}")
