"""Gaussian mixture: does 1-SAM with bias memorise continuous inputs, too?

Source:   open question; Wen, Li & Ma 2023 have xor on the corners of the cube.
Command:  flatlab run beyond/gaussian-mixture
Seconds:  125 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    open. On the cube 1-SAM with bias ends in flat minima that generalise worse than the
          minima of gradient descent with weight decay, and without bias it generalises.
Expected: as on the cube: with bias 1-SAM's test error is above gradient descent's and above its own
          without bias.

What is chosen here:
- Four Gaussian clusters N(c, I) around c = separation·(±1, ±1, 0, …, 0), y the product of the two
  signs, d = 30, n = 100 and n = 400. Separations 1.5, 2 and 3, where the best classifier
  sign(x1·x2) errs with probability 2p(1 − p), p = Φ(−separation): 0.125, 0.044 and 0.0027.
- Two-layer ReLU networks of width 500. 1-SAM at learning rate 0.003 (the paper's 0.01 for the cube
  diverges, because inputs are longer) and radius 0.05, 6,000 epochs at n = 100 and 1,500 at
  n = 400; full-batch gradient descent at learning rate 0.01 with weight decay 0.05, 5,000 and 3,000
  epochs.
- Labels belong to clusters, so a few training labels disagree with sign(x1·x2), and every
  interpolating network memorises them. Gradient descent does not: weight decay keeps its training
  loss above zero.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field
from scipy import special

from ...models import TwoLayer
from ...plots import Curve, Curves, Plot, Reference
from ...specs import spec
from ...training.schedule import Phase
from ..arms import Arm, Comparison, trained_on
from ..compared import Compared
from ..contract import Verdict
from ..judging import above
from ..showing import CURVES, against, said
from ..sizes import Count, Positive, Seeds, Sizes

BIASES = {"no_bias": "no bias", "bias": "bias"}
ALGORITHMS = {"sam": "1-SAM", "gd": "GD + weight decay"}
SIZES = ("small", "large")


@spec
class Settings(Sizes):
    """Sizes and lengths. Fields can be changed with --set."""

    seeds: Seeds = 3
    n_large: Count = 400
    separations: Annotated[tuple[Positive, ...], Field(min_length=1)] = (
        1.5,
        2.0,
        3.0,
    )
    sam_lr: Positive = 0.003
    sam_epochs: Count = 6_000
    sam_epochs_large: Count = 1_500
    gd_epochs: Count = 5_000
    gd_epochs_large: Count = 3_000


PRESETS = {
    "quick": Settings(
        seeds=2,
        width=20,
        d=8,
        n=30,
        n_large=60,
        n_test=500,
        separations=(2.0,),
        sam_epochs=50,
        sam_epochs_large=30,
        gd_epochs=100,
        gd_epochs_large=50,
    ),
    "lab": Settings(),
}


def bayes_error(separation: float) -> float:
    """Return the error of sign(x1·x2), the best classifier: 2p(1 − p), p = Φ(−separation).

    >>> f"{bayes_error(2.0):.4f}"
    '0.0445'
    """
    p = float(special.ndtr(-separation))
    return 2 * p * (1 - p)


def key(separation: float, size: str, bias: str, algorithm: str) -> str:
    """Return an arm's key."""
    return f"s{separation:g}_{size}_{bias}_{algorithm}".replace(".", "p")


def examples(size: str, s: Settings) -> int:
    """Return the number of training examples."""
    return s.n if size == "small" else s.n_large


def arms(s: Settings) -> list[Arm]:
    """Return every separation, number of examples, network and algorithm."""

    def phase(size: str, algorithm: str) -> Phase:
        small = size == "small"
        if algorithm == "gd":
            epochs = s.gd_epochs if small else s.gd_epochs_large
            return Phase("sgd", lr=0.01, weight_decay=0.05, epochs=epochs)
        epochs = s.sam_epochs if small else s.sam_epochs_large
        return Phase("sam", lr=s.sam_lr, rho=0.05, batch_size=1, epochs=epochs)

    def arm(separation: float, size: str, bias: str, algorithm: str) -> Arm:
        n = examples(size, s)
        arch = TwoLayer(width=s.width, bias=bias == "bias")
        phases, apart = [phase(size, algorithm)], {"separation": separation}
        config = trained_on("gaussian_mixture", s, arch, phases, n=n, arguments=apart)
        label = f"separation {separation:g}, n = {n}, {BIASES[bias]}, {ALGORITHMS[algorithm]}"
        return Arm(key(separation, size, bias, algorithm), label, config, role=algorithm)

    return [
        arm(separation, size, bias, algorithm)
        for size in SIZES
        for separation in s.separations
        for bias in BIASES
        for algorithm in ALGORITHMS
    ]


