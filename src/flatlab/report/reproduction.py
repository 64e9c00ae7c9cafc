"""The files of a reproduction: verdicts as Markdown, JSON and CSV, pictures, and a manifest."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..experiments.contract import Experiment
from ..experiments.hours import hours_per_epoch, paper_epochs
from ..experiments.reproducing import Reproduction, Share
from ..files.store import RunStore, write_atomically, write_json
from ..specs import to_dict
from ..training.run import Run, versions
from .figures import save
from .provenance import commit
from .tables import markdown

COLUMNS = (
    *("claim", "statement", "paper", "measured", "low", "high"),
    *("verdict", "reason", "because", "experiment", "preset"),
)
PICTURES = "pictures"
NOT_THE_PAPERS = ("ours", "silent", "open")  # what a claim's paper says if it is not the paper's


def write(made: Reproduction) -> dict[str, Any]:
    """Write all files into the reproduction's folder; return the document of verdicts.json."""
    pictures = {
        share.experiment.id: save_pictures(share, made.folder / PICTURES)
        for share in made.shares
        if share.keys or share.findings.plots
    }
    found = document(made, pictures)
    _remember_wall_clock(made, found)
    write_json(made.folder / "manifest.json", manifest(made, found))
    write_atomically(made.folder / "verdicts.csv", as_csv(found["verdicts"]).encode())
    write_atomically(made.folder / "verdicts.md", page(found).encode())
    write_json(made.folder / "verdicts.json", found)
    return found


def save_pictures(share: Share, folder: Path) -> list[str]:
    """Draw an experiment's pictures; return their names within the reproduction's folder.

    A picture whose name does not begin with that of its experiment gets it in front.
    """
    name = share.experiment.id.partition("/")[2]
    plots = tuple(
        plot
        if plot.name.startswith(name)
        else dataclasses.replace(plot, name=f"{name}-{plot.name}")
        for plot in share.findings.plots
    )
    return [f"{PICTURES}/{path.name}" for path in save(plots, folder)]


