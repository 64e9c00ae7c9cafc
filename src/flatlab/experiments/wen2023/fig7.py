"""Figure 7: the uniform ball. 1-SAM generalises without bias but not with it, in regression too.

Source:   Wen, Li & Ma 2023, Figure 7 and Section B.2; Table 2, rows 7a and 7b.
Command:  flatlab run wen2023/fig7
Seconds:  15 of training on one core (lab, 6 seeds, two runs at a time)
Claim:    "The flattest minimizer of the MLP without bias has a much better generalization
          performance than the one with bias." Section 6: 1-SAM approximately reaches the lower
          bound of the trace.
Expected: test loss without bias below a tenth of the mean of y²; with bias at least twice as large;
          the trace with bias at its floor, 7.89 on the data of seed 0, within 10 %.

What the paper leaves unsaid, and what is done here:
- Initial weights, order and loss are as in `table1`. Both panels are 1-SAM.
- x is uniform in the ball of radius √10, d = 10, n = 100 and y = |x1| − |x2|. Generalisation is the
  test loss, the mean of (f − y)²; the zero function's test loss is the mean of y².
  - "Much better" is taken as a ratio of test losses above 2, "generalises" as a test loss below a
  tenth of the zero function's.
  - The floors are (2/n) Σ 2|y|‖x‖ without bias, reached only on kinks, and (2/n) Σ 2|y|√(‖x‖² + 1)
  with bias; they differ a little from seed to seed, because the data do.
  - `lab` shortens both to 10,000 epochs and has six seeds, because the trace swings by about 5 %.
"""

from __future__ import annotations

import numpy as np

from ...models import TwoLayer
from ...specs import spec
from ...theory import bias_floor, no_bias_floor
from ...training.run import Run
from ..arms import Arm
from ..compared import Compared
from ..contract import POSITIVE, Verdict
from ..judging import How, above, below, reaches_floor
from ..sizes import Count, Sizes
from ._figure import figure, small_figure
from ._table2 import row, trained

MUCH = 2.0  # ratio of test losses that counts as much better
SMALL = 0.1  # test loss over the zero function's below which a network generalises


@spec
class Settings(Sizes):
    """Sizes and lengths. Defaults are the paper's own; fields can be changed with --set."""

    d: Count = 10
    no_bias_epochs: Count = row("7a").epochs
    bias_epochs: Count = row("7b").epochs


PRESETS = {
    "quick": small_figure(Settings, d=5, no_bias_epochs=200, bias_epochs=200),
    "lab": Settings(seeds=6, no_bias_epochs=10_000, bias_epochs=10_000),
    "paper": Settings(),
}


def arms(s: Settings) -> list[Arm]:
    """Return both panels."""
    without, with_bias = TwoLayer(width=s.width, bias=False), TwoLayer(width=s.width)
    return [
        trained(
            s, "no_bias", "7a", "without bias", without, no_bias_floor, "floor without bias",
            data="ball",
        ),
        trained(s, "bias", "7b", "with bias", with_bias, bias_floor, "with bias", data="ball"),
    ]  # fmt: skip


def relative_loss(run: Run) -> float:
    """Return the test loss divided by the zero function's test loss."""
    return run.final["test_loss"] / float(np.mean(run.dataset().y_test ** 2))


def verdicts(found: Compared) -> list[Verdict]:
    """Judge the paper's claims about the figure."""
    claim, fit = found.claim("no_bias_generalises"), found.fit("no_bias")
    said = "1-SAM without bias generalises (test loss over the mean of y²)"
    losses = found.each("no_bias", relative_loss)
    does = below(claim, said, losses, SMALL, decisive=fit, within=POSITIVE)
    claim, fit, paper = found.claim("bias_worse"), found.fit("no_bias", "bias"), "much worse"
    said = "1-SAM generalises much worse with bias (ratio of test losses, with to without)"
    ratios = found.ratios("no_bias", "bias", "test_loss")
    absent = "the ratio is undefined: the test loss without bias is 0 in every seed"
    how: How = {"decisive": fit, "within": POSITIVE, "paper": paper, "absent": absent}
    worse = above(claim, said, ratios, MUCH, **how)
    return [does, worse, reaches_floor(found, "bias", "reaches_bound", "1-SAM with bias")]


COMPARISON = figure(
    7,
    title="Uniform ball: two-layer ReLU network without and with bias, by 1-SAM",
    claim="on the uniform ball, 1-SAM generalises without bias and much worse with it",
    arms=arms,
    presets=PRESETS,
    verdicts=verdicts,
    generalisation="test_loss",
)
EXPERIMENT = COMPARISON.experiment(__name__)
