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
from ...theory import no_bias_floor
from ..sizes import lengths
from ._figure import two_panels
from ._scenarios import scenario_one

COMPARISON = two_panels(
    1,
    lambda s: TwoLayer(width=s.width, bias=False),
    no_bias_floor,
    "floor, reached only on kinks",
    title="Scenario I: two-layer ReLU network without bias",
    claim="without bias, gradient descent with weight decay and 1-SAM both generalise, and the "
    "trace falls under both",
    descent="GD + weight decay",
    quick=lengths(gd=400, sam=200),
    lab={"seeds": 3, **lengths(gd=20_000, sam=20_000)},
    verdicts=scenario_one,
    scores=True,
)
EXPERIMENT = COMPARISON.experiment(__name__)
