"""Figure 7: SAM lowers λ_max at every batch size and helps only with small batches, η large.

Source:   Kaur, Cohen & Lipton 2022, Figure 7 and Section 3.3.
Command:  flatlab run kaur2022/fig7
Seconds:  not measured yet (lab); 8 of processor time (quick, 2 seeds)
Claim:    "We use the same setup as in Figure 6, but with the large learning rate 0.05. The results
          are consistent with Figure 6."
Expected: rank correlation of ρ with λ_max below 0 at both batch sizes, with accuracy above 0 at the
          small one; at the large one the fitted change of accuracy is below one point.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What the paper leaves unsaid is done as in kaur2022/fig6, except:
- `lab` has the learning rates 0.01 with batches of 20 and 0.4 with all 2,000 images; plain SGD with
  these is in kaur2022/fig1.
"""

from __future__ import annotations

from ._batches import LAB, QUICK
from ._sam import WithSAM, sam_figure

PRESETS = {
    "quick": WithSAM(rhos=(0.0, 0.05, 0.1), small_rate=0.1, large_rate=0.4, **QUICK),
    "lab": WithSAM(rhos=(0.0, 0.025, 0.05, 0.1), small_rate=0.01, large_rate=0.4, **LAB),
    "paper": WithSAM(small_rate=0.05, large_rate=0.05),
}

COMPARISON = sam_figure(7, PRESETS, "large")
EXPERIMENT = COMPARISON.experiment(__name__)