def _larger(found: Compared, claim: str, statement: str, paper: str, one: str, two: str) -> Verdict:
    return above(
        f"beyond.gaussian_mixture.{claim}",
        f"{statement} (difference of test errors)",
        [b - a for a, b in found.pairs(one, two, "test_error")],
        0,
        decisive=found.fit(one, two),
        paper=paper,
    )


def verdicts(found: Compared) -> list[Verdict]:
    """Judge 1-SAM against gradient descent, and bias against none."""
    made = []
    for size in SIZES:
        for separation in found.settings.separations:
            where = f"at separation {separation:g}, n = {examples(size, found.settings)}"
            end = f"s{separation:g}_{size}".replace(".", "p")
            keys = {
                (bias, algorithm): key(separation, size, bias, algorithm)
                for bias in BIASES
                for algorithm in ALGORITHMS
            }
            for bias, words in BIASES.items():
                made.append(
                    _larger(
                        found,
                        f"memorises_{bias}_{end}",
                        f"{where}, {words}, 1-SAM generalises worse than gradient descent",
                        "> 0 on the cube" if bias == "bias" else "open",
                        keys[bias, "gd"],
                        keys[bias, "sam"],
                    )
                )
            made.append(
                _larger(
                    found,
                    f"bias_hurts_{end}",
                    f"{where} the bias makes 1-SAM's test error larger",
                    "> 0 on the cube",
                    keys["no_bias", "sam"],
                    keys["bias", "sam"],
                )
            )
    return made


def finding(found: Compared) -> str:
    """Report the test errors and the best possible one."""
    lines = []
    for size in SIZES:
        for separation in found.settings.separations:

            def error(
                bias: str, algorithm: str, separation: float = separation, size: str = size
            ) -> str:
                arm = key(separation, size, bias, algorithm)
                return said(found.interval(arm, "test_error"), found.mean(arm, "test_error"))

            parts = [
                f"{name} {error('no_bias', algorithm)} without bias and {error('bias', algorithm)} "
                "with it"
                for algorithm, name in ALGORITHMS.items()
            ]
            lines.append(
                f"Separation {separation:g}, n = {examples(size, found.settings)}: "
                f"{'; '.join(parts)}; Bayes error {bayes_error(separation):.4f}."
            )
    return " ".join(lines)


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return test error against the separation, a panel for each number of examples."""
    x = found.settings.separations
    best = Curve("Bayes error", "reference", np.array(x), np.array([[bayes_error(t) for t in x]]))
    panels = []
    for size in SIZES:
        lines = {
            f"{name}, {words}": [key(t, size, bias, algorithm) for t in x]
            for algorithm, name in ALGORITHMS.items()
            for bias, words in BIASES.items()
        }
        panels.append(
            Curves(
                f"n = {examples(size, found.settings)}",
                "test error",
                (*against(x, lines, found), best),
                (Reference("chance", 0.5, above=True),),
                ylim=(-0.02, 0.6),
                xlabel="separation",
                xscale="linear",
            )
        )
    picture = Plot(
        "gaussian-mixture",
        "Four Gaussian clusters in the pattern of xor",
        (tuple(panels),),
        CURVES,
    )
    return (picture,)


COMPARISON = Comparison(
    id="beyond/gaussian-mixture",
    source="open question of Wen, Li & Ma 2023",
    figure="continuous inputs",
    title="Four Gaussian clusters in the pattern of xor",
    claim="open: does 1-SAM with bias memorise where inputs are continuous, as it does on the "
    "cube?",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
