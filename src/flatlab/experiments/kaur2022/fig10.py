"""Figure 10: BatchNorm changes accuracy and hardly λ_max, small batch size.

Source:   Kaur, Cohen & Lipton 2022, Figure 10 and Section 3.5.
Command:  flatlab run kaur2022/fig10
Seconds:  not measured yet (lab); 9 of processor time (quick, 2 seeds)
Claim:    "for a fixed learning rate, the VGG11 (+BN) and the VGG11 (no BN) exhibit different test
          accuracies, yet have comparably sharp solutions." Section 3.5: "for small learning rates,
          models with BN generalize worse than models without BN; but for large learning rates,
          models with BN generalize better"; λ_max of normalised networks is lower at small rates
          (the paper prints "lower higher").
Expected: accuracy with BatchNorm below that without at the smallest η, above it at the largest;
          λ_max within a factor 1.5 of one another; lower with BatchNorm at the smallest η.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What the paper leaves unsaid, and what is done here:
- The learning rates, and which of them are small. In the lower half of the rates λ_max with
  BatchNorm is the largest at eight even points between the last iterate and one more step (weights
  0, 1/7 … 1, BatchNorm's buffers too), as the paper does; elsewhere it is taken at the iterate.
  The second table and picture have both at every rate.
- As in the authors' code, BatchNorm takes the statistics of batches of min(B, 1000) of the measured
  examples. λ_max with running statistics is beside it: it may be several times larger.
- `lab` has batches of 100 of 2,000 images: smaller ones make BatchNorm's statistics very noisy.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...specs import spec
from ..compared import Compared
from ..deciding import Uncorrected
from ..judging import Rule
from ..sizes import Count, Seeds
from ._batch_norm import batch_norm_figure, cells_of
from ._batches import LAB, QUICK, TwoBatches
from ._claims import differs, log_sharpness
from ._protocol import Rates


@spec
class Settings(TwoBatches):
    """One batch size and its learning rates; the other two batch sizes only decide the epochs."""

    seeds: Seeds = 4
    batch: Count = 100
    rates: Rates = (0.001, 0.005, 0.01, 0.05, 0.1)


PRESETS = {
    "quick": Settings(batch=30, rates=(0.05, 0.2), **QUICK),
    "lab": Settings(batch=100, rates=(0.015, 0.03, 0.075, 0.15), **LAB),
    "paper": Settings(),
}


def more(found: Compared) -> Sequence[Uncorrected]:
    """Judge "λ_max of normalised networks is lower at small learning rates"."""
    ours, theirs = (cells_of(found.settings, with_it)[0] for with_it in (True, False))
    said = f"at η = {ours.lr:g} λ_max at the iterate is lower with BatchNorm (log of the ratio)"
    rule = Rule("below", 0, "the logarithm of the ratio")
    return [differs(found, "lower_at_small", said, theirs, ours, rule, log_sharpness)]


COMPARISON = batch_norm_figure(10, PRESETS, "small", more)
EXPERIMENT = COMPARISON.experiment(__name__)
