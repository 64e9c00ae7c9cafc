"""With bias SAM misses the flattest minimum that generalises. Can it be steered there?

Source:   this laboratory; Wen, Li & Ma 2023 prove that such a minimum exists (Proposition 4.2) and
          show a run of 1-SAM that misses it (Figure 4).
Command:  flatlab run beyond/rescue
Seconds:  940 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    open: the paper offers no remedy.
Expected: plain 1-SAM with bias fails. A remedy succeeds if the test error is below 0.1 and the
          trace is within 10 % of the floor 4√(d+1) = 22.27.

What is chosen:
- xor at the paper's sizes; both rows of Figure 4b, shortened to 20,000 epochs in all.
- 1-SAM drifts on the floor for a long time: in `table1`'s run at the paper's lengths (seed 0) the
  test error is 0.15 at epoch 8,000 and 0.34 at the end. So the four remedies that succeeded in
  every seed of 20,000 epochs are also run for the 80,000 and 160,000 epochs of `table1` in `lab`,
  to see whether they last.
- Every remedy is one change to these runs, in two strengths fixed beforehand: weight decay on the
  bias alone; a smaller or zero learning rate of the bias, which still takes part in the ascent and
  in the trace; fresh Gaussian noise on the inputs at every step; radii a half and a fifth of the
  paper's; weight decay on everything.
- Early stopping takes the logged epoch of a plain run with the smallest test error. The test set
  also serves as the validation set, so the error at the chosen epoch is a little too small, which
  favours the remedy. `beyond.rescue.any_epoch` asks whether any logged epoch of a plain run
  succeeds; if not, no validation set could have helped.
- One number decides: the larger of (test error)/0.1 and |trace/floor − 1|/0.1, below 1 for a
  success. The trace is the Gauss–Newton trace, as everywhere.
- The larger weight decay on everything is run in float64: in float32 weights would decay to
  subnormal numbers, which are slow to compute with.
- The network without bias is shown for comparison, with the floor of the network with bias. It is
  that network with b = 0, except that its trace lacks the bias's part.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ...errors import listed
from ...plots import Plot
from ...specs import spec
from ...theory import bias_floor
from ...training.run import Run
from ...training.schedule import Phase
from ..arms import AnyArm, Arm, Comparison, Derived
from ..compared import Compared, cut
from ..contract import POSITIVE, Verdict
from ..judging import NEAR, THRESHOLD, below
from ..showing import NAMES, final_values, histories
from ..sizes import Count, Sizes, quick_and_lab
from ..wen2023._table2 import schedule as of_table2
from ._xor import xor_arm

CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("1-SAM with bias", {}),
    "bias_decay_small": ("weight decay 0.01 on the bias", {"bias_weight_decay": 0.01}),
    "bias_decay_large": ("weight decay 0.1 on the bias", {"bias_weight_decay": 0.1}),
    "bias_lr_small": ("bias learns ten times slower", {"bias_lr": 0.001}),
    "bias_lr_zero": ("bias does not learn", {"bias_lr": 0.0}),
    "input_noise_small": ("input noise 0.1", {"input_noise": 0.1}),
    "input_noise_large": ("input noise 0.3", {"input_noise": 0.3}),
    "radius_half": ("half the radius", {"rho": 0.5}),
    "radius_fifth": ("a fifth of the radius", {"rho": 0.2}),
    "decay_small": ("weight decay 0.001 on all", {"weight_decay": 0.001}),
    "decay_large": ("weight decay 0.01 on all", {"weight_decay": 0.01}),
}
LASTING = ("bias_decay_large", "bias_lr_small", "decay_small", "decay_large")
REMEDIES = [key for key in CHANGES if key != "plain"] + ["early"]
OTHER = "no_bias"


@spec
class Settings(Sizes):
    """Sizes and lengths. Fields can be changed with --set."""

    seeds: Count = 3
    n_test: Count = 5_000
    epochs: Count = 10_000
    epochs_second: Count = 10_000
    long_epochs: Count = 80_000
    long_epochs_second: Count = 160_000


PRESETS = quick_and_lab(
    Settings, width=60, d=10, epochs=60, epochs_second=40, long_epochs=80, long_epochs_second=60
)


def schedule(key: str, s: Settings, long: bool = False) -> list[Phase]:
    """Return both phases with a remedy's change; a remedy's radius is a factor on the paper's."""
    first, second = (s.long_epochs, s.long_epochs_second) if long else (s.epochs, s.epochs_second)
    phases = of_table2("4b", [first, second])
    changes = dict(CHANGES.get(key, ("", {}))[1])
    factor = changes.pop("rho", 1.0)
    return [p.changed(rho=round(factor * (s.rho or p.rho), 6), **changes) for p in phases]


def arms(s: Settings) -> list[AnyArm]:
    """Return plain 1-SAM, remedies, the network without bias, long runs, and early stopping."""

    def arm(key: str, label: str, bias: bool = True, long: bool = False) -> Arm:
        role = "sam" if key in ("plain", OTHER) else key.rpartition("_")[0]
        phases, dtype = schedule(key, s, long), "float64" if key == "decay_large" else None
        name = lasting(key) if long else key
        own = ("rho",) if key.startswith("radius") else ()
        made = xor_arm(s, name, label, phases, role, bias, dtype=dtype, own=own)
        return dataclasses.replace(made, floor=bias_floor)

    with_bias = [arm(key, label) for key, (label, _) in CHANGES.items()]
    total = s.long_epochs + s.long_epochs_second
    long = [arm(key, f"{label_of(key)}, {total:,} epochs", long=True) for key in LASTING]
    return [*with_bias, arm(OTHER, "1-SAM without bias", bias=False), *long, EARLY]


