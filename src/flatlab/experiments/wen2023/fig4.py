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

import functools

from ...models import TwoLayer
from ...theory import bias_floor
from ..sizes import lengths
from ._figure import two_panels
from ._scenarios import scenario_two

COMPARISON = two_panels(
    4,
    lambda s: TwoLayer(width=s.width),
    bias_floor,
    "floor, attained",
    title="Scenario II: two-layer ReLU network with bias",
    claim="with bias, 1-SAM ends flatter than gradient descent with weight decay, at the trace's "
    "lower bound, and generalises worse, with a test error that grows after epoch 4,000",
    descent="GD + weight decay",
    quick=lengths(gd=400, sam=(200, 200)),
    lab={"seeds": 3, **lengths(gd=20_000, sam=(80_000, 160_000))},
    verdicts=functools.partial(scenario_two, fails=True, degrades_after=4000),
    scores=True,
)
EXPERIMENT = COMPARISON.experiment(__name__)
