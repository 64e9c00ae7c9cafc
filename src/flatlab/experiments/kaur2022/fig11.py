"""Figure 11: BatchNorm changes accuracy and hardly λ_max, large batch size.

Source:   Kaur, Cohen & Lipton 2022, Figure 11 and Section 3.5.
Command:  flatlab run kaur2022/fig11
Seconds:  not measured yet (lab); 9 of processor time (quick, 2 seeds); shares runs with fig1
Claim:    "in the large-batch setting (Figure 11), if we fix the learning rate, then λ_max found by
          models with and without BN are equivalent for most values of η." "for networks with BN
          enabled, large learning rates do improve generalization in the large-batch setting."
Expected: as in kaur2022/fig10; rank correlation of η with accuracy above 0 with BatchNorm; λ_max
          within a factor 1.25 of 2/η with BatchNorm.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What the paper leaves unsaid, and what is done here:
- As in kaur2022/fig10. The paper's large batch has 5,000 of 50,000 images; that of `lab` has all
  2,000, and the learning rates of kaur2022/fig1.
- "Equivalent for most values of η" is tested for the mean over learning rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...specs import spec
from ..compared import Compared
from ..deciding import Uncorrected
from ..sizes import Count, Seeds
from ._batch_norm import batch_norm_figure, cells_of
from ._batches import LAB, LAB_RATES, QUICK
from ._claims import at_the_edge, better
from ._protocol import Protocol, Rates


@spec
class Settings(Protocol):
    """The large batch size and its learning rates."""

    seeds: Seeds = 4
    large: Count = 5000
    large_epochs: Count = 5000
    rates: Rates = (0.001, 0.005, 0.01, 0.05, 0.1)


def _large(preset: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of a preset without the small batch size."""
    return {name: value for name, value in preset.items() if name not in ("small", "epochs")}


PRESETS = {
    "quick": Settings(rates=(0.1, 0.4), **_large(QUICK)),
    "lab": Settings(rates=LAB_RATES["large_rates"], **_large(LAB)),
    "paper": Settings(),
}


def more(found: Compared) -> Sequence[Uncorrected]:
    """Judge the gain from large learning rates, and the edge of stability, with BatchNorm."""
    cells = cells_of(found.settings, True)
    rises = "with BatchNorm test accuracy rises with the learning rate"
    return [
        better(found, "accuracy_rises", rises, cells),
        at_the_edge(found, "edge", "with BatchNorm λ_max is about 2/η", cells),
    ]


COMPARISON = batch_norm_figure(11, PRESETS, "large", more)
EXPERIMENT = COMPARISON.experiment(__name__)
