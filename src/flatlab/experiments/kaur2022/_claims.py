"""The claims that the figures share: λ_max falls, accuracy rises, stays the same or flattens.

A setting counts in a claim if all its runs reached the training accuracy; the verdict names the
others. Test accuracy is in points (per cent).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...training.run import Run
from ..compared import Compared
from ..contract import Verdict
from ..deciding import FALLS, FLATTENS, RISES, Uncorrected, Within, by_interval, by_margin
from ..judging import NO_RUN, Rule
from ..statistics import (
    Floats,
    bend_at,
    change_of_slope,
    equivalence,
    equivalent_pairs,
    fitted_change,
    kendall,
    mean_over_seeds,
)
from ._protocol import Cell

OfRun = Callable[[Run], float]
EDGE = math.log(1.25)  # λ_max is "approximately" 2/η within this factor


def accuracy(run: Run) -> float:
    """Return the final test accuracy in points."""
    return 100 * (1 - run.final["test_error"])


def sharpness(run: Run) -> float:
    """Return the final λ_max, as the authors measure it."""
    return run.final["lambda_max"]


def log_sharpness(run: Run) -> float:
    """Return the logarithm of the final λ_max; a λ_max that is not positive counts as 1e-12."""
    return math.log(max(sharpness(run), 1e-12))


def reached(run: Run) -> bool:
    """Return whether a run reached its target."""
    return run.status == "reached"


def lost_in(found: Compared, key: str) -> int:
    """Return how many runs of an arm missed the training accuracy or diverged."""
    return sum(not reached(run) for run in found.runs[key].values())


def usable(found: Compared, cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells all of whose runs are there and reached the training accuracy."""
    seeds = found.settings.seeds
    return [
        cell
        for cell in cells
        if len(found.runs[cell.key]) == seeds and not lost_in(found, cell.key)
    ]


def rows_of(found: Compared, cells: Sequence[Cell], value: OfRun) -> Floats:
    """Return a row for each seed and a column for each cell."""
    columns = [[value(run) for run in found.runs[cell.key].values()] for cell in cells]
    return np.array(columns, float).reshape(len(cells), -1).T


def left_out(found: Compared, cells: Sequence[Cell]) -> str:
    """Say which cells a claim is judged without; empty if all count."""
    gone = [cell for cell in cells if cell not in usable(found, cells)]
    said = [
        f"{cell.label} ({lost_in(found, cell.key)} of {len(found.runs[cell.key])} missed)"
        for cell in gone
        if found.runs[cell.key]
    ]
    return f"judged without {'; '.join(said)}" if said else ""


def _noted(one: Uncorrected, found: Compared, cells: Sequence[Cell]) -> Uncorrected:
    """Return a verdict that names the cells it is judged without."""
    said = left_out(found, cells)
    if not said or not found.decisive:
        return one
    reason = f"{one.verdict.reason}; {said}"
    return dataclasses.replace(one, verdict=dataclasses.replace(one.verdict, reason=reason))


def _absent(found: Compared, cells: Sequence[Cell], least: int) -> str:
    if not any(found.runs[cell.key] for cell in cells):
        return NO_RUN
    return f"fewer than {least} settings have runs that all reached the training accuracy"


def trends(
    found: Compared,
    name: str,
    statement: str,
    groups: Sequence[Sequence[Cell]],
    axis: str,
    value: OfRun,
    rule: Rule,
    paper: str = "yes",
) -> Uncorrected:
    """Judge a trend along an axis by Kendall's τ-b of each seed, averaged over groups of cells."""
    cells = [cell for group in groups for cell in group]
    kept = [part for group in groups if len(part := usable(found, group)) > 1]
    levels = [[getattr(cell, axis) for cell in part] for part in kept]
    taus = [
        [kendall(x, row) for row in rows_of(found, part, value)]
        for x, part in zip(levels, kept, strict=True)
    ]
    made = mean_over_seeds(np.mean(taus, axis=0)) if taus else None
    absent = _absent(found, cells, 2)
    how: Any = {"decisive": found.decisive, "paper": paper, "absent": absent}
    said = f"{statement} (Kendall's τ-b)"
    return _noted(by_interval(found.claim(name), said, made, rule, **how), found, cells)


def flatter(
    found: Compared,
    name: str,
    statement: str,
    *groups: Sequence[Cell],
    axis: str = "lr",
    paper: str = "yes",
) -> Uncorrected:
    """Judge "λ_max falls along the axis"."""
    return trends(found, name, statement, groups, axis, sharpness, FALLS, paper)


def better(
    found: Compared,
    name: str,
    statement: str,
    *groups: Sequence[Cell],
    axis: str = "lr",
    paper: str = "yes",
) -> Uncorrected:
    """Judge "test accuracy rises along the axis"."""
    return trends(found, name, statement, groups, axis, accuracy, RISES, paper)


