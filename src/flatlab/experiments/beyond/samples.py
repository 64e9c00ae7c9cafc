"""How many examples does a flat minimum need? Test error and loss of 1-SAM against n/d.

Source:   this laboratory; the law is Theorem 3.1 of Wen, Li & Ma 2023.
Command:  flatlab run beyond/samples
Seconds:  113 of training on one core (lab, 5 seeds, two runs at a time)
Claim:    Theorem 3.1: without bias the population loss of every flattest minimiser is Õ(d/n), and
          so is its test error. With bias the paper has no such theorem (Theorem 4.1: some flattest
          minimisers memorise) and shows one n.
Expected: the slope of log test error, and of log test loss, against log(n/d) at or below −1 without
          bias. With bias: open.

What is chosen:
- xor, d = 20, and seven sizes from n = d to n = 10 d, evenly spaced in log n. 1-SAM follows row 1b
  of the paper's Table 2 without bias and both rows of 4b with bias; every n has the same number of
  epochs. In a seed, a smaller training set is the beginning of a larger one.
- The law is an upper bound: a slope below −1 agrees with it, and so does a slope of −0.9, because Õ
  hides logarithms. The slope is fitted by least squares in each seed and judged by its interval
  over seeds. The points need not lie on a line, so no interval within a seed is used.
- A test error of 0 has no logarithm. So errors below 3/n_test, the 95 % upper limit if no error was
  seen, are replaced by 3/n_test, and the fit ends with the first size after the last error above
  it; later sizes only show that the error stays there. This makes a slope too flat, not too steep.
- The test loss needs no such limit: all sizes are used. 1-SAM with a fixed radius keeps a training
  loss of about 1e-3, and the test loss does not fall below it: this too makes the slope too flat.
- The theorem is about flattest minimisers, while 1-SAM stays above the floor of the trace (see the
  picture). Its condition n = Ω(d log(d/δ)) leaves open from which n in this range it applies.
- "It takes more examples with bias" compares, in each seed, the n from which on the test error is
  below 0.1, in steps of the grid (a factor of 1.47); if there is none, it counts as twice the
  largest n.
- With bias the paper finds that the test error grows again in longer training (200,000 epochs and
  more).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from ...plots import Curve, Curves, Plot
from ...specs import spec
from ..arms import Arm, Comparison
from ..compared import Compared
from ..contract import ANYTHING, Fit, Verdict
from ..judging import NEAR, THRESHOLD, How, above, below
from ..showing import CURVES, final_values, said
from ..sizes import Count, Sizes, lengths, quick_and_lab
from ..wen2023._table2 import schedule as of_table2
from ._xor import xor_arm

NETWORKS = {"no_bias": "without bias", "bias": "with bias"}
LAW = -1.0  # the exponent of n/d in Theorem 3.1


@spec
class Settings(Sizes):
    """Sizes and lengths; n is the largest training set. Fields can be changed with --set."""

    seeds: Count = 5
    d: Annotated[int, Field(ge=2)] = 20
    n: Count = 200
    points: Annotated[int, Field(ge=2)] = 7
    no_bias_epochs: Count = 10_000
    bias_epochs: Count = 5_000
    bias_epochs_second: Count = 5_000


PRESETS = quick_and_lab(Settings, width=60, n=48, points=3, **lengths(no_bias=200, bias=(100, 100)))


def sizes(s: Settings) -> list[int]:
    """Return the training sets' sizes, from d to n.

    >>> sizes(Settings(d=20, n=200, points=4))
    [20, 43, 93, 200]
    """
    return [round(n) for n in np.geomspace(min(s.d, s.n), s.n, s.points).tolist()]


def key(name: str, n: int) -> str:
    """Return an arm's key."""
    return f"{name}-n{n}"


def arms(s: Settings) -> list[Arm]:
    """Return an arm for each network and size."""
    phases = {
        "no_bias": of_table2("1b", [s.no_bias_epochs]),
        "bias": of_table2("4b", [s.bias_epochs, s.bias_epochs_second]),
    }

    return [
        xor_arm(s, key(name, n), f"{where}, n = {n}", phases[name], name, name == "bias", n=n)
        for name, where in NETWORKS.items()
        for n in dict.fromkeys(sizes(s))
    ]


def slope(ratios: Sequence[float], values: Sequence[float], resolution: float = 0.0) -> float:
    """Fit the slope of log value against log n/d by least squares.

    Values below the resolution are replaced by it; the fit ends with the first size after the last
    value above it. The slope is NaN if fewer than two different sizes are left.

    >>> round(slope([1, 2, 4, 8], [0.4, 0.2, 0.1, 0.05]), 12)
    -1.0
    """
    from scipy import stats

    above_it = [i for i, value in enumerate(values) if value > resolution]
    end = above_it[-1] + 2 if above_it else 0
    if len(set(ratios[:end])) < 2:
        return float("nan")
    y = np.log(np.maximum(values[:end], resolution))
    return float(stats.linregress(np.log(ratios[:end]), y).slope)


def by_size(found: Compared, name: str, column: str) -> dict[int, list[float]]:
    """Return seed → a column's last value at each size, for the seeds that have all sizes."""
    return found.along([key(name, n) for n in sizes(found.settings)], column)


