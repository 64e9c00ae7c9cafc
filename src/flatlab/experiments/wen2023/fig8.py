"""Figure 8: Scenario I with the logistic loss. Without bias both algorithms generalise.

Source:   Wen, Li & Ma 2023, Figure 8 and Section B.3; Table 2, rows 8a and 8b.
Command:  flatlab run wen2023/fig8
Seconds:  8 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    "In both cases, the model reaches perfect generalization. Notice that although weight
          decay doesn't explicitly regularize model sharpness, the flatness of the model decreases
          through training." It is the sharpness that decreases.
Expected: test errors 0 (a test error below 0.1 counts as generalising); the last trace below the
          initial one under both; 1-SAM's trace compared with the kinks' floor 2.43.

What the paper leaves unsaid, and what is done here:
- Initial weights, order, weight decay and the test error at f = 0 are as in `table1`.
- The caption says gradient descent, but row 8a has batch size 10. So 8a is run as SGD with weight
  decay.
- The loss is log(1 + e^f) − q f with label smoothing p = 0.2, q = 0.8 for y = 1 and 0.2 for y = −1;
  its printed definition has p and 1 − p exchanged. The smallest loss is 0.5004, at f = ±log 4.
- The paper does not compare the traces of 8a and 8b; their ratio is judged here all the same.
- The floor 2p(1 − p)·log 4·√d is reached only with training points on the kinks of ReLUs.
- `lab` shortens 8a to 3,000 and 8b to 10,000 epochs, where errors and traces have stopped moving.
"""

from __future__ import annotations

from ...losses import Logistic
from ...models import TwoLayer
from ...theory import logistic_floor, no_bias_floor
from ..sizes import lengths
from ._figure import two_panels
from ._scenarios import scenario_one

LOSS = Logistic(smoothing=0.2)

COMPARISON = two_panels(
    8,
    lambda s: TwoLayer(width=s.width, bias=False),
    lambda data: logistic_floor(data, LOSS.smoothing, no_bias_floor),
    "floor, reached only on kinks",
    title="Scenario I with the logistic loss: no bias",
    claim="without bias and with the logistic loss, SGD with weight decay and 1-SAM both "
    "generalise, and the trace falls under both",
    loss=LOSS,
    quick=lengths(gd=100, sam=200),
    lab={"seeds": 3, **lengths(gd=3_000, sam=10_000)},
    verdicts=scenario_one,
)
EXPERIMENT = COMPARISON.experiment(__name__)
