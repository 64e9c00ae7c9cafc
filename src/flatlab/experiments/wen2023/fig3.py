"""Figure 3: memorising on the circle. As flat as can be, right on the data, zero elsewhere.

Source:   Wen, Li & Ma 2023, Figure 3 and Section 4.1 (the construction of Theorem 4.1).
Command:  flatlab run wen2023/fig3
Seconds:  12 with other work beside it (lab)
Claim:    "The network can output the correct label for each input data point in the training set …
          Further, the network will make the same prediction 0 for all the input data points outside
          the shady area and this volume can be made almost as large as the support of the training
          set by choosing ϵ sufficiently small."
Expected: training loss below 1e-12 and trace at the floor within 1e-6 for every ε; f = 0 outside
          the arcs |θ − θ_i| < arccos(1 − ε); the share of the circle where f ≠ 0 falls like √ε, an
          exponent of 0.5 within 0.01.

Nothing is trained: the networks of Theorem 4.1 are built in float64. What the paper leaves unsaid:
- How many points, and which labels: here twelve evenly spaced points on the unit circle with
  alternating labels 1 and −1. ε must be below their margin 1 − cos(2π/12) = 0.134.
- The largest ε is 0.1, and three quarters of the margin with more than twelve points.
- The share is counted on an even grid of the circle.
- The exponent is the least-squares slope of log share against log ε, over the values of ε at which
  the arcs do not overlap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field

from ...errors import UserError
from ...plots import Plot
from ...specs import spec
from ...theory import bias_floor
from ...theory.constructions import memorising
from ...theory.pictures import memorising_on_the_circle
from ...theory.sights import circle_points, circle_regions
from ...training.run import Run
from ..contract import Experiment, Findings, Fit, Planned, Verdict, too_small

LARGEST = 0.1  # ε, where points are far enough apart
LOSS = 1e-12
TRACE = 1e-6
EXPONENT = 0.01
STATEMENTS = {
    "interpolates": "the network outputs the right label on the training set (largest training "
    "loss)",
    "zero_outside": "f = 0 outside the arcs in which one neuron is active (largest |f| there)",
    "flattest": "the trace is the least of all interpolating networks, for every ε (largest "
    "relative distance)",
    "shrinks": "the share of the circle where f ≠ 0 falls to 0 like √ε (exponent)",
}


@spec
class Settings:
    """Sizes. Fields can be changed with --set."""

    n: Annotated[int, Field(ge=3, le=10_000)] = 12
    n_test: Annotated[int, Field(ge=10, le=10**8)] = 1_000_000
    epsilon: Annotated[float, Field(gt=0)] | None = None  # None: it follows from n
    halvings: Annotated[int, Field(ge=2, le=40)] = 10


PRESETS = {
    "quick": Settings(n=8, n_test=2_000, halvings=3),
    "lab": Settings(n_test=200_000),
    "paper": Settings(),
}


@dataclasses.dataclass(frozen=True)
class Caps:
    """The memorising network for one ε."""

    epsilon: float
    share: float  # of the circle where f ≠ 0
    arcs: float  # n arcs of angle 2 arccos(1 − ε), as a share of the circle; above 1 they overlap
    outside: float  # the largest |f| outside the arcs
    trace: float
    floor: float  # the smallest trace of all interpolating networks
    loss: float


def largest_epsilon(s: Settings) -> float:
    """Return the largest ε: the given one, or one that fits the distance of the points.

    >>> largest_epsilon(Settings(n=12)), round(largest_epsilon(Settings(n=20)), 6)
    (0.1, 0.036708)
    """
    margin = float(1 - np.cos(2 * np.pi / s.n))
    if s.epsilon is None:
        return min(LARGEST, 0.75 * margin)
    if s.epsilon >= margin:
        raise UserError(
            f"epsilon must be < {margin:.6g}, the margin of {s.n} points on the circle, got "
            f"{s.epsilon:g}: give a smaller one, or none to have it follow from n"
        )
    return s.epsilon


def plan(s: Settings) -> list[Planned]:
    """Return no runs."""
    return []


def networks(s: Settings) -> list[Caps]:
    """Return the memorising networks; ε halves from one to the next."""
    data = circle_points(s.n)
    theta = 2 * np.pi * (np.arange(s.n_test) + 0.5) / s.n_test
    ring = np.stack([np.cos(theta), np.sin(theta)], 1)
    gap = 2 * np.pi / s.n
    nearest = np.abs((theta + gap / 2) % gap - gap / 2)  # angle to the nearest training point
    found = []
    for epsilon in largest_epsilon(s) / 2.0 ** np.arange(s.halvings):
        made = memorising(data, epsilon=float(epsilon))
        f = made.outputs(ring)
        # 1e-6, because near 1 a float64 cosine cannot resolve smaller angles.
        outside = nearest > np.arccos(1 - epsilon) + 1e-6
        found.append(
            Caps(
                float(epsilon),
                float(np.mean(f != 0)),
                float(s.n * np.arccos(1 - epsilon) / np.pi),
                float(np.abs(f[outside]).max(initial=0.0)),
                made.trace,
                bias_floor(data),
                made.loss(),
            )
        )
    return found


def exponent(found: list[Caps]) -> float | None:
    """Return the slope of log share against log ε, where the arcs do not overlap.

    With fewer than two such ε it is None.

    >>> made = [Caps(e, e**0.5, e**0.5, 0, 1, 1, 0) for e in (4, 0.1, 0.01)]
    >>> round(exponent(made), 9)
    0.5
    """
    apart = [each for each in found if each.arcs < 1]
    if len(apart) < 2:
        return None
    x, y = np.log([each.epsilon for each in apart]), np.log([each.share for each in apart])
    return float(np.polyfit(x, y, 1)[0])


def analyse(s: Settings, preset: str, runs: Mapping[str, Run]) -> Findings:
    """Build the networks, and judge the paper's claims about them."""
    found = networks(s)
    slope = exponent(found)
    said = "exponent unknown: the arcs overlap" if slope is None else f"exponent {slope:.4f}"
    return Findings(
        judged(found, Fit(too_small(s, preset, PRESETS))),
        {"fig3": [dataclasses.asdict(each) for each in found]},
        (picture(s, found),),
        finding=f"ε from {found[0].epsilon:.3g} to {found[-1].epsilon:.3g}: f ≠ 0 on "
        f"{found[0].share:.1%} to {found[-1].share:.1%} of the circle, {said}; trace/floor "
        f"at most {max(each.trace / each.floor for each in found):.9f}, training loss at most "
        f"{max(each.loss for each in found):.1g}.",
    )


