"""Figure 11: Scenario II with three layers. With bias in the first, 1-SAM generalises worse.

Source:   Wen, Li & Ma 2023, Figure 11 and Section B.4; Table 2, rows 11a and 11b.
Command:  flatlab run wen2023/fig11
Seconds:  83 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    "The minimum reached by 1-SAM is flatter, but the model generalizes much worse."
Expected: 1-SAM's trace below the baseline's and at the floor 6·31^(1/3) = 18.85 within 10 %; its
          test error more than 0.1 above the baseline's ("much worse").

What the paper leaves unsaid, and what is done here:
- Initial weights, order, loss, weight decay and the test error at f = 0 are as in `table1`.
- The caption says gradient descent, but row 11a has batch size 1, like 11b. So 11a is run as SGD
  with weight decay.
- `lab` shortens 11a to 1,000 and 11b to 3,000 epochs. 1-SAM's trace still falls slowly then, so
  only `paper` can say that it does not reach the floor.
"""

from __future__ import annotations

import functools

from ...models import Deep
from ...theory import bias_floor
from ..sizes import lengths
from ._figure import two_panels
from ._scenarios import scenario_two

DEPTH = 3

COMPARISON = two_panels(
    11,
    lambda s: Deep(depth=DEPTH, width=s.width),
    functools.partial(bias_floor, depth=DEPTH),
    "floor, attained",
    title="Scenario II: three-layer ReLU network with bias in the first layer",
    claim="with three layers and a bias in the first, 1-SAM ends flatter than SGD with weight "
    "decay and generalises much worse",
    quick={"width": 50, **lengths(gd=50, sam=50)},
    lab={"seeds": 3, **lengths(gd=1_000, sam=3_000)},
    verdicts=functools.partial(scenario_two, much=True, bound_needs="paper"),
)
EXPERIMENT = COMPARISON.experiment(__name__)
