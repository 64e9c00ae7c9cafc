"""Which algorithms reach the floor of the trace, and which generalise? Twelve algorithms compared.

Source:   this laboratory; Section 2 of Wen, Li & Ma 2023 names 1-SAM and label-noise SGD as
          minimisers of the trace, and tries 1-SAM alone.
Command:  flatlab run beyond/algorithms
Seconds:  161 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    1-SAM and label-noise SGD reach the floor of the trace with bias; the paper says nothing
          about the others, nor about which algorithms generalise.
Expected: 1-SAM at its floor with bias and not generalising there; everything else is open.

What is chosen:
- xor at the paper's sizes. Every arm has the same number of gradients of single examples, 2 E n: E
  epochs if a step has two gradients (SAM), 2 E if it has one (SGD). m-SAM takes the gradient and
  the ascent over m examples, so it makes n/m steps an epoch with the same learning rate: few for
  large m. If an arm's trace still falls by a tenth in the second half of its gradients, none of its
  claims fails: training was too short. Learning rate 0.01 and radius 0.05 are from the paper's rows
  1b and 4b, weight decay 0.05 from 1a and 4a.
- Label noise ±0.5 is ρ/√lr. To leading order its regulariser (lr σ²/2) Tr ∇²L then equals the
  regulariser of 1-SAM, (ρ²/2) Tr ∇²L. Noise keeps the training loss at about 0.03; the trace is
  read there.
- Large learning rates, and un-normalised SAM with a radius large enough to matter, diverge from
  this start (‖∇f‖² is 83 on average and SGD needs lr‖∇f‖² < 1). They are warmed up in 24 phases:
  the learning rate grows from 0.01 by a tenth each to 0.09, where the floor is the edge of
  stability; the radius starts at 0 and 0.001 and grows by three tenths each to 0.32. Learning rates
  that grow by factors of 2, √2 and 1.2 diverged. The last finite state of a diverged arm is shown
  and not judged.
- SGD with weight decay is run in float64: in float32 the decaying weights become subnormal numbers,
  which are slow to compute with.
- Without bias the floor 4√d is reached only on kinks, so only the traces with bias are judged.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ...errors import listed
from ...plots import Plot
from ...specs import spec
from ...training.schedule import Phase
from ..arms import Arm, Comparison
from ..compared import Compared, at, falling
from ..contract import Verdict
from ..judging import NEAR, THRESHOLD, generalises, reaches_floor
from ..showing import NAMES, final_values, histories
from ..sizes import Count, Sizes, quick_and_lab
from ._xor import xor_arm

LR, RHO, DECAY = 0.01, 0.05, 0.05
NOISE = RHO / LR**0.5
WARM_UP = 24  # phases of growing learning rate or radius
BATCHES = (2, 5, 10, 25)
NETWORKS = {"bias": "bias", "no_bias": "no bias"}
LABELS = {
    "sam1": "1-SAM",
    **{f"sam{m}": f"{m}-SAM" for m in BATCHES},
    "sam_full": "n-SAM",
    "usam": "un-normalised SAM",
    "label_noise": "label-noise SGD",
    "large_lr": "large-lr SGD",
    "sgd": "SGD",
    "sgd_decay": "SGD + weight decay",
    "gd_decay": "GD + weight decay",
}
# Hyper-parameters that make an algorithm what it is; a request does not change them.
OWN = {
    **dict.fromkeys((f"sam{m}" for m in (1, *BATCHES)), ("batch_size",)),
    "usam": ("rho",),
    "large_lr": ("lr",),
}
FLOOR = "the floor of the trace, approximately (trace/floor)"
PREDICTED = ("sam1", "label_noise")  # these prefer small traces according to Section 2


@spec
class Settings(Sizes):
    """Sizes and lengths; `epochs` is for SAM. Fields can be changed with --set."""

    seeds: Count = 3
    n_test: Count = 5_000
    epochs: Count = 6_000


PRESETS = quick_and_lab(Settings, width=60, d=10, epochs=60)


def schedule(key: str, s: Settings) -> tuple[Phase, ...]:
    """Return an arm's phases."""
    sam, sgd = s.epochs, 2 * s.epochs
    if key.startswith("sam"):
        m = None if key == "sam_full" else min(int(key.removeprefix("sam")), s.n)
        return (Phase("sam", lr=LR, rho=RHO, batch_size=m, epochs=sam),)
    if key == "usam":
        radii = [0.0, *(round(0.001 * 1.3**k, 5) for k in range(WARM_UP - 1))]
        return tuple(
            Phase("usam", lr=LR, rho=rho, batch_size=1, epochs=e)
            for rho, e in zip(radii, shares(sam), strict=True)
        )
    if key == "large_lr":
        rates = [round(LR * 1.1**k, 5) for k in range(WARM_UP)]
        return tuple(
            Phase("sgd", lr=lr, batch_size=1, epochs=e)
            for lr, e in zip(rates, shares(sgd), strict=True)
        )
    steady = {
        "label_noise": Phase("label_noise", lr=LR, noise=NOISE, batch_size=1, epochs=sgd),
        "sgd": Phase("sgd", lr=LR, batch_size=1, epochs=sgd),
        "sgd_decay": Phase("sgd", lr=LR, weight_decay=DECAY, batch_size=1, epochs=sgd),
        "gd_decay": Phase("sgd", lr=LR, weight_decay=DECAY, epochs=sgd),
    }
    return (steady[key],)


