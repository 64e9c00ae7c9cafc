"""Figures 10 and 11: with and without BatchNorm over learning rates, at one batch size each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...plots import Curve, Curves, Plot
from ..arms import Arm, Comparison, Tables
from ..compared import Compared
from ..deciding import Uncorrected, Within, by_interval, by_margin
from ..judging import Rule
from ..statistics import Floats, equivalence, mean_over_seeds
from ._between import largest_in_between
from ._claims import differs, left_out, rows_of, sharpness, usable
from ._dropout import BETTER, WORSE
from ._figure import Grid, KeyLines, figure, missed_in_words
from ._protocol import Cell, arm_of

ALIKE = math.log(1.5)  # λ_max with and without BatchNorm are "comparable" within this factor


def cells_of(s: Any, batch_norm: bool) -> list[Cell]:
    """Return the cells with or without BatchNorm, by learning rate."""
    batch = getattr(s, "batch", None) or s.large
    return [Cell(batch, rate, batch_norm=batch_norm) for rate in sorted(s.rates)]


def lines(s: Any) -> KeyLines:
    """Return both networks."""
    return {"with BatchNorm": cells_of(s, True), "without": cells_of(s, False)}


def with_between(s: Any, cell: Cell) -> Arm:
    """Return a cell as an arm; with BatchNorm λ_max is also taken between iterates."""
    then = {"between": largest_in_between(s, cell.batch)} if cell.batch_norm else {}
    return arm_of(s, cell, then)


def is_small(s: Any, cell: Cell) -> bool:
    """Return whether λ_max counts between iterates: in the lower half of the learning rates."""
    return cell.lr in sorted(s.rates)[: len(s.rates) // 2]


def tops(found: Compared, cells: Sequence[Cell]) -> Floats:
    """Return λ_max by seed and cell, between iterates for BatchNorm at small learning rates."""
    rows = rows_of(found, cells, sharpness)
    for k, cell in enumerate(cells):
        ends = found.computed.get((cell.key, "between"), {})
        if ends and is_small(found.settings, cell):
            largest = [ends[seed]["largest"] for seed in found.runs[cell.key] if seed in ends]
            if len(largest) == len(rows) and None not in largest:
                rows[:, k] = largest
    return rows


def ratios(found: Compared, pairs: Sequence[tuple[Cell, Cell]]) -> Floats:
    """Return log(λ_max with BatchNorm / without), a row for each seed."""
    ours, theirs = (tops(found, cells) for cells in zip(*pairs, strict=True))
    logs: Floats = np.log(np.maximum(ours, 1e-12)) - np.log(np.maximum(theirs, 1e-12))
    return logs


def usable_pairs(found: Compared) -> list[tuple[Cell, Cell]]:
    """Return the pairs, with and without BatchNorm, of the same learning rate."""
    both = zip(cells_of(found.settings, True), cells_of(found.settings, False), strict=True)
    return [pair for pair in both if len(usable(found, pair)) == 2]


def judged(found: Compared) -> list[Uncorrected]:
    """Judge: accuracy with BatchNorm is worse at small η and better at large, λ_max is alike."""
    s, pairs = found.settings, usable_pairs(found)
    ours, theirs = cells_of(s, True), cells_of(s, False)
    points = "(difference of accuracy, points)"
    worse = f"at η = {ours[0].lr:g} BatchNorm generalises worse {points}"
    better = f"at η = {ours[-1].lr:g} BatchNorm generalises better {points}"
    rule = Within(ALIKE, of="the ratio", ratio=True)
    alike = "at a given learning rate λ_max is alike with and without BatchNorm"
    alike += " (ratio, mean over learning rates)"
    made = equivalence(list(ratios(found, pairs).mean(1)), rule.width) if pairs else None
    absent = "no learning rate has runs that all reached 99 % with and without BatchNorm"
    if found.decisive and (without := left_out(found, [*ours, *theirs])):
        alike += f", {without}"
    how: Any = {"decisive": found.decisive, "absent": absent}
    return [
        differs(found, "small_rate_worse", worse, theirs[0], ours[0], WORSE),
        differs(found, "large_rate_better", better, theirs[-1], ours[-1], BETTER),
        by_margin(found.claim("lambda_alike"), alike, made, rule, **how),
        running_statistics(found),
    ]


def running_statistics(found: Compared) -> Uncorrected:
    """Judge "with running statistics λ_max is larger": the other mode; the paper is silent."""
    cells = usable(found, cells_of(found.settings, True))
    made = None
    if cells:
        eval_mode = rows_of(found, cells, lambda run: run.final["lambda_max_eval"])
        logs = np.log(np.maximum(eval_mode, 1e-12)) - np.log(
            np.maximum(rows_of(found, cells, sharpness), 1e-12)
        )
        made = mean_over_seeds(logs.mean(1))
    said = "with BatchNorm's running statistics λ_max is larger than with those of batches"
    rule = Rule("above", 0, "the logarithm of the ratio")
    how: Any = {"decisive": found.decisive, "paper": "silent"}
    how["absent"] = "no learning rate has runs that all reached 99 % with BatchNorm"
    claim = found.claim("eval_larger")
    return by_interval(claim, f"{said} (log of the ratio)", made, rule, **how)


def tables(found: Compared) -> Tables:
    """Return λ_max of BatchNorm in its three readings, and which one counts."""
    name, rows = found.comparison.name, []
    for cell in cells_of(found.settings, True):
        ends = found.computed.get((cell.key, "between"), {}).values()
        runs = [run for run in found.runs[cell.key].values() if run.status != "diverged"]
        tops_between = [end["largest"] for end in ends if end["largest"] is not None]
        small = is_small(found.settings, cell)
        rows.append(
            {
                "setting": cell.label,
                "at_iterate": _mean([sharpness(run) for run in runs]),
                "between_iterates": _mean(tops_between),
                "running_statistics": _mean([run.final["lambda_max_eval"] for run in runs]),
                "2/lr": 2 / cell.lr,
                "counts": "between iterates" if small else "at the iterate",
            }
        )
    return {f"{name}-statistics": rows}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return λ_max of BatchNorm in its three readings, over learning rates."""
    cells = cells_of(found.settings, True)
    x = np.array([cell.lr for cell in cells])
    readings: dict[str, Callable[[Cell], list[float]]] = {
        "batch statistics": lambda c: _each(found, c, "lambda_max"),
        "between iterates": lambda c: [
            end["largest"]
            for end in found.computed.get((c.key, "between"), {}).values()
            if end["largest"] is not None
        ],
        "running statistics": lambda c: _each(found, c, "lambda_max_eval"),
    }
    curves = []
    for label, read in readings.items():
        columns = [read(cell) for cell in cells]
        seeds = max((len(column) for column in columns), default=0)
        if seeds:
            y = np.full((seeds, len(cells)), np.nan)
            for k, column in enumerate(columns):
                y[: len(column), k] = column
            curves.append(Curve(label, label, x, y))
    fine = np.geomspace(x[0], x[-1], 20)
    edge = Curve("2/η", "reference", fine, 2 / fine[None])
    shared: dict[str, Any] = {"xlabel": "learning rate η", "xscale": "log", "yscale": "log"}
    panel = Curves("with BatchNorm", "λ_max", (*curves, edge), **shared)
    caption = f"Lines: mean over seeds. Bands: smallest to largest. {missed_in_words(found)}"
    name = f"{found.comparison.name}-statistics"
    return (Plot(name, "λ_max by the statistics it is measured with", ((panel,),), caption),)


def _each(found: Compared, cell: Cell, column: str) -> list[float]:
    runs = [run for run in found.runs[cell.key].values() if run.status != "diverged"]
    return [run.final[column] for run in runs]


def batch_norm_figure(
    number: int,
    presets: dict[str, Any],
    size: str,
    more: Callable[[Compared], Sequence[Uncorrected]],
) -> Comparison:
    """Return one of the two figures, with further claims; `size` says which batch size it has."""
    return figure(
        number,
        Grid(lines, edge=True, cells=with_between),
        title=f"BatchNorm with a {size} batch size",
        claim="BatchNorm changes the test accuracy at a given learning rate and hardly λ_max "
        f"({size} batch size)",
        presets=presets,
        judged=lambda found: [*judged(found), *more(found)],
        tables=tables,
        plots=plots,
    )
