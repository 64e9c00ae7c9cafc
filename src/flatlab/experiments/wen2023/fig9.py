"""Figure 9: Scenario II with the logistic loss. With bias 1-SAM generalises worse.

Source:   Wen, Li & Ma 2023, Figure 9 and Section B.3; Table 2, rows 9a and 9b.
Command:  flatlab run wen2023/fig9
Seconds:  31 of training on one core (lab, 6 seeds, two runs at a time)
Claim:    "The minimum reached by 1-SAM is flatter but the model generalizes much worse and even
          starts to degenerate after 2000 epochs."
Expected: 1-SAM's trace below the baseline's and at the floor 2.47 within 10 %; its test error at
          least 0.1 above the baseline's and larger at the end than at epoch 2,000.

What the paper leaves unsaid, and what is done here:
- Initial weights, order, weight decay and the test error at f = 0 are as in `table1`; the loss is
  as in `fig8`.
- The caption says gradient descent, but row 9a has batch size 1. So 9a is run as SGD with weight
  decay.
- "Much worse" is taken as a test error larger by more than 0.1.
- The test error at epoch 2,000 is read at the nearest logged epoch, 1,995.
- The floor 2p(1 − p)·log 4·√(d + 1) is for networks with the smallest possible loss. Weight decay
  keeps 9a away from it: its loss ends 0.05 above.
- `lab` shortens 9a to 3,000 epochs, where nothing moves any more, and 9b to 20,000; it has six
  seeds, because their test errors differ by up to 0.18.
"""

from __future__ import annotations

import functools

from ...losses import Logistic
from ...models import TwoLayer
from ...theory import logistic_floor
from ..sizes import lengths
from ._figure import two_panels
from ._scenarios import scenario_two

LOSS = Logistic(smoothing=0.2)

COMPARISON = two_panels(
    9,
    lambda s: TwoLayer(width=s.width),
    lambda data: logistic_floor(data, LOSS.smoothing),
    "floor, attained",
    title="Scenario II with the logistic loss: bias",
    claim="with bias and the logistic loss, 1-SAM ends flatter than SGD with weight decay and "
    "generalises much worse, with a test error that grows after epoch 2,000",
    loss=LOSS,
    quick=lengths(gd=200, sam=200),
    lab={"seeds": 6, **lengths(gd=3_000, sam=20_000)},
    verdicts=functools.partial(scenario_two, much=True, degrades_after=2000),
)
EXPERIMENT = COMPARISON.experiment(__name__)
