"""Figure 4: Scenario II. With bias, 1-SAM finds flatter minima that do not generalise.

Source:   Wen, Li & Ma 2023, Figure 4 and Section 4.2; Table 2, rows 4a and 4b (two phases).
Command:  flatlab run wen2023/fig4
Seconds:  95 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    "The minimum reached by 1-SAM is flatter but the model fails to generalize and the
          generalization performance even starts to degenerate after 4000 epochs." Section 6: 1-SAM
          approximately reaches the lower bound of the trace.
Expected: 1-SAM's trace at 4√31 = 22.27 within 10 % and below gradient descent's; its test error
          above 0.1, above gradient descent's, and larger at the end than at epoch 4,000.

What the paper leaves unsaid, and what is done here:
- Initial weights, order, loss, weight decay and the test error at f = 0 are as in `table1`.
- 4a has batch size 100: full-batch gradient descent.
- The two rows of 4b, radius 0.05 and then 0.1, are two phases whose epochs add up.
- The test error at epoch 4,000 is read at the nearest logged epoch, 3,981.
- `lab` shortens 4a to 20,000 epochs and the phases of 4b to 80,000 and 160,000.
"""

from __future__ import annotations

from ...models import TwoLayer
from ...specs import spec
from ...theory import bias_floor
from ..arms import Arm
from ..compared import Compared
from ..contract import Verdict
from ..sizes import Count, Epochs, Sizes
from ._figure import figure
from ._scenarios import scenario_two
from ._table2 import baseline, row


@spec
class Settings(Sizes):
    """Sizes and lengths. Defaults are the paper's own; fields can be changed with --set."""

    gd_epochs: Count = row("4a").epochs
    sam_epochs: Count = row("4b").epochs
    sam_epochs_second: Epochs = row("4b", 1).epochs


PRESETS = {
    "quick": Settings(
        seeds=2,
        width=100,
        d=10,
        n=60,
        n_test=1000,
        gd_epochs=400,
        sam_epochs=200,
        sam_epochs_second=200,
    ),
    "lab": Settings(seeds=3, gd_epochs=20_000, sam_epochs=80_000, sam_epochs_second=160_000),
    "paper": Settings(),
}


def arms(s: Settings) -> list[Arm]:
    """Return both panels."""
    return baseline(s, 4, TwoLayer(width=s.width), bias_floor, "floor, attained")


def verdicts(found: Compared) -> list[Verdict]:
    """Judge the paper's claims about the figure."""
    return scenario_two(found, fails=True, degrades_after=4000)


COMPARISON = figure(
    4,
    title="Scenario II: two-layer ReLU network with bias",
    claim="with bias, 1-SAM ends flatter than gradient descent with weight decay, at the trace's "
    "lower bound, and generalises worse, with a test error that grows after epoch 4,000",
    arms=arms,
    presets=PRESETS,
    verdicts=verdicts,
    scores=True,
)
EXPERIMENT = COMPARISON.experiment(__name__)
