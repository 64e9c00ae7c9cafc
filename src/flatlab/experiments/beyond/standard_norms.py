"""Standard norms: do real BatchNorm and LayerNorm give the same answers as the simplified ones?

Source:   open question; Wen, Li & Ma 2023 treat norms "without mean subtraction and bias" only
          (Figures 2 and 6).
Command:  flatlab run beyond/standard-norms
Seconds:  102 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    open. The simplified norms generalise under 1-SAM on P_xor; the standard ones also
          subtract a mean, add 1e-5 to the variance, and have a scale and a shift.
Expected: as with the simplified norms: test error below 0.1 for all four, and within 0.05 of the
          simplified norm of the same kind.

What is chosen here:
- Two-layer ReLU networks with bias on P_xor, d = 30, n = 100; BatchNorms by row 2a of the paper's
  Table 2 without its second phase (learning rate 0.005, radius 0.1), LayerNorms by row 6b (0.01;
  radii 0.1, 0.5 and 1; first layer, weights and bias together, projected to norm 10).
- The radii 0.5 and 1 of row 6b throw standard LayerNorm off its minimum, and some runs diverge; so
  the LayerNorms are also compared at a fixed radius of 0.1, for longer.
- The norm comes after the activation, as in the paper, to compare like with like; in practice it is
  mostly before. BatchNorm's statistics are over the whole training set at every step, and gradients
  flow through them, as with the simplified norm.
- The scale starts at 4/√width and the shift at 0. Torch's own initial scale, 1, diverges at these
  learning rates.
- Width 200 instead of 500, and 1,500 epochs instead of 100,000 for the BatchNorms, so that all arms
  end in minutes. Phases and sizes are equal within a pair.
- No floor of the trace is known for the standard norms: traces are not divided by a floor.
- A network generalises if its test error is below 10 %, by the interval over seeds.
"""

from __future__ import annotations

from typing import Any

from ...models import Init, TwoLayer
from ...plots import Plot
from ...specs import spec
from ...training.schedule import Phase
from ..arms import Arm, Comparison, trained_on
from ..compared import Compared
from ..contract import FRACTION, Verdict
from ..judging import THRESHOLD, below, generalises
from ..showing import final_values, histories, said_error
from ..sizes import Count, Positive, Seeds, Sizes, lengths, quick_and_lab
from ..wen2023._table2 import schedule as of_table2

KINDS: dict[str, dict[str, Any]] = {
    "sim": {"bn": "batch", "ln": "layer", "ln_fixed": "layer"},
    "std": {"bn": "standard_batch", "ln": "standard_layer", "ln_fixed": "standard_layer"},
}
WORDS = {"sim": "simplified", "std": "standard"}
PAPER = {"sim": "✓", "std": "open"}
PAIRS = {"bn": "BatchNorm", "ln": "LayerNorm", "ln_fixed": "LayerNorm at radius 0.1"}
LABELS = {f"{kind}_{pair}": f"{WORDS[kind]} {PAIRS[pair]}" for pair in PAIRS for kind in KINDS}
ALIKE = 0.05  # two norms agree if their test errors differ by less


@spec
class Settings(Sizes):
    """Sizes and lengths. Fields can be changed with --set."""

    seeds: Seeds = 3
    width: Count = 200
    batch_norm_epochs: Count = 1_500
    layer_norm_epochs: Count = 500
    layer_norm_fixed_epochs: Count = 5_000
    gamma_scale: Positive = 4.0


PRESETS = quick_and_lab(Settings, **lengths(batch_norm=40, layer_norm=20, layer_norm_fixed=40))


def schedule(pair: str, s: Settings) -> tuple[Phase, ...]:
    """Return the rows of the paper's Table 2, shortened."""
    if pair == "bn":
        return of_table2("2a", [s.batch_norm_epochs])
    fixed = pair == "ln_fixed"
    epochs = [s.layer_norm_fixed_epochs] if fixed else [s.layer_norm_epochs] * 3
    return of_table2("6b", epochs, max_first_layer_norm=10.0)


def arms(s: Settings) -> list[Arm]:
    """Return both kinds of each norm."""

    def arm(kind: str, pair: str) -> Arm:
        init = Init(gamma_scale=s.gamma_scale)
        arch = TwoLayer(width=s.width, norm=KINDS[kind][pair], init=init)
        own = ("rho",) if pair == "ln_fixed" else ()
        config = trained_on("xor", s, arch, schedule(pair, s), own=own)
        key = f"{kind}_{pair}"
        return Arm(key, LABELS[key], config, role=kind)

    return [arm(kind, pair) for pair in PAIRS for kind in KINDS]


def verdicts(found: Compared) -> list[Verdict]:
    """Judge whether each norm generalises, and whether the two of a kind agree."""
    made = [
        generalises(found, key, f"{key}_generalises", f"1-SAM with {label}", paper=PAPER[key[:3]])
        for key, label in LABELS.items()
    ]
    for pair, name in PAIRS.items():
        both, claim = (f"sim_{pair}", f"std_{pair}"), found.claim(f"{pair}_alike")
        said = f"standard {name} answers as the simplified one does (|difference of test errors|)"
        apart, fit = [abs(b - a) for a, b in found.pairs(*both, "test_error")], found.fit(*both)
        made.append(below(claim, said, apart, ALIKE, decisive=fit, within=FRACTION, paper="open"))
    return made


def finding(found: Compared) -> str:
    """Say how each standard norm compares with the simplified one."""
    lines = []
    for pair, name in PAIRS.items():
        simple, standard = f"sim_{pair}", f"std_{pair}"
        one, other = (found.mean(key, "test_error") for key in (simple, standard))
        alike = (one < THRESHOLD) == (other < THRESHOLD)
        sides = "the same side" if alike else "different sides"
        lost = [r for key in (simple, standard) for r in found.runs[key].values()]
        diverged = sum(run.status == "diverged" for run in lost)
        lines.append(
            f"{name}: test error {said_error(found, simple)} simplified and "
            f"{said_error(found, standard)} standard, on average on {sides} of "
            f"{THRESHOLD:g}; Gauss–Newton trace {found.mean(simple, 'trace_ggn'):.1f} and "
            f"{found.mean(standard, 'trace_ggn'):.1f}, training loss "
            f"{found.mean(simple, 'train_loss'):.1e} and {found.mean(standard, 'train_loss'):.1e}"
            + (f" ({diverged} of {len(lost)} runs diverged)." if diverged else ".")
        )
    return " ".join(lines)


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return the final values, and the histories of each pair."""
    through = (
        histories(
            f"standard-norms-{pair}",
            f"{name} through training by 1-SAM",
            found,
            [f"{kind}_{pair}" for kind in KINDS],
        )
        for pair, name in PAIRS.items()
    )
    return final_values(found), *through


COMPARISON = Comparison(
    id="beyond/standard-norms",
    source="open question of Wen, Li & Ma 2023",
    figure="simplified norms",
    title="Simplified and standard norms under 1-SAM on xor",
    claim="open: do BatchNorm and LayerNorm with mean subtraction, scale, shift and epsilon answer "
    "as the simplified ones, which generalise under 1-SAM?",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=finding,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
