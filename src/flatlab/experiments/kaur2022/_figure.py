"""A figure of the paper: lines of cells along one axis, their table, picture and notes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...plots import Curve, Curves, Plot
from ..arms import Arm, Comparison, Tables
from ..compared import Compared
from ..contract import FRACTION, POSITIVE, Interval, Verdict
from ..deciding import Uncorrected, corrected
from ._claims import accuracy, in_words, lost_in, sharpness
from ._protocol import Cell, arm_of, require

KeyLines = Mapping[str, Sequence[Cell]]
SOURCE = "Kaur, Cohen & Lipton 2022"
AXES = {"lr": "learning rate η", "rho": "SAM's radius ρ", "dropout": "dropout probability p"}
AXES |= {"batch": "batch size"}
ROLES = ("gd", "sam")  # of the first two lines of a figure


@dataclasses.dataclass(frozen=True)
class Grid:
    """What a figure compares: lines of cells along an axis.

    Attributes:
        lines: Settings → label → cells, in the order of the axis.
        axis: The field of a cell that is drawn from left to right.
        edge: Whether the line 2/η is drawn.
        more: Settings → further arms, such as runs trained on.
        cells: How a cell becomes an arm.
    """

    lines: Callable[[Any], KeyLines]
    axis: str = "lr"
    edge: bool = False
    more: Callable[[Any], Sequence[Arm]] = lambda s: ()
    cells: Callable[[Any, Cell], Arm] = arm_of

    def arms(self, s: Any) -> list[Arm]:
        """Return the arms, each cell once."""
        cells = {cell.key: cell for line in self.lines(s).values() for cell in line}
        return [*(self.cells(s, cell) for cell in cells.values()), *self.more(s)]


def figure(
    number: int,
    grid: Grid,
    *,
    title: str,
    claim: str,
    presets: Mapping[str, Any],
    judged: Callable[[Compared], Sequence[Uncorrected]],
    tables: Callable[[Compared], Tables] = lambda found: {},
    plots: Callable[[Compared], tuple[Plot, ...]] | None = None,
    only: bool = False,
    prefix: str = "kaur-",
) -> Comparison:
    """Return a figure as a comparison; `lab` decides nothing until its pilot has been run.

    The claims in `judged` are corrected for their number. `tables` and `plots` come after the table
    and the picture of all cells; with `only`, that picture is left out.
    """
    name = f"fig{number}"

    def pictures(found: Compared) -> tuple[Plot, ...]:
        own = plots(found) if plots else ()
        return own if only else (picture(found, grid), *own)

    return Comparison(
        id=f"kaur2022/{name}",
        source=SOURCE,
        figure=f"Figure {number}",
        title=title,
        claim=claim,
        presets=presets,
        arms=grid.arms,
        verdicts=lambda found: corrected(judged(found)),
        finding=lambda found: finding(corrected(judged(found)), found),
        tables=lambda found: {name: rows_of_cells(found, grid), **tables(found)},
        plots=pictures,
        prefix=prefix,
        notes=notes,
        undecided=("quick", "lab"),
        require=require,
    )


def rows_of_cells(found: Compared, grid: Grid) -> list[dict[str, Any]]:
    """Return a row for each cell: means over its runs, and how many reached their target."""
    rows = []
    cells = {cell.key: cell for line in grid.lines(found.settings).values() for cell in line}
    for key, cell in cells.items():
        runs = [run for run in found.runs[key].values() if run.status != "diverged"]
        tops = [sharpness(run) for run in runs]
        good = Interval.of([accuracy(run) / 100 for run in runs], *FRACTION)
        row: dict[str, Any] = {"setting": cell.label}
        row |= {
            "test_accuracy": _mean([accuracy(run) for run in runs]),
            "accuracy_low": 100 * good.low if good else None,
            "accuracy_high": 100 * good.high if good else None,
            "lambda_max": _mean(tops),
        }
        ends = Interval.of(tops, *POSITIVE)
        row |= {"lambda_low": ends.low if ends else None}
        row |= {"lambda_high": ends.high if ends else None}
        evals = [run.final["lambda_max_eval"] for run in runs if "lambda_max_eval" in run.columns]
        if any(each.batch_norm for each in cells.values()):
            row["lambda_max_eval"] = _mean(evals)
        row |= {"2/lr": 2 / cell.lr} if grid.edge else {}
        row |= {
            "train_loss": _mean([run.final["train_loss"] for run in runs]),
            "epochs": _mean([run.final["epoch"] for run in runs]),
            **counts(found, key),
        }
        rows.append(row)
    return rows


def counts(found: Compared, key: str) -> dict[str, int]:
    """Return how many runs of an arm there are, and how many of them missed or diverged."""
    statuses = [run.status for run in found.runs[key].values()]
    return {
        "runs": len(statuses),
        "missed": statuses.count("missed"),
        "diverged": statuses.count("diverged"),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def picture(found: Compared, grid: Grid) -> Plot:
    """Return the figure: test accuracy, λ_max and training loss at the end, along the axis."""
    lines = grid.lines(found.settings)
    edge: tuple[Curve, ...] = ()
    if grid.edge:
        rates = sorted({cell.lr for line in lines.values() for cell in line})
        x = np.geomspace(rates[0], rates[-1], 20)
        edge = (Curve("2/η", "reference", x, 2 / x[None]),)
    shared: dict[str, Any] = {"xlabel": AXES[grid.axis]}
    shared |= {"xscale": "log" if grid.axis in ("lr", "batch") else "linear"}
    good = drawn(found, lines, grid.axis, accuracy)
    loss = drawn(found, lines, grid.axis, lambda run: run.final["train_loss"])
    top = (*drawn(found, lines, grid.axis, sharpness), *edge)
    panels = (
        Curves("generalisation", "test accuracy, %", good, **shared),
        Curves("sharpness", "λ_max", top, yscale="log", **shared),
        Curves("training loss at the end", "cross-entropy", loss, yscale="log", **shared),
    )
    caption = f"Lines: mean over seeds. Bands: smallest to largest. {missed_in_words(found)}"
    return Plot(found.comparison.name, found.comparison.title, (panels,), caption)


def drawn(
    found: Compared, lines: KeyLines, axis: str, value: Callable[[Any], float]
) -> tuple[Curve, ...]:
    """Return a curve for each line; a run that is missing or diverged is left out of its band.

    A setting of which runs missed their target has an open marker.
    """
    made = []
    for k, (label, cells) in enumerate(lines.items()):
        seeds = sorted({seed for cell in cells for seed in found.runs[cell.key]})
        y = np.full((len(seeds), len(cells)), np.nan)
        for i, seed in enumerate(seeds):
            for j, cell in enumerate(cells):
                run = found.runs[cell.key].get(seed)
                if run is not None and run.status != "diverged":
                    y[i, j] = value(run)
        x = np.array([getattr(cell, axis) for cell in cells], float)
        role = ROLES[k] if len(lines) <= len(ROLES) else label
        if seeds and np.isfinite(y).any():
            gone = np.array([lost_in(found, cell.key) > 0 for cell in cells])
            made.append(Curve(label, role, x, y, open=gone))
    return tuple(made)


def missed_in_words(found: Compared) -> str:
    """Say how many runs missed the training accuracy, and which settings they belong to."""
    first = {key: arm for key, arm in found.arms.items() if not getattr(arm, "after", "")}
    total = sum(len(found.runs[key]) for key in first)
    target = f"{found.settings.accuracy:.0%} training accuracy"
    gone = {key: lost_in(found, key) for key in first}
    if not sum(gone.values()):
        return f"All {total} runs reached {target}." if total else ""
    return f"{sum(gone.values())} of {total} runs missed {target} (open markers)."


def notes(found: Compared) -> tuple[str, ...]:
    """Say which runs missed their target or diverged, setting by setting."""
    said = [missed_in_words(found)]
    for key, arm in found.arms.items():
        if gone := lost_in(found, key):
            diverged = counts(found, key)["diverged"]
            more = f", {diverged} of them diverged" if diverged else ""
            said.append(f"{arm.label}: {gone} of {len(found.runs[key])} missed{more}")
    return tuple(line for line in said if line)


def finding(verdicts: Sequence[Verdict], found: Compared) -> str:
    """Write the result in plain language, from the verdicts."""
    known = [v for v in verdicts if v.measured is not None]
    if not found.decisive or not known:
        return ""
    return f"{'. '.join(in_words(v) for v in known)}. {missed_in_words(found)}"
