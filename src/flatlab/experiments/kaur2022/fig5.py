"""Figure 5: at a fixed ratio, the larger learning rate has the smaller λ_max through training.

Source:   Kaur, Cohen & Lipton 2022, Figure 5 and Section 3.2.
Command:  flatlab run kaur2022/fig5
Seconds:  not measured yet (lab); 4 of processor time (quick, 2 seeds); shares runs of fig4
Claim:    "For α = 20000, we plot the evolution of λ_max during training over 5 runs for every
          (batch size, η) pair. Observe that λ_max tends to remain the smallest for η = 0.025 and
          largest for η = 0.005."
Expected: the rank correlation of η with λ_max at one epoch, averaged over the logged epochs after
          the first, is below 0.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What the paper leaves unsaid, and what is done here:
- λ_max is tracked at logarithmically spaced epochs. Runs of one seed are compared at the epochs
  that all of them logged; the initial network, which they share, is left out.
- The smallest ratio of kaur2022/fig4 is drawn, with all its batch sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plots import Curve, Curves, Plot
from ...training.run import Run
from ..compared import Compared
from ..deciding import FALLS, Uncorrected, by_interval
from ..showing import CURVES
from ..statistics import kendall, mean_over_seeds
from ._claims import left_out, usable
from ._figure import Grid, KeyLines, figure, missed_in_words
from ._protocol import Cell
from ._ratios import PRESETS, line


def cells_of(s: Any) -> list[Cell]:
    """Return the cells of the smallest ratio."""
    return line(s, min(s.ratios))


def lines(s: Any) -> KeyLines:
    """Return the one ratio."""
    return {f"α = {min(s.ratios):g}": cells_of(s)}


def common(runs: list[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Return the epochs that all runs logged, but the first, and λ_max there, a row for each run.

    The last epoch of a run that stopped between log points is no common one.
    """
    epochs = sorted(set.intersection(*({*run.columns["epoch"].tolist()} for run in runs)) - {0})
    rows = []
    for run in runs:
        at = dict(zip(run.columns["epoch"].tolist(), run.columns["lambda_max"], strict=True))
        rows.append([float(at[epoch]) for epoch in epochs])
    return np.array(epochs, float), np.array(rows)


def judged(found: Compared) -> list[Uncorrected]:
    """Judge "the larger learning rate has the smaller λ_max throughout training"."""
    cells = cells_of(found.settings)
    kept, taus = usable(found, cells), []
    if len(kept) > 1:
        for seed in found.runs[kept[0].key]:
            _, rows = common([found.runs[cell.key][seed] for cell in kept])
            rates = [cell.lr for cell in kept]
            taus += [np.mean([kendall(rates, column) for column in rows.T])] if rows.size else []
    made = mean_over_seeds(taus) if taus else None
    said = "through training the larger learning rate has the smaller λ_max"
    absent = "fewer than 2 learning rates have runs that all reached 99 %"
    how: Any = {"decisive": found.decisive, "absent": absent}
    if found.decisive and (without := left_out(found, cells)):
        said += f", {without}"
    claim = found.claim("throughout")
    return [by_interval(claim, f"{said} (mean Kendall's τ-b)", made, FALLS, **how)]


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return λ_max and the training loss through training."""
    panels = []
    for column, title, words in (
        ("lambda_max", "sharpness", "λ_max"),
        ("train_loss", "training loss", "cross-entropy"),
    ):
        curves = []
        for cell in cells_of(found.settings):
            runs = list(found.runs[cell.key].values())
            if runs:
                rows = min(len(run.columns["epoch"]) for run in runs) - 1  # without its own end
                y = np.stack([run.columns[column][:rows] for run in runs])
                x = runs[0].columns["epoch"][:rows].astype(float)
                curves.append(Curve(cell.label, cell.label, x, y))
        panels.append(Curves(title, words, tuple(curves), yscale="log"))
    caption = f"{CURVES} A line ends with the first of its runs. {missed_in_words(found)}"
    title = f"λ_max through training at B/η = {min(found.settings.ratios):g}"
    return (Plot("fig5", title, (tuple(panels),), caption),)


COMPARISON = figure(
    5,
    Grid(lines, axis="batch"),
    title="λ_max through training at a fixed ratio",
    claim="at a fixed ratio of batch size and learning rate the larger learning rate has the "
    "smaller λ_max throughout training",
    presets=PRESETS,
    judged=judged,
    plots=plots,
    only=True,
)
EXPERIMENT = COMPARISON.experiment(__name__)
