"""Figure 4: at a fixed ratio of batch size to learning rate, accuracy stays and λ_max falls.

Source:   Kaur, Cohen & Lipton 2022, Figure 4 and Section 3.2.
Command:  flatlab run kaur2022/fig4
Seconds:  not measured yet (lab); 9 of processor time (quick, 2 seeds)
Claim:    "networks trained with the same α but different batch sizes exhibit similar final test
          accuracies, but different λ_max." "λ_max is large when the batch size (and corresponding
          learning rate) is small."
Expected: for every ratio α = B/η no two batch sizes differ by one point of accuracy, and the rank
          correlation of the batch size with λ_max is below 0.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What the paper leaves unsaid, and what is done here:
- It names one ratio, 20,000 (Figure 5). `paper` has 20,000 and 40,000 and batches of 100 to 500.
- "Similar" is an equivalence: each pair of batch sizes must differ by less than a point, shown by
  two one-sided tests.
"""

from __future__ import annotations

from typing import Any

from ..compared import Compared
from ..deciding import Uncorrected
from ._claims import flatter, same_accuracy
from ._figure import Grid, KeyLines, figure
from ._ratios import PRESETS, line


def lines(s: Any) -> KeyLines:
    """Return a line for each ratio."""
    return {f"α = {ratio:g}": line(s, ratio) for ratio in sorted(s.ratios)}


def judged(found: Compared) -> list[Uncorrected]:
    """Judge both claims for every ratio."""
    made = []
    for ratio in sorted(found.settings.ratios):
        cells, at = line(found.settings, ratio), f"at B/η = {ratio:g}"
        name = f"{ratio:g}"
        grows = "λ_max falls as batch size and learning rate grow"
        same = "batch sizes have the same test accuracy"
        made += [
            flatter(found, f"lambda_falls_{name}", f"{at} {grows}", cells, axis="batch"),
            same_accuracy(found, f"same_accuracy_{name}", f"{at} {same}", cells),
        ]
    return made


COMPARISON = figure(
    4,
    Grid(lines, axis="batch"),
    title="A fixed ratio of batch size to learning rate",
    claim="at a fixed ratio of batch size and learning rate the test accuracy is similar, while "
    "λ_max is larger at small batch size",
    presets=PRESETS,
    judged=judged,
)
EXPERIMENT = COMPARISON.experiment(__name__)