def shares(epochs: int) -> list[int]:
    """Split epochs evenly among the phases of a warm-up; the last phase takes the remainder.

    >>> shares(100)[0], shares(100)[-1], sum(shares(100))
    (4, 8, 100)
    """
    part = max(1, epochs // WARM_UP)
    return [*[part] * (WARM_UP - 1), max(1, epochs - part * (WARM_UP - 1))]


def arms(s: Settings) -> list[Arm]:
    """Return every algorithm with bias, then every one without."""

    def arm(name: str, key: str) -> Arm:
        label, dtype = f"{LABELS[key]}, {NETWORKS[name]}", "float64" if key == "sgd_decay" else None
        phases, bias, own = schedule(key, s), name == "bias", OWN.get(key, ())
        return xor_arm(s, f"{name}-{key}", label, phases, name, bias, dtype=dtype, own=own)

    return [arm(name, key) for name in NETWORKS for key in LABELS]


def verdicts(found: Compared) -> list[Verdict]:
    """Judge for each algorithm: is its trace at the floor with bias, and does it generalise?"""
    judged = []
    for key, label in LABELS.items():
        arm, paper = f"bias-{key}", "1" if key in PREDICTED else "open"
        who = f"{label} with bias"
        at_floor = reaches_floor(found, arm, f"{key}.floor", who, floor=FLOOR, paper=paper)
        judged.append(_unless_moving(found, at_floor, arm))
        for name, words in (("bias", "with bias"), ("no_bias", "without bias")):
            arm, claim, paper = f"{name}-{key}", f"{key}.{name}_generalises", said_of(key, name)
            verdict = generalises(found, arm, claim, f"{label} {words}", paper=paper)
            judged.append(_unless_moving(found, verdict, arm))
    return judged


def moving(found: Compared, key: str) -> bool:
    """Return whether an arm's trace still falls."""
    return falling(found.runs[key].values(), "trace_ggn")


def _unless_moving(found: Compared, verdict: Verdict, key: str) -> Verdict:
    if verdict.holds is not False or not moving(found, key):
        return verdict
    half = found.each(key, lambda run: at(run, run.config.epochs // 2, "trace_ggn"))
    reason = (
        "it is unfinished when its gradients are used up: the trace went from "
        f"{np.mean(half):.1f} to {found.mean(key, 'trace_ggn'):.1f} in their second half"
    )
    return dataclasses.replace(verdict, holds=None, reason=reason)


def said_of(key: str, name: str) -> str:
    """Return the paper's answer on an algorithm's generalisation (its Figures 1 and 4)."""
    if key == "sam1":
        return "no (Figure 4)" if name == "bias" else "yes (Figure 1)"
    if key == "gd_decay":
        return "better than 1-SAM (Figure 4)" if name == "bias" else "yes (Figure 1)"
    return "open"


def ended(found: Compared, name: str, key: str) -> bool:
    """Return whether no run of an arm diverged."""
    return all(run.status == "done" for run in found.runs[f"{name}-{key}"].values())


def _generalise(found: Compared, name: str) -> list[str]:
    return [
        label
        for key, label in LABELS.items()
        if found.mean(f"{name}-{key}", "test_error") < THRESHOLD and ended(found, name, key)
    ]


def _flat(found: Compared) -> list[str]:
    labels = []
    for key, label in LABELS.items():
        ratios = found.over_floor(f"bias-{key}")
        if abs(sum(ratios) / len(ratios) - 1) < NEAR and ended(found, "bias", key):
            labels.append(label)
    return labels


def finding(found: Compared) -> str:
    """Say which algorithms reach the floor, which generalise, and which do both, on average."""
    flat, with_bias = _flat(found), _generalise(found, "bias")
    both = [label for label in flat if label in with_bias]
    every = {
        f"{LABELS[key]} ({NETWORKS[name]})": (name, key) for name in NETWORKS for key in LABELS
    }
    lost = [label for label, arm in every.items() if not ended(found, *arm)]
    on_their_way = [
        label for label, arm in every.items() if ended(found, *arm) and moving(found, "-".join(arm))
    ]
    left = f" Their traces still fall: {listed(on_their_way)}." if on_their_way else ""
    diverged = f" Diverged in some seed and left out: {listed(lost)}." if lost else ""
    return (
        f"By means over seeds, with bias: within {NEAR:.0%} of the floor of the trace "
        f"{listed(flat)}; "
        f"generalising (test error below {THRESHOLD:g}) {listed(with_bias)}; both {listed(both)}. "
        f"Without bias: generalising {listed(_generalise(found, 'no_bias'))}.{left}{diverged}"
    )


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return the final values, and the histories of the most telling algorithms with bias."""
    shown = ("sam1", "label_noise", "usam", "large_lr", "sam5", "gd_decay")
    columns = {column: NAMES[column] for column in ("train_loss", "test_error", "trace_ggn")}
    title = "With bias: equal gradients, SAM has half the epochs"
    keys = [key for key in found.arms if key in {f"bias-{name}" for name in shown}]
    return final_values(found), histories("algorithms-bias", title, found, keys, columns)


COMPARISON = Comparison(
    id="beyond/algorithms",
    source="beyond the paper",
    figure="algorithms",
    title="Who reaches the floor, and who generalises? Equal gradient evaluations",
    claim="1-SAM and label-noise SGD reach the floor of the trace with bias; which algorithms "
    "generalise is open",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
