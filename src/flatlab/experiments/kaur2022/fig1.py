"""Figure 1: a larger learning rate always lowers λ_max, and helps only with small batches.

Source:   Kaur, Cohen & Lipton 2022, Figure 1 and Section 3.1.
Command:  flatlab run kaur2022/fig1
Seconds:  not measured yet (lab); 15 of processor time (quick, 2 seeds)
Claim:    "as the learning rate increases, the final test accuracy increases for small-batch and
          plateaus for large-batch SGD. In both cases, as the learning rate increases, λ_max
          decreases." "λ_max of the large-batch SGD solution lies approximately on the line" 2/η.
          "Beyond some point, large learning rates do not generalize better".
Expected: rank correlation of η with λ_max below 0 in both, with accuracy above 0 at the small
          batch size; at the large one the slope of accuracy falls at a bend, and from there to the
          largest rate accuracy changes by less than one point; λ_max within a factor 1.25 of 2/η.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What the paper leaves unsaid, and what is done here:
- The learning rates: its text has no list. `paper` has seven from 0.001 to 0.1, both batch sizes.
- `lab` has 2,000 images of 16 × 16 pixels and a network of four convolutions. Batches of 20 and of
  all images take the place of 100 and 5,000. The full batch needs larger learning rates to reach
  99 % in reasonable time, so each batch size has rates of its own.
- "Plateaus" is tested as an equivalence with a margin of one point, not as a missing difference.
- λ_max falls with the training loss, which differs at 99 % accuracy. So every run is also trained
  on to one training loss (`equal_loss`) and measured there; the paper does not do this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...specs import spec
from ..arms import Arm, Tables
from ..compared import Compared
from ..deciding import FALLS, Uncorrected, by_interval
from ..sizes import Positive
from ..statistics import kendall, mean_over_seeds
from ._batches import LAB, LAB_RATES, QUICK, QUICK_RATES, TwoGrids, line
from ._claims import at_the_edge, better, flattens, flatter, plateau, sharpness
from ._figure import Grid, KeyLines, counts, figure
from ._protocol import Cell, trained_on


@spec
class Settings(TwoGrids):
    """Two batch sizes, their learning rates, and the training loss for a fair comparison."""

    equal_loss: Positive = 0.01


PRESETS = {
    "quick": Settings(equal_loss=0.05, **QUICK, **QUICK_RATES),
    "lab": Settings(**LAB, **LAB_RATES),
    "paper": Settings(),
}


def lines(s: Any) -> KeyLines:
    """Return both batch sizes."""
    return {f"batch {batch:,}": line(s, batch) for batch in (s.small, s.large)}


def more(s: Any) -> list[Arm]:
    """Return the runs that are trained on to one loss."""
    return [trained_on(s, cell, s.equal_loss) for cells in lines(s).values() for cell in cells]


def judged(found: Compared) -> list[Uncorrected]:
    """Judge the figure's claims, and ours at equal training loss."""
    small, large = (line(found.settings, b) for b in (found.settings.small, found.settings.large))
    which = "with the {} batch size {} as the learning rate grows"
    falls, rises = "λ_max falls", "test accuracy rises"
    far = "beyond some learning rate the large batch size gains"
    return [
        flatter(found, "small_lambda_falls", which.format("small", falls), small),
        flatter(found, "large_lambda_falls", which.format("large", falls), large),
        better(found, "small_accuracy_rises", which.format("small", rises), small),
        flattens(found, "large_flattens", f"{far} less accuracy", large, "lr"),
        plateau(found, "large_plateau", f"{far} none", large, "lr"),
        at_the_edge(found, "large_edge", "with the large batch size λ_max is about 2/η", large),
        at_equal_loss(found, "small_equal_loss", small),
        at_equal_loss(found, "large_equal_loss", large),
    ]


def at_equal_loss(found: Compared, name: str, cells: list[Cell]) -> Uncorrected:
    """Judge "λ_max falls with η at one training loss too"; the paper does not ask."""
    batch, loss = cells[0].batch, found.settings.equal_loss
    said = f"at a training loss of {loss:g} λ_max falls with η too, batch {batch:,}"
    kept = [cell for cell in cells if _all_reached(found, cell)]
    made = None
    if len(kept) > 1:
        columns = [[sharpness(r) for r in found.runs[f"{c.key}-on"].values()] for c in kept]
        rates = [cell.lr for cell in kept]
        made = mean_over_seeds([kendall(rates, row) for row in np.array(columns).T])
    absent = f"fewer than 2 learning rates have runs that all reached a loss of {loss:g}"
    how: Any = {"decisive": found.decisive, "paper": "silent", "absent": absent}
    return by_interval(found.claim(name), f"{said} (Kendall's τ-b)", made, FALLS, **how)


def _all_reached(found: Compared, cell: Cell) -> bool:
    runs = found.runs[f"{cell.key}-on"]
    reached = [run for run in runs.values() if run.status == "reached"]
    return bool(len(reached) == found.settings.seeds)


def tables(found: Compared) -> Tables:
    """Return λ_max at 99 % training accuracy and at one training loss."""
    rows = []
    for cell in (cell for cells in lines(found.settings).values() for cell in cells):
        row: dict[str, Any] = {"setting": cell.label}
        for key, when in ((cell.key, "at_accuracy"), (f"{cell.key}-on", "at_loss")):
            runs = [run for run in found.runs[key].values() if run.status != "diverged"]
            for column in ("train_loss", "lambda_max"):
                values = [run.final[column] for run in runs]
                row[f"{column}_{when}"] = float(np.mean(values)) if values else None
        rows.append(row | counts(found, f"{cell.key}-on"))
    return {"fig1-equal-loss": rows}


COMPARISON = figure(
    1,
    Grid(lines, edge=True, more=more),
    title="Learning rate with small and large batches",
    claim="a larger learning rate gives a smaller λ_max at small and large batch size, and a "
    "better test accuracy at the small one only; at the large one λ_max is about 2/η",
    presets=PRESETS,
    judged=judged,
    tables=tables,
)
EXPERIMENT = COMPARISON.experiment(__name__)