def picture(s: Settings, found: list[Caps]) -> Plot:
    """Return the picture of the arcs on which neurons fire, for three ε with arcs wide enough."""
    last = len(found) - 1
    shown = dict.fromkeys(found[k].epsilon for k in (0, min(2, (last + 1) // 2), min(5, last)))
    return memorising_on_the_circle("fig3", circle_regions(s.n, tuple(shown)))


def judged(found: list[Caps], decisive: Fit) -> tuple[Verdict, ...]:
    """Judge the networks; nothing is random, so there is no interval."""
    loss = max(each.loss for each in found)
    outside = max(each.outside for each in found)
    far = max(abs(each.trace / each.floor - 1) for each in found)
    slope = exponent(found)
    shrinks = None if slope is None else abs(slope - 0.5) < EXPONENT
    claims: dict[str, tuple[str, float | None, bool | None]] = {
        "interpolates": ("0", loss, loss < LOSS),
        "zero_outside": ("0", outside, outside == 0),
        "flattest": ("0", far, far < TRACE),
        "shrinks": ("0.5", slope, shrinks),
    }
    made = []
    for name, (paper, value, holds) in claims.items():
        if not decisive:
            holds, reason = None, decisive.why
        elif holds is None:
            reason = "the arcs overlap at all values of ε but one"
        else:
            reason = "computed, not sampled"
        claim, said = f"wen2023.fig3.{name}", STATEMENTS[name]
        made.append(Verdict(claim, said, paper, value, None, None, holds, reason))
    return tuple(made)


EXPERIMENT = Experiment(
    id="wen2023/fig3",
    source="Wen, Li & Ma 2023",
    figure="Figure 3",
    claim="on the circle, a network as flat as any interpolates and is 0 on all but a share of it "
    "that falls like √ε",
    presets=PRESETS,
    plan=plan,
    analyse=analyse,
    module=__name__,
    complete=lambda s: dataclasses.replace(s, epsilon=largest_epsilon(s)),
)
