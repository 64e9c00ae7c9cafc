"""Output on the terminal: tables and verdicts."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..outside.tables import interval, number, with_intervals

if TYPE_CHECKING:
    from ..claims import Line
    from ..claims.verifying import Result, Verification
    from ..experiments.results import Judged, Results

# A file or a pipe has no width, so set one.
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120)
VERDICTS = {"holds": "green", "fails": "red", "not assessed": "yellow"}  # and their colours
TABLE_WIDTH = 110  # columns of text that a table with sentences needs
NO_BREAK = "\u00a0"
# The mark and the colour of each result of a claim.
WORDS = {
    "holds": ("✓", "green"),
    "holds corrected": ("✓*", "green"),
    "consistent": ("≈", "green"),
    "refuted": ("✗*", "yellow"),
    "fails": ("✗", "bold red"),
    "broken": ("!", "bold red"),
    "by experiment": ("→", "cyan"),
    "not checkable": ("–", "dim"),
    "not yet": ("…", "dim"),
}
MEANINGS = {
    "holds corrected": "wrong as printed, right once corrected",
    "refuted": "wrong, as a counterexample shows",
}


def print_line(text: str) -> None:
    """Print text unchanged: no markup, no colours, no line break within a path."""
    out.print(text, soft_wrap=True, markup=False, highlight=False)


def print_table(
    rows: Sequence[Mapping[str, Any]],
    title: str | None = None,
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print rows of plain values; x, x_low and x_high become one column "x [low, high]".

    A cell whose text is in `styles` gets that style.
    """
    if not rows:
        out.print(f"{title or 'table'}: (empty)")
        return
    rows = [with_intervals(row) for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    table.box, table.padding = box.SIMPLE_HEAD, (0, 1, 0, 0)
    texts = [[number(value) for value in row.values()] for row in rows]
    names = [name.replace("_", " ") for name in rows[0]]
    widths = _widths([[name, *cells] for name, *cells in zip(names, *texts, strict=True)])
    for name, value, width in zip(names, rows[0].values(), widths, strict=True):
        justify: Any = "left" if isinstance(value, str) else "right"
        table.add_column(name, justify=justify, overflow="fold", width=width)
    for cells in texts:
        table.add_row(*(Text(cell, style=(styles or {}).get(cell, "")) for cell in cells))
    out.print(table)


def print_history(rows: Sequence[Mapping[str, Any]], where: str) -> None:
    """Print the columns of a history that fit; a line names the others and says where."""
    shown = _fitting(rows)
    print_table([{name: row[name] for name in shown} for row in rows], "history")
    left = Counter(name.partition(".")[0] for name in rows[0] if name not in shown)
    if left:
        groups = [name if n == 1 else f"{n} columns of {name}" for name, n in left.items()]
        print_line(f"… and {', '.join(groups)}: {where}")


def _fitting(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns that fit on the terminal side by side, in their order.

    Single columns come first. The columns of an array, as spectrum.0, spectrum.1 and so on, are
    shown together or not at all.
    """
    groups: dict[str, list[str]] = {}
    for name in rows[0]:
        measure, dot, _ = name.partition(".")
        groups.setdefault(measure + dot if dot else name, []).append(name)
    shown: set[str] = set()
    spare = out.width - 1
    for _, names in sorted(groups.items(), key=lambda group: len(group[1]) > 1):
        columns = [[n.replace("_", " "), *(number(row[n]) for row in rows)] for n in names]
        needed = sum(max(_words(column)) + 2 for column in columns)
        if needed <= spare:
            shown, spare = shown | {*names}, spare - needed
    return [name for name in rows[0] if name in shown]


def _words(column: Sequence[str]) -> list[int]:
    """Return the lengths of the words in a column."""
    return [cell_len(word) for cell in column for word in cell.split(" ")]


def _widths(columns: Sequence[Sequence[str]]) -> list[int | None]:
    """Return widths at which all columns fit on the terminal and no word is broken.

    Each column gets the width of its longest word; the rest goes to the columns that need most
    lines. If not even the words fit, widths are None, and rich decides.
    """
    words = [max(_words(column)) for column in columns]
    whole = [max(cell_len(cell) for cell in column) for column in columns]
    spare = out.width - sum(words) - 2 * len(columns) - 1  # padding, separators, edges
    if spare < 0:
        return [None] * len(columns)
    for _ in range(min(spare, sum(whole) - sum(words))):
        longest = max(range(len(columns)), key=lambda k: whole[k] / words[k])
        words[longest] += 1
    return list(words)


def print_results(results: Results) -> None:
    """Print the results of experiments: verdicts, seconds, findings and omissions.

    On a terminal too narrow for the table each verdict takes several lines. For a single experiment
    its tables and pictures are printed too.
    """
    alone = len(results.experiments) == 1
    for part in results.experiments if alone else ():
        for name, rows in part.tables.items():
            print_table(rows, f"{name}: {part.setting}" if part.setting else name)
    shared = results.shared()
    if out.width < TABLE_WIDTH:
        for part in results.experiments:
            if not alone:
                print_line(f"{part.id}, preset {results.preset}")
            for verdict in results.of(part.id):
                _print_verdict(verdict, shared)
    else:
        styles = {word.replace(" ", NO_BREAK): style for word, style in VERDICTS.items()}
        rows = [_cells(v, alone, shared) for v in results.verdicts]
        print_table(rows, f"{results.name}, preset {results.preset}", styles)
    for reason, count in shared.items():
        said = f"not assessed, {count} claims: {reason}"
        out.print(said, markup=False, highlight=False)
    columns = ("id", "seeds", "runs", "epochs", "training_seconds", "wall_seconds")
    if any(part.runs for part in results.experiments):
        seconds = [{n: getattr(part, n) for n in columns} for part in results.experiments]
        print_table(seconds, "seconds")
    for part in results.experiments:
        of = "" if alone else f", {part.id}"
        if part.finding:
            print_line(f"finding{of}: {part.finding}")
        for note in part.notes:
            print_line(f"note{of}: {note}")
        for figure in part.figures if alone else ():
            print_line(f"picture: {results.folder}/{figure}")
    for left in results.left_out:
        seeds_run = f" ({left.seeds} of {left.of} seeds ran)" if left.of else ""
        print_line(f"left out, {left.experiment}{seeds_run}: {left.reason}")
    wall = results.wall_seconds
    clock = "" if wall is None else f", {wall:.0f} s of wall-clock"
    said = f"{results.summary()} {results.training_seconds:.0f} s of training{clock}."
    out.print(said, markup=False, highlight=False)
    print_line(f"files: {results.folder}")


def _explained(v: Judged, shared: Container[str]) -> str:
    """Write the statement and the reason; a reason that verdicts share is printed below them."""
    return v.statement if v.holds is None and v.reason in shared else f"{v.statement}: {v.reason}"


def _print_verdict(v: Judged, shared: Container[str]) -> None:
    """Print a claim with its verdict and the number behind it."""
    measured = escape(f"measured {interval(v.measured, v.low, v.high)}, paper {v.paper}")
    verdict = f"[{VERDICTS[v.verdict]}]{v.verdict}[/]"
    out.print(f"{verdict}  [bold]{v.claim}[/]  {measured}", highlight=False)
    explained = escape(_explained(v, shared))
    out.print(Padding(explained, (0, 0, 0, 4)), highlight=False)


def _cells(v: Judged, alone: bool, shared: Container[str]) -> dict[str, Any]:
    cells = {
        "verdict": v.verdict.replace(" ", NO_BREAK),
        "claim": v.claim,
        "measured": interval(v.measured, v.low, v.high),
        "paper": str(v.paper),
        "what and why": _explained(v, shared),
    }
    return cells if alone else cells | {"experiment": v.experiment}


def print_verification(found: Verification, hidden: Sequence[str] = ()) -> None:
    """Print a table of claims, the failures, and counts; omit rows whose word is in `hidden`."""
    marked = {word: f"{mark} {word}" for word, (mark, _) in WORDS.items()}
    rows = [
        {
            "id": result.claim.id,
            "kind": result.claim.kind,
            "measured": result.measured,
            "verdict": marked[result.word] + (f": {said.verdict}" if said else ""),
            "s": f"{result.seconds:.2f}" if result.claim.check else "",
        }
        for result in found.results
        for said in [result.decided]
        if result.word not in hidden
    ]
    styles = {marked[word]: style for word, (_, style) in WORDS.items()}
    for word, style in VERDICTS.items():
        styles[f"{marked['by experiment']}: {word}"] = style
    if rows:
        print_table(rows, styles=styles)
    for result in found.surprises:
        print_evidence(result)
    width = max((len(source) for source in found.counts()), default=0)
    for source, counts in found.counts().items():
        words = ", ".join(f"{counts[word]} {word}" for word in WORDS if word in counts)
        print_line(f"{source.ljust(width)}  {words}")
    said = {str(result.word) for result in found.results}
    for word, meaning in MEANINGS.items():
        if word in said:
            print_line(f"{WORDS[word][0]} {meaning}: see --show ID")
    print_line(f"{len(found.results)} claims, seed {found.seed}, {found.seconds:.1f} s")


def print_evidence(result: Result) -> None:
    """Print a claim with all its evidence."""
    claim, (mark, style) = result.claim, WORDS[result.word]
    out.print(f"[{style}]{mark} {result.word}[/]  [bold]{claim.id}[/]  {escape(claim.where)}")
    facts = {
        "kind": claim.kind,
        "says": claim.says,
        "printed": claim.as_printed,
        "expected": "" if result.as_expected else claim.expected,
        "error": result.error,
        "experiment": result.whereto,
        "by experiment": str(result.decided or ""),
        "note": claim.note,
        "errata": ", ".join(claim.errata),
    }
    for name, text in facts.items():
        if text:
            out.print(Padding(escape(f"{name}: {text}"), (0, 0, 0, 4)), highlight=False)
    random = any(line.low is not None for line in result.lines)
    rows = [
        {"evidence": line.what, "measured": line.comparison()}
        | ({"95 % interval": _interval(line)} if random else {})
        | {"": {True: "✓", False: "✗", None: ""}[line.holds]}
        for line in result.lines
    ]
    if rows:
        print_table(rows, styles={"✓": "green", "✗": "red"})


def _interval(line: Line) -> str:
    return "" if line.low is None else f"[{number(line.low)}, {number(line.high)}]"
