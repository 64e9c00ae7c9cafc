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

from ...models import TwoLayer
from ...plots import Curves, Plot, Reference
from ...specs import spec
from ...training.schedule import Phase
from ..arms import Arm, Comparison, trained_on
from ..compared import Compared
from ..contract import Verdict
from ..judging import FRACTION, THRESHOLD, above, below
from ..showing import CURVES, against
from ..sizes import Count, Seeds, Sizes

BIASES = {"no_bias": "no bias", "bias": "bias"}
ALGORITHMS = {"sam": "1-SAM", "gd": "GD + weight decay"}
SIZES = ("small", "large")


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


PRESETS = {
    "quick": Settings(
        seeds=2,
        width=20,
        d=8,
        n=30,
        n_large=60,
        n_test=500,
        orders=(2, 3),
        sam_epochs=50,
        sam_epochs_large=30,
        gd_epochs=100,
        gd_epochs_large=50,
    ),
    "lab": Settings(),
}


def key(k: int, size: str, bias: str, algorithm: str) -> str:
    """Return an arm's key."""
    return f"k{k}_{size}_{bias}_{algorithm}"


def examples(size: str, s: Settings) -> int:
    """Return the number of training examples."""
    return s.n if size == "small" else s.n_large


def arms(s: Settings) -> list[Arm]:
    """Return every order, number of examples, network and algorithm."""

    def phase(size: str, algorithm: str) -> Phase:
        small = size == "small"
        if algorithm == "gd":
            epochs = s.gd_epochs if small else s.gd_epochs_large
            return Phase("sgd", lr=0.01, weight_decay=0.05, epochs=epochs)
        epochs = s.sam_epochs if small else s.sam_epochs_large
        return Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=epochs)

    def arm(k: int, size: str, bias: str, algorithm: str) -> Arm:
        n = examples(size, s)
        arch = TwoLayer(width=s.width, bias=bias == "bias")
        phases = [phase(size, algorithm)]
        config = trained_on("parity", s, arch, phases, n=n, arguments={"k": k})
        label = f"k = {k}, n = {n}, {BIASES[bias]}, {ALGORITHMS[algorithm]}"
        return Arm(key(k, size, bias, algorithm), label, config, role=algorithm)

    return [
        arm(k, size, bias, algorithm)
        for size in SIZES
        for k in s.orders
        for bias in BIASES
        for algorithm in ALGORITHMS
    ]


def expected(k: int, size: str, bias: str) -> str:
    """Return the answer of the paper, or of a line of algebra, for 1-SAM."""
    if k == 2 and size == "small":
        return "✓" if bias == "no_bias" else "✗"
    return "✗ not representable" if k == 3 and bias == "no_bias" else "open"


def verdicts(found: Compared) -> list[Verdict]:
    """Judge 1-SAM at each order and size, and whether the bias hurts or helps it."""
    made = []
    orders = found.settings.orders
    for size in SIZES:
        n = examples(size, found.settings)
        for k in orders:
            for bias, words in BIASES.items():
                arm, paper = key(k, size, bias, "sam"), expected(k, size, bias)
                fails = paper.startswith("✗")
                does, side = ("does not generalise", above) if fails else ("generalises", below)
                made.append(
                    side(
                        f"beyond.parity_k.k{k}_{size}_{bias}",
                        f"1-SAM on parity k = {k}, n = {n}, {words}, {does} (test error)",
                        found.final(arm, "test_error"),
                        THRESHOLD,
                        decisive=found.fit(arm),
                        within=FRACTION,
                        paper=paper,
                    )
                )
    for size in SIZES:
        for k in orders:
            without, biased = (key(k, size, bias, "sam") for bias in BIASES)
            made.append(
                above(
                    f"beyond.parity_k.bias_hurts_k{k}_{size}",
                    f"the bias makes 1-SAM's test error on k = {k}, n = "
                    f"{examples(size, found.settings)} larger (difference)",
                    [b - a for a, b in found.pairs(without, biased, "test_error")],
                    0,
                    decisive=found.fit(without, biased),
                    paper="> 0" if k == 2 and size == "small" else "open",
                )
            )
    return made


def finding(found: Compared) -> str:
    """Say which orders each algorithm learns, and from how many examples."""
    lines, orders = [], found.settings.orders
    for size in SIZES:
        n = examples(size, found.settings)
        for algorithm, name in ALGORITHMS.items():
            parts = []
            for bias, words in BIASES.items():
                errors = {
                    k: found.mean(key(k, size, bias, algorithm), "test_error") for k in orders
                }
                learnt = [str(k) for k in orders if errors[k] < THRESHOLD]
                values = ", ".join(f"{errors[k]:.3f}" for k in orders)
                parts.append(
                    f"{words} generalises for k = {', '.join(learnt) or 'none'} "
                    f"(mean test errors {values})"
                )
            lines.append(f"n = {n}, {name}: {'; '.join(parts)}.")
    return " ".join(lines)


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return test error against k, a panel for each number of examples."""
    panels, orders = [], found.settings.orders
    for size in SIZES:
        lines = {
            f"{name}, {words}": [key(k, size, bias, algorithm) for k in orders]
            for algorithm, name in ALGORITHMS.items()
            for bias, words in BIASES.items()
        }
        panels.append(
            Curves(
                f"n = {examples(size, found.settings)}",
                "test error",
                against(orders, lines, found),
                (Reference("chance", 0.5, above=True),),
                ylim=(-0.02, 0.6),
                xlabel="k, the number of coordinates multiplied",
                xscale="linear",
            )
        )
    picture = Plot(
        "parity-k",
        "Which parities are learnt",
        (tuple(panels),),
        CURVES,
    )
    return (picture,)


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
