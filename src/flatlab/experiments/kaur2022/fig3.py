"""Figure 3: the gain from large learning rates fades as the batch size grows.

Source:   Kaur, Cohen & Lipton 2022, Figure 3 and Section 3.1 ("A gradual trend").
Command:  flatlab run kaur2022/fig3
Seconds:  not measured yet (lab); 14 of processor time (quick, 2 seeds); shares runs with fig1
Claim:    "as the batch size gets larger, the generalization benefits of large learning rates
          gradually diminish, yet large learning rates still find small λ_max."
Expected: rank correlation of η with λ_max below 0 at every batch size; rank correlation of the
          batch size with the gain in accuracy from the smallest to the largest η below 0.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What the paper leaves unsaid, and what is done here:
- Its batch sizes are not stated in the text. `paper` has 100, 250, 500, 1,000, 2,500 and 5,000.
- A batch size between the smallest and the largest has learning rates and epochs between theirs, on
  logarithmic axes. Where both ends have the same rates, as in `paper`, all have them.
- The gain is the rise of a line fitted to accuracy over log η, one number a seed and batch size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plots import Curve, Curves, Plot
from ...specs import spec
from ..compared import Compared
from ..deciding import FALLS, Uncorrected, by_interval
from ..statistics import kendall, mean_over_seeds
from ._batches import LAB, LAB_RATES, QUICK, QUICK_RATES, TwoGrids, line
from ._claims import flatter, gain, usable
from ._figure import Grid, KeyLines, figure, missed_in_words
from ._protocol import Counts


@spec
class Settings(TwoGrids):
    """The smallest and the largest batch size with their rates, and those between."""

    middle: Counts = (250, 500, 1000, 2500)


PRESETS = {
    "quick": Settings(middle=(20, 30), **QUICK, **QUICK_RATES),
    "lab": Settings(middle=(80, 400), **LAB, **LAB_RATES),
    "paper": Settings(),
}


def lines(s: Any) -> KeyLines:
    """Return a line for each batch size."""
    return {f"batch {batch:,}": line(s, batch) for batch in sorted({s.small, *s.middle, s.large})}


def gains(found: Compared) -> dict[int, list[float]]:
    """Return batch size → each seed's gain in accuracy over the learning rates."""
    made = {}
    for cells in lines(found.settings).values():
        kept = usable(found, cells)
        if len(kept) > 1:
            made[cells[0].batch] = gain(found, kept, "lr")
    return made


def judged(found: Compared) -> list[Uncorrected]:
    """Judge the trend of λ_max at every batch size, and of the gain over batch sizes."""
    falls = [
        flatter(found, f"lambda_falls_{cells[0].batch}", f"with {label} λ_max falls with η", cells)
        for label, cells in lines(found.settings).items()
    ]
    by_batch = gains(found)
    made = None
    if len(by_batch) > 1:
        rows = np.array(list(by_batch.values())).T
        made = mean_over_seeds([kendall(list(by_batch), row) for row in rows])
    said = "the gain in accuracy from a large learning rate fades as the batch size grows"
    absent = "fewer than 2 batch sizes have learning rates that all runs reached 99 % with"
    how: Any = {"decisive": found.decisive, "absent": absent}
    fades = by_interval(found.claim("gain_fades"), f"{said} (Kendall's τ-b)", made, FALLS, **how)
    return [*falls, fades]


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return the gain in accuracy against the batch size."""
    by_batch = gains(found)
    curves: tuple[Curve, ...] = ()
    if by_batch:
        x, y = np.array(list(by_batch), float), np.array(list(by_batch.values())).T
        curves = (Curve("gain", "neutral", x, y),)
    panel = Curves(
        "gain from the smallest to the largest η",
        "fitted change of accuracy, points",
        curves,
        xlabel="batch size",
        xscale="log",
    )
    caption = f"Line: mean over seeds. Band: smallest to largest. {missed_in_words(found)}"
    return (Plot("fig3-gain", "The gain from large learning rates", ((panel,),), caption),)


COMPARISON = figure(
    3,
    Grid(lines, edge=True),
    title="A range of batch sizes",
    claim="as the batch size grows, the gain in accuracy from a large learning rate gradually "
    "vanishes, while λ_max still falls with the learning rate",
    presets=PRESETS,
    judged=judged,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
