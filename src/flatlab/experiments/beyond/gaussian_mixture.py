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

from ...plots import Curve, Plot
from ...specs import spec
from ..arms import Arm, Comparison
from ..compared import Compared
from ..contract import Verdict
from ..judging import errs_more
from ..showing import said_error
from ..sizes import Count, Positive, Seeds, Sizes, quick_and_lab
from ._four_arms import ALGORITHMS, BIASES, SHORT, Task, errors_by_task, examples, four_arms

TITLE = "Four Gaussian clusters in the pattern of xor"
BY, CUBE = "(difference of test errors)", "> 0 on the cube"


@spec
class Settings(Sizes):
    """Sizes and lengths. Fields can be changed with --set."""

    seeds: Seeds = 3
    n_large: Count = 400
    separations: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1.5, 2.0, 3.0)
    sam_lr: Positive = 0.003
    sam_epochs: Count = 6_000
    sam_epochs_large: Count = 1_500
    gd_epochs: Count = 5_000
    gd_epochs_large: Count = 3_000


PRESETS = quick_and_lab(Settings, n_large=60, separations=(2.0,), **SHORT)


def bayes_error(separation: float) -> float:
    """Return the error of sign(x1·x2), the best classifier: 2p(1 − p), p = Φ(−separation).

    >>> f"{bayes_error(2.0):.4f}"
    '0.0445'
    """
    p = float(special.ndtr(-separation))
    return 2 * p * (1 - p)


def tasks(s: Settings) -> list[Task]:
    """Return the separations of the clusters."""
    return [
        Task(t, f"s{t:g}".replace(".", "p"), f"separation {t:g}", {"separation": t})
        for t in s.separations
    ]


def arms(s: Settings) -> list[Arm]:
    """Return every separation, number of examples, network and algorithm."""
    return list(four_arms(s, "gaussian_mixture", tasks(s), s.sam_lr))


def verdicts(found: Compared) -> list[Verdict]:
    """Judge 1-SAM against gradient descent, and bias against none."""
    made = []
    for size, n in examples(found.settings).items():
        for task in tasks(found.settings):
            where, end = f"at {task.label}, n = {n}", f"{task.key}_{size}"
            without, biased = (task.arm(size, bias, "sam") for bias in BIASES)
            for bias, words in BIASES.items():
                sam, gd = (task.arm(size, bias, algorithm) for algorithm in ALGORITHMS)
                claim = f"memorises_{bias}_{end}"
                said = f"{where}, {words}, 1-SAM generalises worse than gradient descent {BY}"
                paper = CUBE if bias == "bias" else "open"
                made.append(errs_more(found, gd, sam, claim, said, paper=paper))
            said = f"{where} the bias makes 1-SAM's test error larger {BY}"
            made.append(errs_more(found, without, biased, f"bias_hurts_{end}", said, paper=CUBE))
    return made


def finding(found: Compared) -> str:
    """Report the test errors and the best possible one."""
    lines = []
    for size, n in examples(found.settings).items():
        for task in tasks(found.settings):
            parts = []
            for algorithm, name in ALGORITHMS.items():
                keys = [task.arm(size, bias, algorithm) for bias in BIASES]
                without, biased = (said_error(found, key) for key in keys)
                parts.append(f"{name} {without} without bias and {biased} with it")
            lines.append(
                f"{task.label.capitalize()}, n = {n}: {'; '.join(parts)}; "
                f"Bayes error {bayes_error(task.x):.4f}."
            )
    return " ".join(lines)


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return test error against the separation, a panel for each number of examples."""
    x = found.settings.separations
    best = Curve("Bayes error", "reference", np.array(x), np.array([[bayes_error(t) for t in x]]))
    return errors_by_task(found, tasks(found.settings), TITLE, "separation", best)


COMPARISON = Comparison(
    id="beyond/gaussian-mixture",
    source="open question of Wen, Li & Ma 2023",
    figure="continuous inputs",
    title=TITLE,
    claim="open: does 1-SAM with bias memorise where inputs are continuous, as it does on the "
    "cube?",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
