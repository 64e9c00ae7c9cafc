"""How often does 1-SAM reach the global minimum of sharpness? Fifty seeds where it is known.

Source:   this laboratory; Section 6 of Wen, Li & Ma 2023 says that 1-SAM approximately reaches the
          lower bound, from one run each.
Command:  flatlab run beyond/global
Seconds:  279 of training on one core (lab, 50 seeds, two runs at a time)
Claim:    open: in what share of seeds 1-SAM ends within 10 %, and within 2 %, of the floor.
Expected: more than four seeds of five, for each network.

What is chosen:
- xor with d = 20, n = 50 and width 200 (three layers: 100) instead of the paper's 30, 100 and 500,
  to afford fifty seeds. The floors 4√(d+1) = 18.33 with bias, 2 with simplified LayerNorm and
  6(d+1)^(1/3) = 16.55 with three layers are known, and attained, at every size. Here too 1-SAM with
  bias does not generalise; test errors are in the table and not judged.
- Learning rates and radii are from Table 2: 4b (0.05, then 0.1), 6b (0.1, 0.5, 1, the first layer
  within norm 10) and 11b (0.05). A last phase of radius 0.02 follows 4b and 11b: at radius 0.1 the
  outputs stay about 3 % below the labels, which brings the trace below the floor, and a 2 %
  tolerance would judge the radius and not the minimum. Epochs are shorter.
- The Gauss–Newton trace is divided by the floor of the seed's data.
- The interval of a share is exact (Clopper and Pearson). A run away from the floor may be at a
  local minimum of sharpness, or unfinished: three layers with half these epochs were within 2 % in
  4 of 50 seeds. And Sim-LN's radius of 1 moves the trace up and down by a few per cent to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...data import Dataset
from ...models import Architecture, Deep, TwoLayer
from ...specs import spec
from ...theory import bias_floor, layer_norm_floor
from ...training.schedule import Phase
from ..arms import Arm, Comparison
from ..compared import Compared
from ..contract import Verdict
from ..judging import mostly
from ..sizes import Count, Sizes, lengths, quick_and_lab
from ..wen2023._table2 import schedule as of_table2
from ._xor import on_xor

SHARE = 0.8  # share of the seeds that counts as "mostly"
TOLERANCES = {"10": 0.1, "2": 0.02}
NETWORKS = {
    "bias": "two layers with bias",
    "sim_ln": "simplified LayerNorm",
    "three": "three layers with bias",
}
RADIUS, LIMIT, EPSILON = 0.02, 10.0, 1e-3  # last radius; Figure 6b's norm; ε of LayerNorm


@spec
class Settings(Sizes):
    """Sizes and lengths; epochs are per phase. Fields can be changed with --set."""

    seeds: Count = 50
    width: Count = 200
    width_three: Count = 100
    d: Count = 20
    n: Count = 50
    n_test: Count = 1_000
    bias_epochs: Count = 4_000
    sim_ln_epochs: Count = 2_000
    three_epochs: Count = 8_000


SHORT = lengths(bias=50, sim_ln=30, three=30)
PRESETS = quick_and_lab(Settings, width=40, width_three=20, d=6, n=20, n_test=200, **SHORT)


def arms(s: Settings) -> list[Arm]:
    """Return the three networks whose floor is known and attained."""

    def arm(
        key: str, arch: Architecture, phases: Sequence[Phase], floor: Callable[[Dataset], float]
    ) -> Arm:
        return Arm(key, NETWORKS[key], on_xor(s, arch, phases), floor)

    def with_last(phases: Sequence[Phase]) -> list[Phase]:
        return [*phases, phases[0].changed(rho=RADIUS)]

    bias = with_last(of_table2("4b", [s.bias_epochs] * 2))
    three = with_last(of_table2("11b", [s.three_epochs]))
    sim_ln = of_table2("6b", [s.sim_ln_epochs] * 3, max_first_layer_norm=LIMIT)
    layer_norm = TwoLayer(width=s.width, norm="layer", ln_epsilon=EPSILON)
    return [
        arm("bias", TwoLayer(width=s.width), bias, bias_floor),
        arm("sim_ln", layer_norm, sim_ln, lambda data: layer_norm_floor(data, EPSILON)),
        arm("three", Deep(depth=3, width=s.width_three), three, lambda data: bias_floor(data, 3)),
    ]


def reached(found: Compared, key: str, tolerance: float) -> list[bool]:
    """Return, for each seed, whether the trace ends within a tolerance of the floor."""
    return [abs(ratio - 1) <= tolerance for ratio in found.over_floor(key)]


def verdicts(found: Compared) -> list[Verdict]:
    """Judge the share of seeds within 10 % and within 2 % of the floor."""
    judged = []
    for key, label in NETWORKS.items():
        for percent, tolerance in TOLERANCES.items():
            claim, hits = found.claim(f"{key}_within_{percent}"), reached(found, key, tolerance)
            where = f"within {percent} % of the floor in more than {SHARE:.0%} of seeds"
            said, fit = f"1-SAM, {label}: {where}", found.fit(key)
            paper = '"approximately", one run (Section 6)' if percent == "10" else "open"
            judged.append(mostly(claim, said, hits, SHARE, decisive=fit, paper=paper))
    return judged


def finding(found: Compared) -> str:
    """Say in how many seeds each network comes within 10 % and within 2 % of the floor."""
    parts = []
    for key, label in NETWORKS.items():
        ratios = found.over_floor(key)
        counts = [sum(reached(found, key, tolerance)) for tolerance in TOLERANCES.values()]
        parts.append(
            f"{label} within 10 % in {counts[0]} and within 2 % in {counts[1]} of {len(ratios)} "
            f"seeds (trace over floor {min(ratios):.3f} to {max(ratios):.3f}, median "
            f"{np.median(ratios):.3f})"
        )
    return "1-SAM at the floor of the trace: " + "; ".join(parts) + "."


COMPARISON = Comparison(
    id="beyond/global",
    source="beyond the paper",
    figure="global minima",
    title="How often does 1-SAM reach the global minimum of sharpness?",
    claim="open: in what share of seeds 1-SAM reaches the lower bound of the trace",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
)
EXPERIMENT = COMPARISON.experiment(__name__)
