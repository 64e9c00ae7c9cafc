"""Depth: do flat minima of deeper networks generalise, without and with bias?

Source:   open question; Wen, Li & Ma 2023, "Limitations and future work", asks it for deep networks
          without bias. Section B.4 and Figure 11 have three layers with bias.
Command:  flatlab run beyond/depth
Seconds:  157 of training on one core (lab, 5 seeds, two runs at a time)
Claim:    open: "examine whether flatness implies generalization for deep networks without the bias
          terms". With two layers 1-SAM generalises without bias and fails with it.
Expected: as with two layers at every depth: test error below 0.1 without bias and above it with
          bias, where the trace is at its floor within 10 %.

What is chosen here:
- P_xor with d = 30 and n = 100; 1-SAM at learning rate 0.01 and radius 0.05 (rows 1b and 11b of the
  paper's Table 2). Only the first layer may have a bias. Initial weights, order, loss and the test
  error at f = 0 are as in `wen2023/table1`.
- All depths have width 100, not the paper's 500: five layers of width 500 take about 55 ms an epoch
  and would not come near their floor in time.
- Two layers run 20,000 epochs and deeper networks 3,000, which brings every arm with bias to its
  floor; a second radius (row 4b) is left out. The test error still moves slowly then, as
  `depth-histories` shows.
- Floors: (2/n) Σ D|y|^{2(D−1)/D}‖x'‖^{2/D} with x' = (x, 1) with bias and x' = x without. Without
  bias the floor is a bound that need not be attained.
- A network generalises if its test error is below 10 %, judged by the interval over five seeds.
"""

from __future__ import annotations

import functools

from ...models import Architecture, Deep, TwoLayer
from ...plots import Plot
from ...specs import spec
from ...theory import bias_floor, no_bias_floor
from ...training.schedule import Phase
from ..arms import Arm, Comparison, trained_on
from ..compared import Compared
from ..contract import Verdict
from ..judging import THRESHOLD, errs_more, generalises, reaches_floor
from ..showing import CURVES, errors_against, final_values, histories, said_error
from ..sizes import Count, Seeds, Sizes, quick_and_lab
from ._four_arms import BIASES

DEPTHS = (2, 3, 4, 5)
FLOOR = "the trace's floor (trace/floor)"


@spec
class Settings(Sizes):
    """Sizes and lengths. Fields can be changed with --set."""

    seeds: Seeds = 5
    width: Count = 100
    two_layer_epochs: Count = 20_000
    deep_epochs: Count = 3_000


PRESETS = quick_and_lab(Settings, two_layer_epochs=100, deep_epochs=50)


def key(depth: int, bias: str) -> str:
    """Return an arm's key."""
    return f"{bias}_{depth}"


def architecture(depth: int, bias: bool, width: int) -> Architecture:
    """Return the network; two layers have their own kernel."""
    if depth == 2:
        return TwoLayer(width=width, bias=bias)
    return Deep(depth=depth, width=width, bias_first=bias)


def arms(s: Settings) -> list[Arm]:
    """Return two to five layers, without and with bias."""

    def arm(depth: int, bias: str) -> Arm:
        has_bias = bias == "bias"
        epochs = s.two_layer_epochs if depth == 2 else s.deep_epochs
        phase = Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=epochs)
        config = trained_on("xor", s, architecture(depth, has_bias, s.width), [phase])
        least = functools.partial(bias_floor if has_bias else no_bias_floor, depth=depth)
        return Arm(key(depth, bias), f"{depth} layers, {BIASES[bias]}", config, least, bias)

    return [arm(depth, bias) for depth in DEPTHS for bias in BIASES]


def verdicts(found: Compared) -> list[Verdict]:
    """Judge generalisation and floors at each depth, and whether the bias hurts."""
    made = []
    for depth in DEPTHS:
        without, biased = key(depth, "no_bias"), key(depth, "bias")
        who = f"1-SAM on {depth} layers"
        larger = f"with {depth} layers the bias makes 1-SAM's test error larger (difference)"
        does, hurts = ("✓", "> 0") if depth == 2 else ("open", "open")
        fails = "✗ possible (Theorem 4.1)" if depth > 3 else "✗"
        made += [
            generalises(
                found, without, f"no_bias_generalises_{depth}", f"{who} without bias", paper=does
            ),
            generalises(
                found, biased, f"bias_fails_{depth}", f"{who} with bias", does=False, paper=fails
            ),
            errs_more(found, without, biased, f"bias_hurts_{depth}", larger, paper=hurts),
            reaches_floor(
                found, biased, f"bias_reaches_floor_{depth}", f"{who} with bias", floor=FLOOR
            ),
        ]
    return made


def persists(found: Compared, depth: int) -> bool:
    """Return whether a depth gives, on average, the paper's answer for two layers."""
    without = found.mean(key(depth, "no_bias"), "test_error")
    return without < THRESHOLD <= found.mean(key(depth, "bias"), "test_error")


def finding(found: Compared) -> str:
    """Say at which depths the answer for two layers persists."""
    lines = [
        f"{depth} layers: test error {said_error(found, key(depth, 'no_bias'))} without bias and "
        f"{said_error(found, key(depth, 'bias'))} with it."
        for depth in DEPTHS
    ]
    kept = [str(depth) for depth in DEPTHS if persists(found, depth)]
    lost = [str(depth) for depth in DEPTHS if not persists(found, depth)]
    answer = "No bias below 0.1 and bias above it, in the mean"
    lines.append(
        f"{answer}, is found with {', '.join(kept) or 'no number of'} layers"
        + (f" and not with {', '.join(lost)}." if lost else ".")
    )
    ratios = {k: found.over_floor(k) for k in found.runs}
    means = {k: sum(values) / len(values) for k, values in ratios.items()}
    biased = [means[key(depth, "bias")] for depth in DEPTHS]
    without = [means[key(depth, "no_bias")] for depth in DEPTHS]
    lines.append(
        f"The trace ends at {min(biased):.2f} to {max(biased):.2f} of its floor with bias and at "
        f"{min(without):.2f} to {max(without):.2f} without."
    )
    return " ".join(lines)


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return final values, test error against depth, and histories with and without bias."""
    lines = {words: [key(depth, bias) for depth in DEPTHS] for bias, words in BIASES.items()}
    title, xlabel = "1-SAM's test error", "number of weight layers"
    panel = errors_against(DEPTHS, lines, found, title, xlabel)
    through = (
        histories(
            f"depth-histories-{bias}", f"1-SAM through training, {words}", found, lines[words]
        )
        for bias, words in BIASES.items()
    )
    errors = Plot("depth-errors", "Depth and bias", ((panel,),), CURVES)
    return final_values(found), errors, *through


COMPARISON = Comparison(
    id="beyond/depth",
    source="open question of Wen, Li & Ma 2023",
    figure="limitations",
    title="Two to five layers, without and with bias: 1-SAM on xor",
    claim="open: does the answer of two layers, that 1-SAM generalises without bias and not with "
    "it, persist with three, four and five?",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
