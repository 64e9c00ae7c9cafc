"""The page of a reproduction: verdicts, seconds beside the paper's hours, pictures, findings.

    python -m flatlab.results_page results/reproduce-SOURCE-lab docs/results/SOURCE.md

Everything on it is read from the files that `flatlab reproduce` wrote. Pictures are copied, made
compact, to `images` beside the page, and the manifest to SOURCE-manifest.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .durable import ensure_directory, read, write_atomically
from .errors import FlatlabError, StoreError, UserError
from .report import compact, markdown
from .report.reproduction import SECONDS, cells, findings, made_with, summary

IMAGES = "images"
HEADER = """# {title}

{summary}

Every number on this page was measured by `flatlab reproduce {source} --preset {preset}`, and the
page was made from its files by

    {command}

The runs behind it, with the digest of each configuration and the checksum of each stored result,
are listed in [{manifest}]({manifest}).
"""
HOURS = """The paper's hours are its own statement, around {hours:g} hours per 100,000 epochs with
GPUs, times the epochs of the preset `paper` for one seed. *Ratio* is what as many epochs as were
run here would have taken at that rate, over the training seconds here, each run on one core. It is
given where the sizes are the paper's own.
"""


def page(found: Mapping[str, Any], path: Path, folder: Path) -> str:
    """Return the page as Markdown.

    Args:
        found: The document of verdicts.json.
        path: Where the page will be.
        folder: Where the document was read, for the command on the page.
    """
    experiments, name = found["experiments"], path.stem
    titles = list(dict.fromkeys(part["source"] for part in experiments))
    command = f"python -m flatlab.results_page {folder.as_posix()} {path.as_posix()}"
    header = HEADER.format(
        title=f"Results: {', '.join(titles) or found['source']}",
        summary=summary(found),
        source=found["source"],
        preset=found["preset"],
        command=command,
        manifest=f"{name}-manifest.json",
    )
    parts = [header, "## Verdicts\n", markdown(cells(_verdicts(found)))]
    failing = [row for row in found["verdicts"] if row["verdict"] == "fails"]
    if failing:
        parts.append("\n## What fails\n")
        parts += [
            f"- `{row['claim']}` ({row['experiment']}): {row['statement']}. The paper: "
            f"{row['paper']}; measured {_interval(row)}: {row['reason']}."
            for row in failing
        ]
    if found["left_out"]:
        parts += ["\n## Left out\n"]
        parts += [f"- {part['experiment']}: {part['reason']}." for part in found["left_out"]]
    sentences = findings(experiments)
    if sentences:
        parts += ["\n## Findings\n", sentences]
    rate = max((part["paper_hours_per_epoch"] or 0.0 for part in experiments), default=0.0)
    parts += ["\n## Seconds\n", SECONDS]
    if rate:
        parts.append(HOURS.format(hours=100_000 * rate))
    alike = found["preset"] != "quick"
    parts.append(markdown([_times(part, rate > 0, alike) for part in experiments]))
    parts.append(f"\n{made_with(found)}\n\n## Pictures\n")
    for part in experiments:
        if part["pictures"]:
            parts.append(f"### {part['figure']}: {part['claim']}\n")
            parts += [
                f"![{part['figure']}: {Path(picture).stem}]({IMAGES}/{_image(name, picture)})\n"
                for picture in part["pictures"]
            ]
    return "\n".join(parts).rstrip() + "\n"


def _verdicts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the verdicts in columns that a page has room for."""
    return [
        {
            "claim": f"`{row['claim']}`",
            "statement": row["statement"],
            "paper": str(row["paper"]),
            "measured": _interval(row),
            "verdict": f"**{row['verdict']}**" if row["verdict"] == "fails" else row["verdict"],
            "reason": row["reason"],
            "experiment": row["experiment"].partition("/")[2],
        }
        for row in found["verdicts"]
    ]


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


def make(folder: Path, path: Path) -> list[Path]:
    """Write the page, its pictures and its manifest; return the files, the page last.

    Raises:
        UserError: The folder is not that of a reproduction.
    """
    found, name = _document(folder, "verdicts.json"), path.stem
    manifest = folder / "manifest.json"
    _document(folder, manifest.name)
    ensure_directory(path.parent / IMAGES)
    files = {path.parent / f"{name}-manifest.json": _content(manifest)}
    for part in found["experiments"]:
        for picture in part["pictures"]:
            image = path.parent / IMAGES / _image(name, picture)
            files[image] = compact(_content(folder / picture))
    files[path] = page(found, path, folder).encode()
    for target, content in files.items():
        write_atomically(target, content)
    return list(files)


def _document(folder: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads(_content(folder / name))
    except ValueError as error:
        raise StoreError(f"{folder / name} is damaged ({error}): reproduce it again") from None
    if not isinstance(found, dict) or "experiments" not in found:
        raise UserError(f"{folder / name} was not written by `flatlab reproduce`")
    return found


def _content(path: Path) -> bytes:
    data = read(path)
    if data is None:
        raise UserError(f"{path} does not exist: give the folder that `flatlab reproduce` names")
    return data


if __name__ == "__main__":
    try:
        if len(sys.argv) != 3:
            raise UserError("give two arguments: the folder of a reproduction and the page")
        make(Path(sys.argv[1]), Path(sys.argv[2]))
    except FlatlabError as error:
        sys.exit(f"results: {error}")