def document(made: Reproduction, pictures: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return everything that came out, as plain values."""
    return {
        "source": made.source,
        "preset": made.preset,
        "status": made.status,
        "budget_seconds": made.budget,
        "jobs": made.workers,
        "wall_seconds": round(made.seconds, 2),
        "training_seconds": round(sum(run.seconds for run in made.trained.runs.values()), 2),
        "runs": len(made.trained.runs),
        "epochs": sum(_epochs(run) for run in made.trained.runs.values()),
        **_paper_hours([share.experiment for share in made.shares]),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "verdicts": [row for share in made.shares for row in rows(share, made.preset)],
        "left_out": left_out(made),
        "experiments": [
            _experiment(share, made, pictures.get(share.experiment.id, [])) for share in made.shares
        ],
    }


def rows(share: Share, preset: str) -> list[dict[str, Any]]:
    """Return a row for each verdict of an experiment; a number that is not finite is None."""
    return [
        {
            **{name: _plain(getattr(verdict, name)) for name in COLUMNS[:6]},
            "verdict": verdict.word,
            "reason": verdict.reason,
            "because": verdict.because,
            "experiment": share.experiment.id,
            "preset": preset,
        }
        for verdict in share.findings.verdicts
    ]


def left_out(made: Reproduction) -> list[dict[str, Any]]:
    """Return what did not run, or ran with fewer seeds, with the seconds it is estimated to need.

    An experiment without the preset has null seconds.
    """
    parts: list[dict[str, Any]] = [
        {
            "experiment": share.experiment.id,
            "seeds": share.seeds if share.keys else 0,
            "of": share.wanted,
            "estimated_seconds": round(share.seconds_left, 1),
            "reason": share.left_out,
        }
        for share in made.shares
        if share.left_out
    ]
    for id, reason in made.skipped.items():
        nothing = {"seeds": 0, "of": None, "estimated_seconds": None}
        parts.append({"experiment": id, **nothing, "reason": reason})
    return parts


def _experiment(share: Share, made: Reproduction, pictures: list[str]) -> dict[str, Any]:
    runs = [made.trained.runs[key] for key in dict.fromkeys(share.keys.values())]
    return {
        "id": share.experiment.id,
        "source": share.experiment.source,
        "figure": share.experiment.figure,
        "claim": share.experiment.claim,
        "seeds": share.seeds,
        "of": share.wanted,
        "runs": len(runs),
        "epochs": sum(_epochs(run) for run in runs),
        "training_seconds": round(share.training_seconds, 2),
        "wall_seconds": round(share.wall_seconds, 2),
        **_paper_hours([share.experiment]),
        "paper_hours_per_epoch": hours_per_epoch(share.experiment),
        "finding": share.findings.finding,
        "notes": list(share.findings.notes),
        "tables": {
            name: [{key: _plain(value) for key, value in row.items()} for row in table]
            for name, table in share.findings.tables.items()
        },
        "pictures": pictures,
    }


def _epochs(run: Run) -> int:
    return int(run.columns["epoch"][-1])


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _paper_hours(experiments: Sequence[Experiment]) -> dict[str, float | None]:
    """Return epochs and hours of the paper's own runs, or None where it says nothing of hours."""
    timed = [(e, rate) for e in experiments if (rate := hours_per_epoch(e))]
    epochs = paper_epochs(*(e for e, _ in timed))
    if not epochs:
        return {"paper_epochs": None, "paper_hours": None}
    return {"paper_epochs": epochs, "paper_hours": timed[0][1] * epochs}


def _remember_wall_clock(made: Reproduction, found: dict[str, Any]) -> None:
    """Where this sitting trained nothing, keep the wall-clock of an earlier one, or have none."""
    earlier = _Earlier.read(made.folder / "manifest.json")
    trained = {key for key, slot in made.slots.items() if slot.run is None}
    for share, part in zip(made.shares, found["experiments"], strict=True):
        keys = set(share.keys.values())
        if keys and not keys & trained:
            part["wall_seconds"] = earlier.seconds.get((share.experiment.id, frozenset(keys)))
    if made.slots and not trained:
        found["wall_seconds"] = earlier.seconds.get(("all", frozenset(made.slots)))


@dataclasses.dataclass(frozen=True)
class _Earlier:
    """What the manifest of an earlier sitting tells: (experiment, its runs) → wall seconds."""

    seconds: Mapping[tuple[str, frozenset[str]], float | None]

    @classmethod
    def read(cls, path: Path) -> _Earlier:
        """Read a manifest; one that is missing, damaged or of another form tells nothing."""
        try:
            made = json.loads(path.read_bytes())
            seconds = {
                (part["id"], frozenset(part["digests"])): part["wall_seconds"]
                for part in made["experiments"]
            }
            whole = ("all", frozenset(run["digest"] for run in made["runs"]))
            return cls({**seconds, whole: made["wall_seconds"]})
        except (OSError, ValueError, TypeError, KeyError):
            return cls({})


def manifest(made: Reproduction, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what everything was made of: every run with its digest, seconds and checksum.

    `sha256` is the checksum of the run's stored result.json; `file` is beside the folder of the
    reproduction.
    """
    users: dict[str, list[str]] = {}
    for share in made.shares:
        for key in dict.fromkeys(share.keys.values()):
            users.setdefault(key, []).append(share.experiment.id)
    runs = []
    for key, slot in made.slots.items():
        run = made.trained.runs.get(key)
        outcome = made.trained.outcomes[key]
        runs.append(
            {
                "name": slot.name,
                "names": list(slot.names),
                "experiments": users.get(key, []),
                "digest": key,
                "file": f"runs/{slot.path.name}/result.json",
                "status": run.status if run else outcome.status,
                "error": outcome.error if outcome.status == "failed" else None,
                "reused": slot.run is not None,
                "epochs": slot.config.epochs,
                "seconds": round(run.seconds, 3) if run else None,
                "sha256": RunStore.read(slot.path).result_checksum() if run else None,
            }
        )
    settings = {share.experiment.id: to_dict(share.settings) for share in made.shares}
    digests = {s.experiment.id: list(dict.fromkeys(s.keys.values())) for s in made.shares}
    kept = (
        *("source", "preset", "status", "jobs", "wall_seconds", "training_seconds"),
        *("commit", "versions", "machine"),
    )
    times = ("id", "seeds", "of", "runs", "epochs", "training_seconds", "wall_seconds", "pictures")
    return {
        **{name: found[name] for name in kept},
        "experiments": [
            {
                **{name: part[name] for name in times},
                "settings": settings[part["id"]],
                "digests": digests[part["id"]],
            }
            for part in found["experiments"]
        ],
        "left_out": found["left_out"],
        "runs": runs,
    }


def machine() -> dict[str, Any]:
    """Return what the seconds were measured on."""
    cpu = platform.processor() or platform.machine()
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        cpu = next(names, cpu)
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.system()}


def as_csv(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of verdicts as CSV; numbers keep all their digits, None is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(verdicts)
    return text.getvalue()


def page(found: Mapping[str, Any]) -> str:
    """Return the document as Markdown."""
    parts = [f"# {found['source']}, preset {found['preset']}\n", summary(found) + "\n"]
    parts += ["## Verdicts\n", table_of_verdicts(found["verdicts"])]
    if found["left_out"]:
        parts += ["\n## Left out\n", markdown(cells(found["left_out"]))]
    sentences = findings(found["experiments"])
    if sentences:
        parts += ["\n## Findings\n", sentences]
    columns = ("id", "seeds", "runs", "epochs", "training_seconds", "wall_seconds")
    whole = {**found, "id": "all", "seeds": None}
    seconds = [{name: part[name] for name in columns} for part in (*found["experiments"], whole)]
    parts += ["\n## Seconds\n", SECONDS, markdown(cells(seconds)), f"\n{made_with(found)}"]
    return "\n".join(parts) + "\n"


SECONDS = (
    "Training seconds are summed over an experiment's runs, in all sittings; wall seconds are\n"
    "those of the last sitting that trained any of them, while at least one was under way. A run\n"
    "that experiments share counts in each, and once in *all*.\n"
)


def summary(found: Mapping[str, Any]) -> str:
    """Say in a few sentences what came out, from the rows.

    >>> rows = [{"verdict": "holds", "paper": said} for said in ("yes", "ours")]
    >>> found = {"verdicts": rows, "runs": 3, "left_out": []}
    >>> print(summary(found))  # doctest: +NORMALIZE_WHITESPACE
    2 claims: 2 hold, 0 fail, 0 are not assessed. Of these the paper speaks of 1: 1 hold, 0 fail,
    0 are not assessed. 3 runs.
    """
    rows = found["verdicts"]
    own = [row for row in rows if row["paper"] not in NOT_THE_PAPERS]
    text = f"{len(rows)} claims: {_counted(rows)}."
    if 0 < len(own) < len(rows):
        text += f" Of these the paper speaks of {len(own)}: {_counted(own)}."
    text += f" {found['runs']} runs."
    if found["left_out"]:
        text += f" Experiments left out, wholly or in part: {len(found['left_out'])}."
    return text


def _counted(rows: Sequence[Mapping[str, Any]]) -> str:
    words = [row["verdict"] for row in rows]
    return (
        f"{words.count('holds')} hold, {words.count('fails')} fail, "
        f"{words.count('not assessed')} are not assessed"
    )


def table_of_verdicts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return the verdicts as a Markdown table."""
    return markdown(cells([{name: row[name] for name in COLUMNS} for row in verdicts]))


def findings(experiments: Sequence[Mapping[str, Any]]) -> str:
    """Return what came out in plain language, and notes, an item for each."""
    lines = []
    for part in experiments:
        if part["finding"]:
            lines.append(f"- **{part['id']}**: {part['finding']}")
        lines += [f"- **{part['id']}**, note: {note}" for note in part["notes"]]
    return "\n".join(lines)


def made_with(found: Mapping[str, Any]) -> str:
    """Say which versions, on which machine."""
    used = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    source = f"judged at commit {found['commit'] or 'unknown'}"
    computer = found["machine"]
    return f"Made with {used}; {source}; {computer['cpu']}, {computer['cores']} cores."


def cells(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows whose texts can stand in a Markdown table."""
    return [
        {
            name: " ".join(value.split()).replace("|", "\\|") if isinstance(value, str) else value
            for name, value in row.items()
        }
        for row in table
    ]