def slopes(found: Compared, name: str, column: str) -> list[float]:
    """Return the slope in each seed that has one."""
    s = found.settings
    resolution = 3 / s.n_test if column == "test_error" else 0.0
    ratios = [n / s.d for n in sizes(s)]
    fitted = [slope(ratios, v, resolution) for v in by_size(found, name, column).values()]
    return [value for value in fitted if np.isfinite(value)]


def needed(found: Compared, name: str) -> dict[int, float]:
    """Return seed → the n from which on the test error is below 0.1, or twice the largest n."""
    return {
        seed: first_below(sizes(found.settings), errors)
        for seed, errors in by_size(found, name, "test_error").items()
    }


def first_below(ns: Sequence[int], errors: Sequence[float]) -> float:
    """Return the first n from which on every error is below 0.1, or twice the last n.

    >>> first_below([10, 20, 40], [0.05, 0.3, 0.0]), first_below([10, 20], [0.0, 0.3])
    (40.0, 40.0)
    """
    bad = [i for i, error in enumerate(errors) if error >= THRESHOLD]
    first = bad[-1] + 1 if bad else 0
    return float(ns[first]) if first < len(ns) else 2.0 * ns[-1]


def fit(found: Compared, *names: str) -> Fit:
    """Return whether these networks can be judged."""
    return found.fit(*(key(name, n) for name in names for n in sizes(found.settings)))


def verdicts(found: Compared) -> list[Verdict]:
    """Judge the law by the slopes, and the price of a bias by the numbers of examples needed."""
    judged, law = [], (1 - NEAR) * LAW
    for name, where in NETWORKS.items():
        paper = "Õ(d/n), Theorem 3.1" if name == "no_bias" else "open"
        for short in ("error", "loss"):
            claim, values = found.claim(f"{name}_{short}"), slopes(found, name, f"test_{short}")
            decays = f"the test {short} {where} decays at least as fast as d/n"
            said = f"{decays} (slope, −1 within {NEAR:.0%})"
            absent = f"no seed has two sizes with a test {short} above its resolution"
            how: How = {"decisive": fit(found, name), "paper": paper, "absent": absent}
            judged.append(below(claim, said, values, law, **how))
    one, other = needed(found, "no_bias"), needed(found, "bias")
    ratios = [other[seed] / one[seed] for seed in one if seed in other]
    claim, decisive = found.claim("bias_needs_more"), fit(found, "no_bias", "bias")
    said = "a test error below 0.1 takes more examples with bias (n with bias over n without)"
    return [*judged, above(claim, said, ratios, 1, decisive=decisive, paper="open")]


def finding(found: Compared) -> str:
    """Say how fast errors fall, and from which n/d on each network generalises."""
    parts = []
    for name, where in NETWORKS.items():
        error, loss = slopes(found, name, "test_error"), slopes(found, name, "test_loss")
        n, s = list(needed(found, name).values()), found.settings
        ratio = np.mean(found.over_floor(key(name, s.n)))
        told = f"{_said(error)} for the test error and {_said(loss)} for the test loss"
        parts.append(
            f"{where} the slopes against n/d are {told}, and the test error is below 0.1 from "
            f"n/d = {np.mean(n) / s.d:.1f} on (mean over seeds); at n/d = {s.n / s.d:.1f} it is "
            f"{found.mean(key(name, s.n), 'test_error'):.4f} with the trace at {ratio:.2f} times "
            "its floor"
        )
    return "1-SAM on xor: " + ". And ".join(parts) + "."


def _said(values: list[float]) -> str:
    return said(values, ANYTHING, 2) if values else "not available"


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return the final values; and test error, test loss and trace over floor against n/d."""
    s = found.settings
    x = np.array(sizes(s)) / s.d

    def series(column: str, least: float) -> tuple[Curve, ...]:
        made = []
        for name, label in NETWORKS.items():
            values = list(by_size(found, name, column).values())
            if values:
                made.append(Curve(label, name, x, np.maximum(np.array(values), least)))
        return tuple(made)

    line = np.geomspace(x[0], x[-1], 50)
    law = Curve("d/n", "reference", line, (1 / line)[None])
    keys = {name: [key(name, n) for n in sizes(s)] for name in NETWORKS}
    ratios = tuple(
        Curve(label, name, x, np.array([found.over_floor(k) for k in keys[name]]).T)
        for name, label in NETWORKS.items()
        if len({len(found.runs[k]) for k in keys[name]}) == 1 and found.runs[keys[name][0]]
    )
    panel = functools.partial(Curves, xlabel="n/d", xscale="log")
    panels = (
        panel(
            "test error",
            f"test error, at least {3 / s.n_test:g}",
            (*series("test_error", 3 / s.n_test), law),
            yscale="log",
        ),
        panel("test loss", "test loss", (*series("test_loss", 0.0), law), yscale="log"),
        panel("sharpness", "trace over its floor", ratios),
    )
    title = "How many examples does a flat minimum need? 1-SAM on xor"
    return final_values(found), Plot("samples-law", title, (panels,), CURVES)


COMPARISON = Comparison(
    id="beyond/samples",
    source="beyond the paper",
    figure="sample complexity",
    title="1-SAM on xor, by size of the training set",
    claim="without bias the test error of 1-SAM's flat minima falls at least as fast as d/n",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
