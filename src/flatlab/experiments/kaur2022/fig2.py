"""Figure 2: runs of equal λ_max generalise differently.

Source:   Kaur, Cohen & Lipton 2022, Figure 2 and Section 3.1 ("No absolute correlation").
Command:  flatlab run kaur2022/fig2
Seconds:  not measured yet (lab); 8 of processor time (quick, 2 seeds); shares runs of fig1
Claim:    "there are multiple instances where λ_max of small-batch and large-batch training runs are
          similar, but the test accuracy is much better for small-batch SGD."
Expected: over the pairs of runs that the rule below finds, accuracy with the small batch size minus
          that with the large one is above 0.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What the paper leaves unsaid, and what is done here:
- The paper draws a green box by eye. Here a rule finds the pairs: a run of the small and one of the
  large batch size, of the same seed, whose λ_max differ by a factor of at most `alike` = 1.25.
- A seed's value is the mean difference of accuracy over its pairs; seeds without a pair have none.
- The table lists the pairs of settings whose geometric means of λ_max are alike by the same rule,
  with the interval of their difference in accuracy, and says if it excludes 0.
"""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ...plots import Cloud, Outlines, Plot, Points
from ...specs import spec
from ..arms import Tables
from ..compared import Compared
from ..contract import Interval
from ..deciding import Uncorrected, by_interval
from ..judging import Rule
from ..statistics import mean_over_seeds
from ._batches import LAB, LAB_RATES, QUICK, QUICK_RATES, TwoGrids, line
from ._claims import accuracy, log_sharpness, reached, sharpness
from ._figure import ROLES, Grid, KeyLines, figure, missed_in_words
from ._protocol import Cell


@spec
class Settings(TwoGrids):
    """Two batch sizes, their learning rates, and which λ_max count as equal."""

    alike: Annotated[float, Field(gt=1)] = 1.25


PRESETS = {
    "quick": Settings(**QUICK, **QUICK_RATES),
    "lab": Settings(**LAB, **LAB_RATES),
    "paper": Settings(),
}


def lines(s: Any) -> KeyLines:
    """Return both batch sizes."""
    return {f"batch {batch:,}": line(s, batch) for batch in (s.small, s.large)}


def pairs_of(found: Compared) -> dict[int, list[float]]:
    """Return seed → differences of accuracy, small minus large, of its runs of equal λ_max."""
    small, large = lines(found.settings).values()
    made: dict[int, list[float]] = {}
    for one, other in itertools.product(small, large):
        for seed, run in found.runs[one.key].items():
            match = found.runs[other.key].get(seed)
            if match is None or not (reached(run) and reached(match)):
                continue
            apart = abs(log_sharpness(run) - log_sharpness(match))
            if apart <= math.log(found.settings.alike):
                made.setdefault(seed, []).append(accuracy(run) - accuracy(match))
    return made


def judged(found: Compared) -> list[Uncorrected]:
    """Judge "at equal λ_max the small batch size generalises better"."""
    pairs = pairs_of(found)
    made = mean_over_seeds([float(np.mean(each)) for each in pairs.values()]) if pairs else None
    count = sum(len(each) for each in pairs.values())
    said = "runs of small and large batch size with equal λ_max differ in test accuracy"
    said += f", the small one is better (points; {count} pairs in {len(pairs)} seeds)"
    absent = f"no two runs have λ_max within a factor of {found.settings.alike:g}"
    rule = Rule("above", 0, "the difference")
    how: Any = {"decisive": found.decisive, "absent": absent}
    return [by_interval(found.claim("equal_lambda"), said, made, rule, **how)]


def alike(found: Compared) -> list[tuple[Cell, Cell]]:
    """Return the settings of small and large batch size whose mean log λ_max are alike."""
    made = []
    for one, other in itertools.product(*lines(found.settings).values()):
        runs = _both(found, one, other)
        if runs:
            apart = float(np.mean([log_sharpness(a) - log_sharpness(b) for a, b in runs]))
            made += [(one, other)] if abs(apart) <= math.log(found.settings.alike) else []
    return made


def tables(found: Compared) -> Tables:
    """Return the pairs of settings whose λ_max are alike."""
    rows = []
    for one, other in alike(found):
        runs = _both(found, one, other)
        gaps = [accuracy(a) - accuracy(b) for a, b in runs]
        ends = Interval.of(gaps)
        rows.append(
            {
                "small": one.label,
                "large": other.label,
                "lambda_small": float(np.mean([sharpness(a) for a, _ in runs])),
                "lambda_large": float(np.mean([sharpness(b) for _, b in runs])),
                "difference": float(np.mean(gaps)),
                "low": ends.low if ends else None,
                "high": ends.high if ends else None,
                "excludes_0": bool(ends and not ends.low <= 0 <= ends.high),
                "seeds": len(runs),
            }
        )
    return {"fig2-pairs": rows}


def _both(found: Compared, one: Cell, other: Cell) -> list[tuple[Any, Any]]:
    """Return the runs of two cells that reached their target, for the seeds that both have."""
    there = {seed: run for seed, run in found.runs[other.key].items() if reached(run)}
    ours = {seed: run for seed, run in found.runs[one.key].items() if reached(run)}
    return [(run, there[seed]) for seed, run in ours.items() if seed in there]


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return the scatter of accuracy over λ_max, with lines between the settings of a pair."""
    clouds, groups = [], lines(found.settings)
    runs = {
        label: [run for cell in cells for run in found.runs[cell.key].values()]
        for label, cells in groups.items()
    }
    missed = [r for part in runs.values() for r in part if r.status == "missed"]
    fitted = {label: [run for run in part if reached(run)] for label, part in runs.items()}
    for label, some in {**fitted, "missed 99 %": missed}.items():
        if some:
            x, y = (np.array([value(run) for run in some]) for value in (sharpness, accuracy))
            role = dict(zip(groups, ROLES, strict=True)).get(label, "neutral")
            clouds.append(Cloud(label, role, x, y))
    pairs = [ends_of(found, one, other) for one, other in alike(found)]
    joined: tuple[Outlines, ...] = ()
    if pairs:
        places = np.array(pairs)  # (pairs, ends, λ_max and accuracy)
        joined = (Outlines("reference", places[:, :, 0], places[:, :, 1]),)
    words = "each run at its end", "λ_max", "test accuracy, %"
    panel = Points(*words, tuple(clouds), outlines=joined, xscale="log")
    caption = "One point for each run. Lines: means of settings with λ_max within a factor of "
    caption += f"{found.settings.alike:g}. {missed_in_words(found).replace(' (open markers)', '')}"
    return (Plot("fig2", found.comparison.title, ((panel,),), caption),)


def ends_of(found: Compared, *cells: Cell) -> list[tuple[float, float]]:
    """Return the geometric mean of λ_max and the mean accuracy of each cell."""
    made = []
    for cell in cells:
        runs = [run for run in found.runs[cell.key].values() if reached(run)]
        top = math.exp(float(np.mean([log_sharpness(run) for run in runs])))
        made.append((top, float(np.mean([accuracy(run) for run in runs]))))
    return made


COMPARISON = figure(
    2,
    Grid(lines, edge=True),
    title="Equal λ_max, different accuracy",
    claim="runs of small and large batch size with the same λ_max have different test accuracies, "
    "the better ones at the small batch size",
    presets=PRESETS,
    judged=judged,
    tables=tables,
    plots=plots,
    only=True,
)
EXPERIMENT = COMPARISON.experiment(__name__)
