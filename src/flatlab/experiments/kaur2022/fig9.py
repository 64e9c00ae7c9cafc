"""Figure 9: dropout lowers λ_max and does not always generalise, large batch size.

Source:   Kaur, Cohen & Lipton 2022, Figure 9 and Section 3.4.
Command:  flatlab run kaur2022/fig9
Seconds:  not measured yet (lab); 4 of processor time (quick, 2 seeds)
Claim:    "We use the same setup as in Figure 8 with a larger batch size. Our observations are
          consistent with those in Figure 8."
Expected: rank correlation of p with λ_max below 0; accuracy at p = 0.2 above that at p = 0, and at
          the largest p below that at p = 0.2, each by the differences of the same seeds.

The preset `lab` decides nothing yet: its scale waits for a pilot and a power calculation.

What the paper leaves unsaid is done as in kaur2022/fig8, except:
- The batch size of `lab` is 500.
"""

from __future__ import annotations

from ._dropout import LAB, QUICK, WithDropout, dropout_figure

PRESETS = {
    "quick": WithDropout(batch=50, **{**QUICK, "rates": (0.2, 0.4)}),
    "lab": WithDropout(batch=500, epochs=2000, **LAB),
    "paper": WithDropout(batch=5000),
}

COMPARISON = dropout_figure(9, PRESETS, "large")
EXPERIMENT = COMPARISON.experiment(__name__)
