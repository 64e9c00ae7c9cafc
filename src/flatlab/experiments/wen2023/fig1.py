"""Figure 1: Scenario I. Without bias, gradient descent and 1-SAM both generalise.

Source:   Wen, Li & Ma 2023, Figure 1; hyper-parameters from their Table 2, rows 1a and 1b.
Command:  flatlab run wen2023/fig1
Seconds:  17 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    "In both cases, the model reaches perfect generalization. Notice that although weight
          decay doesn't explicitly regularize model sharpness, the flatness of the model decreases
          through training." It is the sharpness that decreases.
Expected: test errors 0 (a test error below 0.1 counts as generalising); the last trace below the
          initial one under both; 1-SAM's trace between the kinks' floor 4√30 = 21.91 and 30.

What the paper leaves unsaid, and what is done here:
- Initial weights, order, loss, weight decay and the test error at f = 0 are as in `table1`.
- 1a has batch size 100: full-batch gradient descent.
- The paper does not compare the traces of 1a and 1b; their ratio is judged here all the same.
- The floor 4√d is reached only with training points on the kinks of ReLUs, so 1-SAM is not
  expected to meet it.
- `lab` shortens both to 20,000 epochs, where test errors and traces have stopped moving.
"""

from __future__ import annotations

from ...models import TwoLayer
from ...specs import spec
from ...theory import no_bias_floor
from ..arms import Arm
from ..sizes import Count, Sizes
from ._figure import figure
from ._scenarios import scenario_one
from ._table2 import baseline, row


@spec
class Settings(Sizes):
    """Sizes and lengths. Defaults are the paper's own; fields can be changed with --set."""

    gd_epochs: Count = row("1a").epochs
    sam_epochs: Count = row("1b").epochs


PRESETS = {
    "quick": Settings(seeds=2, width=100, d=10, n=60, n_test=1000, gd_epochs=400, sam_epochs=200),
    "lab": Settings(seeds=3, gd_epochs=20_000, sam_epochs=20_000),
    "paper": Settings(),
}


def arms(s: Settings) -> list[Arm]:
    """Return both panels."""
    return baseline(
        s, 1, TwoLayer(width=s.width, bias=False), no_bias_floor, "floor, reached only on kinks"
    )


COMPARISON = figure(
    1,
    title="Scenario I: two-layer ReLU network without bias",
    claim="without bias, gradient descent with weight decay and 1-SAM both generalise, and the "
    "trace falls under both",
    arms=arms,
    presets=PRESETS,
    verdicts=scenario_one,
    scores=True,
)
EXPERIMENT = COMPARISON.experiment(__name__)