def lasting(key: str) -> str:
    """Return the key of a remedy's long runs."""
    return f"{key}_long"


def stopped(run: Run) -> Run:
    """Return a run cut at the logged epoch with the smallest test error, the last one in a tie.

    Epoch 0, before any training, does not count.
    """
    errors = run.columns["test_error"][1:]
    last = len(errors) - int(np.argmin(errors[::-1])) if len(errors) else 0
    return cut(run, last)


def miss(test_error: float, ratio: float) -> float:
    """Return the larger of both distances, each divided by its limit; below 1 is a success.

    >>> round(miss(0.05, 1.02), 12), round(miss(0.0, 1.2), 12)
    (0.5, 2.0)
    """
    return max(test_error / THRESHOLD, abs(ratio - 1) / NEAR)


def misses(found: Compared, key: str) -> list[float]:
    """Return how far each run of an arm is from success."""
    pairs = zip(found.final(key, "test_error"), found.over_floor(key), strict=True)
    return [miss(error, ratio) for error, ratio in pairs]


def best_misses(found: Compared, key: str) -> list[float]:
    """Return the smallest miss of each run of an arm over its logged epochs."""
    best = []
    for seed, run in found.runs[key].items():
        ratios = run.columns["trace_ggn"] / found.floors[key][seed]
        rows = zip(run.columns["test_error"].tolist(), ratios.tolist(), strict=True)
        best.append(min(miss(error, ratio) for error, ratio in rows))
    return best


def label_of(key: str) -> str:
    """Return an arm's label."""
    return EARLY.label if key == EARLY.key else CHANGES[key][0]


def verdicts(found: Compared) -> list[Verdict]:
    """Judge plain 1-SAM, every remedy, and whether any epoch of the plain runs succeeds."""
    s = found.settings
    total = s.long_epochs + s.long_epochs_second
    what = f"test error below {THRESHOLD:g} and trace within {NEAR:.0%} of the floor (larger miss)"

    def judged(key: str, arm: str, statement: str, values: list[float]) -> Verdict:
        claim, fit = found.claim(key), found.fit(arm)
        paper = "no (Figure 4)" if key == "plain" else "open"
        return below(claim, statement, values, 1, decisive=fit, within=POSITIVE, paper=paper)

    def ends(key: str, label: str) -> Verdict:
        return judged(key, key, f"{label}: {what}", misses(found, key))

    some = "plain 1-SAM with bias has some logged epoch with both (smallest of the larger misses)"
    return [
        *(ends(key, label_of(key)) for key in ["plain", *REMEDIES]),
        judged("any_epoch", "plain", some, best_misses(found, "plain")),
        *(ends(lasting(key), f"{label_of(key)}, after {total:,} epochs") for key in LASTING),
    ]


def finding(found: Compared) -> str:
    """Say which remedies succeed in every seed, which in no seed, and how plain 1-SAM ends."""
    everywhere = [label_of(k) for k in REMEDIES if all(m < 1 for m in misses(found, k))]
    nowhere = [label_of(k) for k in REMEDIES if all(m >= 1 for m in misses(found, k))]
    rest = [label_of(k) for k in REMEDIES if label_of(k) not in everywhere + nowhere]
    last = [label_of(k) for k in LASTING if all(m < 1 for m in misses(found, lasting(k)))]
    errors = [f"{label_of(k)} {found.mean(lasting(k), 'test_error'):.3f}" for k in LASTING]
    total = found.settings.long_epochs + found.settings.long_epochs_second
    ratio = np.mean(found.over_floor("plain"))
    somewhere = f"; in some seeds {listed(rest)}" if rest else ""
    return (
        f"Plain 1-SAM with bias ends with test error {found.mean('plain', 'test_error'):.3f} at "
        f"{ratio:.2f} times the floor. Remedies that reach both, generalisation and the floor, in "
        f"every seed: {listed(everywhere)}{somewhere}. In no seed: {listed(nowhere)}. After "
        f"{total:,} epochs still in every seed: {listed(last)} (mean test errors: "
        f"{', '.join(errors)})."
    )


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return the final values, and the histories of one strength of each remedy."""
    shown = ("plain", "bias_decay_large", "bias_lr_zero", "input_noise_large", "decay_large")
    columns = {column: NAMES[column] for column in ("test_error", "trace_ggn")}
    title = "Remedies on the way down"
    return final_values(found), histories("rescue-histories", title, found, shown, columns)


EARLY = Derived("early", "early stopping", "plain", stopped, "gd")
COMPARISON = Comparison(
    id="beyond/rescue",
    source="beyond the paper",
    figure="remedies",
    title="Can 1-SAM with bias be steered to a flattest minimum that generalises?",
    claim="open: whether some change steers 1-SAM with bias to a generalising flattest minimum",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
