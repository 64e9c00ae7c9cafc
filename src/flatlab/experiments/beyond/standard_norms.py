"""Standard norms: do real BatchNorm and LayerNorm answer as the simplified ones do?

Source:   open question; Wen, Li & Ma 2023 treat norms "without mean subtraction and bias" only
          (Figures 2 and 6).
Command:  flatlab run beyond/standard-norms
Seconds:  SECONDS
Claim:    open. The simplified norms generalise under 1-SAM on P_xor; the standard ones also
          subtract a mean, add 1e-5 to the variance, and have a scale and a shift.
Expected: as with the simplified norms: test error below 0.1 for all four, and within 0.05 of the
          simplified norm of the same kind.

What is chosen here:
- Two-layer ReLU networks with bias on P_xor, d = 30, n = 100; BatchNorms by row 2a of the paper's
  Table 2 without its second phase (learning rate 0.005, radius 0.1), LayerNorms by row 6b (0.01;
  radii 0.1, 0.5 and 1; first layer, weights and bias together, projected to norm 10).
- The norm stands after the activation, where the paper has it, to compare like with like; practice
  mostly has it before. BatchNorm's statistics are those of the whole training set at every step,
  and gradients flow through them, as with the simplified one.
- The scale starts at 4/√width and the shift at 0. Torch's own start, a scale of 1, diverges at
  these learning rates.
- Width 200 in place of 500 and 1,500 epochs in place of 100,000 for the BatchNorms, so that all
  four end in minutes. Both phases and sizes are equal within a pair.
- No floor of the trace is known for the standard norms: traces are shown as they are.
- A network generalises if its test error is below 10 %, by the interval over seeds.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ...config import Dtype, RunConfig
from ...data import xor
from ...models import Init, TwoLayer
from ...schedule import Phase
from ...specs import spec
from ..arms import Arm, Comparison, histories, said
from ..contract import Plot, Verdict
from ..evidence import Evidence
from ..judging import FRACTION, THRESHOLD, below

Count = Annotated[int, Field(gt=0)]
NORMS: dict[str, Any] = {
    "sim_bn": "batch",
    "std_bn": "standard_batch",
    "sim_ln": "layer",
    "std_ln": "standard_layer",
}
LABELS = {
    "sim_bn": "simplified BatchNorm",
    "std_bn": "standard BatchNorm",
    "sim_ln": "simplified LayerNorm",
    "std_ln": "standard LayerNorm",
}
PAIRS = {"bn": "BatchNorm", "ln": "LayerNorm"}
ALIKE = 0.05  # difference of test errors below which two norms answer alike


@spec
class Settings:
    """Sizes and lengths. Fields can be changed with --set."""

    seeds: Annotated[int, Field(gt=0, le=1000)] = 3
    width: Count = 200
    d: Annotated[int, Field(ge=2)] = 30
    n: Count = 100
    n_test: Count = 10_000
    dtype: Dtype = "float32"
    batch_norm_epochs: Count = 1_500
    layer_norm_epochs: Count = 500
    gamma_scale: Annotated[float, Field(gt=0)] = 4.0


PRESETS = {
    "quick": Settings(
        seeds=2, width=20, d=8, n=40, n_test=500, batch_norm_epochs=40, layer_norm_epochs=20
    ),
    "lab": Settings(),
}


def schedule(key: str, s: Settings) -> tuple[Phase, ...]:
    """Return the rows of the paper's Table 2, shortened."""
    if key.endswith("bn"):
        return (Phase("sam", lr=0.005, rho=0.1, batch_size=1, epochs=s.batch_norm_epochs),)
    return tuple(
        Phase(
            "sam",
            lr=0.01,
            rho=rho,
            batch_size=1,
            epochs=s.layer_norm_epochs,
            max_first_layer_norm=10.0,
        )
        for rho in (0.1, 0.5, 1.0)
    )


def arms(s: Settings) -> list[Arm]:
    """Return the four norms."""

    def arm(key: str) -> Arm:
        init = Init(gamma_scale=s.gamma_scale)

        def config(seed: int) -> RunConfig:
            return RunConfig(
                arch=TwoLayer(width=s.width, norm=NORMS[key], init=init),
                data=xor(d=s.d, n=s.n, seed=seed, n_test=s.n_test).spec,
                schedule=schedule(key, s),
                seed=seed,
                dtype=s.dtype,
            )

        return Arm(key, LABELS[key], config)

    return [arm(key) for key in NORMS]


def verdicts(found: Evidence) -> list[Verdict]:
    """Judge whether each generalises, and whether the two of a kind answer alike."""
    made = [
        below(
            f"beyond.standard_norms.{key}_generalises",
            f"1-SAM with {LABELS[key]} generalises (test error)",
            found.final(key, "test_error"),
            THRESHOLD,
            decisive=found.fit(key),
            within=FRACTION,
            paper="✓" if key.startswith("sim") else "open",
        )
        for key in NORMS
    ]
    made += [
        below(
            f"beyond.standard_norms.{kind}_alike",
            f"standard {name} answers as the simplified one does (|difference of test errors|)",
            [abs(b - a) for a, b in found.pairs(f"sim_{kind}", f"std_{kind}", "test_error")],
            ALIKE,
            decisive=found.fit(f"sim_{kind}", f"std_{kind}"),
            within=FRACTION,
            paper="open",
        )
        for kind, name in PAIRS.items()
    ]
    return made


def finding(found: Evidence) -> str:
    """Say how each standard norm compares with the simplified one."""

    def error(key: str) -> str:
        return said(found.interval(key, "test_error"), found.mean(key, "test_error"))

    lines = []
    for kind, name in PAIRS.items():
        simple, standard = f"sim_{kind}", f"std_{kind}"
        one, other = (found.mean(key, "test_error") for key in (simple, standard))
        same = (one < THRESHOLD) == (other < THRESHOLD)
        lines.append(
            f"{name}: test error {error(simple)} simplified and {error(standard)} standard, so "
            f"that in the mean both fall on {'the same side' if same else 'different sides'} of "
            f"{THRESHOLD:g}; Gauss–Newton trace {found.mean(simple, 'trace_ggn'):.1f} and "
            f"{found.mean(standard, 'trace_ggn'):.1f}, training loss "
            f"{found.mean(simple, 'train_loss'):.1e} and {found.mean(standard, 'train_loss'):.1e}."
        )
    return " ".join(lines)


def plots(found: Evidence) -> tuple[Plot, ...]:
    """Return the histories of each pair."""
    return tuple(
        histories(
            f"standard-norms-{kind}",
            f"{name} through training by 1-SAM",
            [arm for arm in arms(found.settings) if arm.key.endswith(kind)],
            found,
            {"train_loss": "training loss", "test_error": "test error", "trace_ggn": "trace"},
        )
        for kind, name in PAIRS.items()
    )


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
