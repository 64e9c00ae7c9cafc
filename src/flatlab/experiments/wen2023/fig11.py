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

from ...models import Deep
from ...specs import spec
from ...theory import bias_floor
from ..arms import Arm
from ..compared import Compared
from ..contract import Verdict
from ..sizes import Count, Sizes
from ._figure import figure
from ._scenarios import scenario_two
from ._table2 import baseline, row

DEPTH = 3


@spec
class Settings(Sizes):
    """Sizes and lengths. Defaults are the paper's own; fields can be changed with --set."""

    gd_epochs: Count = row("11a").epochs
    sam_epochs: Count = row("11b").epochs


PRESETS = {
    "quick": Settings(seeds=2, width=50, d=10, n=60, n_test=1000, gd_epochs=50, sam_epochs=50),
    "lab": Settings(seeds=3, gd_epochs=1_000, sam_epochs=3_000),
    "paper": Settings(),
}


def arms(s: Settings) -> list[Arm]:
    """Return both panels."""
    return baseline(
        s,
        11,
        Deep(depth=DEPTH, width=s.width),
        lambda data: bias_floor(data, depth=DEPTH),
        "floor, attained",
        "SGD + weight decay",
    )


def verdicts(found: Compared) -> list[Verdict]:
    """Judge the paper's claims about the figure."""
    return scenario_two(found, much=True, bound_needs="paper")


COMPARISON = figure(
    11,
    title="Scenario II: three-layer ReLU network with bias in the first layer",
    claim="with three layers and a bias in the first, 1-SAM ends flatter than SGD with weight "
    "decay and generalises much worse",
    arms=arms,
    presets=PRESETS,
    verdicts=verdicts,
)
EXPERIMENT = COMPARISON.experiment(__name__)
