"""Parity of k coordinates: which products does 1-SAM learn, without and with bias?

Source:   open question; Wen, Li & Ma 2023 have y = x1·x2 only (Figures 1 and 4).
Command:  flatlab run beyond/parity-k
Seconds:  210 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    open for k = 1, 3, 4. For k = 2 and n = 100, 1-SAM generalises without bias, not with it.
Expected: k = 1 generalises everywhere; k = 2 as in the paper; k = 3 fails without bias for every n,
          since σ(w·x) = (|w·x| + w·x)/2 makes the odd part of the network linear; k = 4 open.

What is chosen here:
- y = x1⋯xk uniformly on {±1}^30; two-layer ReLU networks of width 500; n = 100 and n = 400.
- 1-SAM at learning rate 0.01 and radius 0.05 (row 1b of the paper's Table 2), 2,000 epochs at
  n = 100 and 1,000 at n = 400. The baseline is full-batch gradient descent at learning rate 0.01
  with weight decay 0.05 (row 1a), 8,000 and 4,000 epochs.
- At n = 400 and k ≥ 3 the baseline does not interpolate by then (the training loss is in the
  table). It shows what the paper's row does in this time, not where it would end.
- A network generalises if its test error is below 10 %, by the interval over seeds.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...plots import Plot
from ...specs import spec
from ..arms import Arm, Comparison
from ..compared import Compared
from ..contract import Verdict
from ..judging import THRESHOLD, errs_more, generalises
from ..sizes import Count, Seeds, Sizes, quick_and_lab
from ._four_arms import ALGORITHMS, BIASES, SHORT, Task, errors_by_task, examples, four_arms


@spec
class Settings(Sizes):
    """Sizes and lengths. Fields can be changed with --set."""

    seeds: Seeds = 3
    d: Annotated[int, Field(ge=4)] = 30
    n_large: Count = 400
    orders: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (1, 2, 3, 4)
    sam_epochs: Count = 2_000
    sam_epochs_large: Count = 1_000
    gd_epochs: Count = 8_000
    gd_epochs_large: Count = 4_000


PRESETS = quick_and_lab(Settings, n_large=60, orders=(2, 3), **SHORT)


def tasks(s: Settings) -> list[Task]:
    """Return the orders of the parity."""
    return [Task(k, f"k{k}", f"k = {k}", {"k": k}) for k in s.orders]


def arms(s: Settings) -> list[Arm]:
    """Return every order, number of examples, network and algorithm."""
    return list(four_arms(s, "parity", tasks(s)))


def expected(k: float, size: str, bias: str) -> str:
    """Return the answer of the paper, or of a line of algebra, for 1-SAM."""
    if k == 2 and size == "small":
        return "✓" if bias == "no_bias" else "✗"
    return "✗ not representable" if k == 3 and bias == "no_bias" else "open"


def verdicts(found: Compared) -> list[Verdict]:
    """Judge 1-SAM at each order and size, and whether the bias hurts or helps it."""
    does, hurts = [], []
    for size, n in examples(found.settings).items():
        for task in tasks(found.settings):
            for bias, words in BIASES.items():
                paper, arm = expected(task.x, size, bias), task.arm(size, bias, "sam")
                claim = f"{task.key}_{size}_{bias}"
                who = f"1-SAM on parity {task.label}, n = {n}, {words},"
                learns = not paper.startswith("✗")
                does.append(generalises(found, arm, claim, who, does=learns, paper=paper))
            without, biased = (task.arm(size, bias, "sam") for bias in BIASES)
            claim, paper = f"bias_hurts_{task.key}_{size}", "open"
            if task.x == 2 and size == "small":
                paper = "> 0"
            said = f"the bias makes 1-SAM's test error on {task.label}, n = {n} larger (difference)"
            hurts.append(errs_more(found, without, biased, claim, said, paper=paper))
    return does + hurts


def finding(found: Compared) -> str:
    """Say which orders each algorithm learns, and from how many examples."""
    lines, orders = [], tasks(found.settings)
    for size, n in examples(found.settings).items():
        for algorithm, name in ALGORITHMS.items():
            parts = []
            for bias, words in BIASES.items():
                errors = {
                    k.x: found.mean(k.arm(size, bias, algorithm), "test_error") for k in orders
                }
                learnt = [str(k) for k, error in errors.items() if error < THRESHOLD]
                values = ", ".join(f"{error:.3f}" for error in errors.values())
                parts.append(
                    f"{words} generalises for k = {', '.join(learnt) or 'none'} "
                    f"(mean test errors {values})"
                )
            lines.append(f"n = {n}, {name}: {'; '.join(parts)}.")
    return " ".join(lines)


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return test error against k, a panel for each number of examples."""
    xlabel = "k, the number of coordinates multiplied"
    return errors_by_task(found, tasks(found.settings), "Which parities are learnt", xlabel)


COMPARISON = Comparison(
    id="beyond/parity-k",
    source="open question of Wen, Li & Ma 2023",
    figure="parities beyond xor",
    title="Parity of k coordinates",
    claim="open: which parities of k = 1 to 4 coordinates does 1-SAM learn from 100 and from 400 "
    "examples, without and with bias?",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