def gain(found: Compared, cells: Sequence[Cell], axis: str) -> list[float]:
    """Return each seed's change of accuracy from the first level to the last, by a fitted line."""
    return [fitted_change(_levels(cells, axis), row) for row in rows_of(found, cells, accuracy)]


def _levels(cells: Sequence[Cell], axis: str) -> list[float]:
    """Return the cells' places on an axis: logarithmic for learning rates and batch sizes."""
    places = [float(getattr(cell, axis)) for cell in cells]
    return [math.log10(place) for place in places] if axis in ("lr", "batch") else places


def no_gain(
    found: Compared, name: str, statement: str, cells: Sequence[Cell], axis: str
) -> Uncorrected:
    """Judge "accuracy does not rise by the margin": the fitted change is below it."""
    kept, margin = usable(found, cells), found.settings.margin
    made = mean_over_seeds(gain(found, kept, axis)) if len(kept) > 1 else None
    rule = Rule("below", margin, "the fitted change")
    said = f"{statement} (fitted change of accuracy, points)"
    how: Any = {"decisive": found.decisive, "absent": _absent(found, cells, 2)}
    return _noted(by_interval(found.claim(name), said, made, rule, **how), found, cells)


def flattens(
    found: Compared, name: str, statement: str, cells: Sequence[Cell], axis: str
) -> Uncorrected:
    """Judge "beyond some point accuracy rises less": the slope falls at a fitted bend."""
    kept = usable(found, cells)
    made = None
    if len(kept) > 2:
        made = change_of_slope(_levels(kept, axis), rows_of(found, kept, accuracy))
    per = "points a decade" if axis in ("lr", "batch") else f"points per unit of {axis}"
    said = f"{statement} (change of slope, {per})"
    how: Any = {"decisive": found.decisive, "absent": _absent(found, cells, 3)}
    return _noted(by_interval(found.claim(name), said, made, FLATTENS, **how), found, cells)


def plateau(
    found: Compared, name: str, statement: str, cells: Sequence[Cell], axis: str
) -> Uncorrected:
    """Judge "beyond the bend accuracy stays": last level minus bend within the margin."""
    kept, rule = usable(found, cells), Within(found.settings.margin)
    made = None
    if len(kept) > 2:
        rows = rows_of(found, kept, accuracy)
        bend = bend_at(_levels(kept, axis), rows.mean(0))
        made = equivalence(list(rows[:, -1] - rows[:, bend]), rule.width)
        statement += f", from {kept[bend].label} on"
    how: Any = {"decisive": found.decisive, "absent": _absent(found, cells, 3)}
    said = f"{statement} (difference of accuracy, points)"
    return _noted(by_margin(found.claim(name), said, made, rule, **how), found, cells)


def same_accuracy(found: Compared, name: str, statement: str, cells: Sequence[Cell]) -> Uncorrected:
    """Judge "no two of these settings differ in accuracy by the margin"."""
    kept, rule = usable(found, cells), Within(found.settings.margin, of="the largest difference")
    made = equivalent_pairs(rows_of(found, kept, accuracy), rule.width) if len(kept) > 1 else None
    how: Any = {"decisive": found.decisive, "absent": _absent(found, cells, 2)}
    said = f"{statement} (difference of accuracy, points)"
    return _noted(by_margin(found.claim(name), said, made, rule, **how), found, cells)


def at_the_edge(found: Compared, name: str, statement: str, cells: Sequence[Cell]) -> Uncorrected:
    """Judge "λ_max is about 2/η": the mean of log(λ_max η/2) over cells is within a factor."""
    kept, rule = usable(found, cells), Within(EDGE, of="the ratio", ratio=True)
    made = None
    if kept:
        tops = np.log(np.maximum(rows_of(found, kept, sharpness), 1e-12))
        over = tops - np.log([2 / cell.lr for cell in kept])
        made = equivalence(list(over.mean(1)), rule.width)
    how: Any = {"decisive": found.decisive, "absent": _absent(found, cells, 1)}
    said = f"{statement} (λ_max over 2/η)"
    return _noted(by_margin(found.claim(name), said, made, rule, **how), found, cells)


def differs(
    found: Compared,
    name: str,
    statement: str,
    one: Cell,
    other: Cell,
    rule: Rule,
    value: OfRun = accuracy,
) -> Uncorrected:
    """Judge the difference of two cells, other minus one, by the same seeds."""
    cells = [one, other]
    made = None
    if len(usable(found, cells)) == 2:
        rows = rows_of(found, cells, value)
        made = mean_over_seeds(rows[:, 1] - rows[:, 0])
    how: Any = {"decisive": found.decisive, "absent": _absent(found, cells, 2)}
    return _noted(by_interval(found.claim(name), statement, made, rule, **how), found, cells)


def in_words(verdict: Verdict) -> str:
    """Write a verdict as part of a sentence."""
    words = {True: "holds", False: "fails", None: "is open"}
    return f"{verdict.statement.partition(' (')[0]}: {words[verdict.holds]}"
