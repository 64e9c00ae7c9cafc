"""Table 1: do flat minima generalise? Four nearly identical two-layer networks, four answers.

Source:   Wen, Li & Ma 2023, Table 1, third column; hyper-parameters from their Table 2.
Command:  flatlab run wen2023/table1
Seconds:  144 on two cores (lab, 3 seeds, compiling included)
Claim:    sharpness minimisation (1-SAM) generalises on P_xor without bias ✓, with bias ✗, with
          simplified BatchNorm ✓, with simplified LayerNorm ✓.
Expected: 1-SAM's test error 0 / above 0.1 / below 0.05 / below 0.05; its trace above the kinks'
          floor 21.91 / at 22.27 within 10 % / falling towards 8 / at 2 within 10 %.

What the paper leaves unsaid, and what is done here:
- Weights start as `torch.nn.Linear` draws them; Sim-BN's γ starts at 4/√width (γ = 1 diverges at
  the paper's learning rate); Sim-LN has ε = 1e-3.
- The loss is the mean of (f − y)², its gradient 2(f − y)∇f; weight decay adds λθ to it.
- The ascent is normalised; examples come in a fresh permutation every epoch.
- Gradient descent on the two normalised networks, which the paper does not show, uses the row of
  Figure 1a. It is not expected to say anything about Sim-LN: the output does not depend on the
  scale of the first layer, so weight decay shrinks the layer and the trace grows without bound.
- Sim-LN follows Figure 6b (first layer, weights and bias together, projected to norm 10).
- A network generalises if its test error is below 10 % (chance is 50 %); the 95 % interval over
  seeds must lie on one side. f = 0 counts as an error.
- The bounds are compared with the Gauss–Newton part of the trace, (2/n) Σ‖∇f‖², which the theory is
  about; it equals the Hessian's trace at interpolation. The two differ where normalisation gives f
  a second derivative and SAM keeps the residuals away from zero; both are reported.
- A network must be at a minimum, with a training loss below 0.01: in every seed to count as
  generalising, in most seeds to count as not generalising.
- Sim-BN is judged at the end of its first phase. In the second (radius 1) the ascent and the
  interpolating solution balance exactly, and the network may collapse to the zero function, which
  says nothing about the first phase's minimum. The end of the second phase is judged separately.
- `lab` shortens the epochs; the epochs of Sim-BN are the same as in `fig2`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from ...data import Dataset
from ...models import Init, TwoLayer
from ...plots import Plot, Reference
from ...specs import spec
from ...theory import batch_norm_xor, bias_floor, layer_norm_floor, no_bias_floor
from ...training.schedule import Phase
from ..arms import AnyArm, Arm, Comparison, Derived, trained_on
from ..compared import Compared, first_phase
from ..contract import FRACTION, Fit, Verdict
from ..judging import BOUND, THRESHOLD, How, Rule, flatter, judge, near, on_minimum
from ..showing import CURVES, NAMES, score, through_training
from ..sizes import Count, Epochs, Positive, Sizes, lengths
from ._batch_norm import second_phase
from ._figure import small_figure
from ._table2 import schedule as of_table2


@spec
class Settings(Sizes):
    """Sizes and lengths. Defaults are the paper's own; fields can be changed with --set."""

    gd_epochs: Count = 100_000
    no_bias_epochs: Count = 100_000
    bias_epochs: Count = 200_000
    bias_epochs_second: Count = 400_000
    batch_norm_epochs: Count = 100_000
    batch_norm_epochs_second: Epochs = 100_000
    layer_norm_epochs: Count = 500
    gamma_scale: Positive = 4.0
    ln_epsilon: Positive = 1e-3


PRESETS = {
    "quick": small_figure(
        Settings,
        **lengths(gd=400, no_bias=200, bias=(200, 200), batch_norm=(20, 5), layer_norm=50),
    ),
    "lab": Settings(
        seeds=3,
        **lengths(gd=20_000, no_bias=20_000, bias=(80_000, 160_000), batch_norm=(5_000, 100)),
    ),
    "paper": Settings(),
}


class Network(NamedTuple):
    """A line of the table: its names, the paper's answer, and what its floor is."""

    short: str
    title: str
    generalises: bool
    reference: str


NETWORKS = {
    "no_bias": Network("no bias", "without bias", True, "floor, reached only on kinks"),
    "bias": Network("bias", "with bias", False, "floor, attained"),
    "sim_bn": Network("Sim-BN", "with simplified BatchNorm", True, "xor network's infimum"),
    "sim_ln": Network("Sim-LN", "with simplified LayerNorm", True, "floor, attained"),
}
ALGORITHMS = {"sam": "1-SAM", "gd": "GD + weight decay"}
FIRST = "sim_bn-sam-first"  # Sim-BN is judged at the end of its first phase


def architecture(key: str, s: Settings) -> TwoLayer:
    """Return a network."""
    norms: dict[str, Any] = {"sim_bn": "batch", "sim_ln": "layer"}
    bias, norm, init = key != "no_bias", norms.get(key), Init(gamma_scale=s.gamma_scale)
    return TwoLayer(width=s.width, bias=bias, norm=norm, ln_epsilon=s.ln_epsilon, init=init)


def schedule(key: str, algorithm: str, s: Settings) -> tuple[Phase, ...]:
    """Return the rows of the paper's Table 2 for one network and algorithm."""
    if algorithm == "gd":  # Figure 4a has the same row
        return of_table2("1a", [s.gd_epochs])
    if key == "sim_ln":
        return of_table2("6b", [s.layer_norm_epochs] * 3, max_first_layer_norm=10.0)
    rows = {
        "no_bias": ("1b", [s.no_bias_epochs]),
        "bias": ("4b", [s.bias_epochs, s.bias_epochs_second]),
        "sim_bn": ("2a", [s.batch_norm_epochs, s.batch_norm_epochs_second]),
    }
    return of_table2(*rows[key])


def arm(key: str, algorithm: str, s: Settings) -> Arm:
    """Return a network trained by an algorithm."""
    network = NETWORKS[key]
    floors: dict[str, Callable[[Dataset], float]] = {
        "no_bias": no_bias_floor,
        "bias": bias_floor,
        "sim_bn": batch_norm_xor,
        "sim_ln": lambda data: layer_norm_floor(data, s.ln_epsilon),
    }
    return Arm(
        f"{key}-{algorithm}",
        ALGORITHMS[algorithm],
        trained_on("xor", s, architecture(key, s), schedule(key, algorithm, s)),
        floors[key],
        algorithm,
        network.reference,
        ours=algorithm == "gd" and key.startswith("sim"),
        generalises=network.generalises if algorithm == "sam" else True,
    )


def arms(s: Settings) -> list[AnyArm]:
    """Return every network with both algorithms, and Sim-BN's 1-SAM after its first phase."""
    made: list[AnyArm] = [arm(key, algorithm, s) for key in NETWORKS for algorithm in ALGORITHMS]
    return [*made, Derived(FIRST, "1-SAM, first phase", "sim_bn-sam", first_phase, "sam")]


def decided_by(key: str) -> str:
    """Return the arm that decides whether 1-SAM generalises on a network."""
    return FIRST if key == "sim_bn" else f"{key}-sam"


def tables(found: Compared) -> dict[str, list[dict[str, Any]]]:
    """Return the table: means over seeds with the interval of the test error."""
    rows = []
    for key, network in NETWORKS.items():
        for line in dict.fromkeys((decided_by(key), f"{key}-sam", f"{key}-gd")):
            runs = found.runs[line]
            columns = ("train_loss", "trace", "trace_ggn")
            rows.append(
                {
                    "network": network.short,
                    "algorithm": found.arms[line].label,
                    **{name: found.mean(line, name) if runs else None for name in columns},
                    "reference": found.floor(line),
                    **score("test_error", found.final(line, "test_error")),
                    "seeds": len(runs),
                }
            )
    return {"table1": rows}


def verdicts(found: Compared) -> list[Verdict]:
    """Judge each network's answer, whether floors are reached, and which algorithm ends flatter."""
    fit = {key: found.fit(f"{key}-sam", f"{key}-gd") for key in NETWORKS}
    said = "with bias, 1-SAM's minimum is flatter than gradient descent's (trace ratio)"
    return [
        *(_generalises(found, key, fit[key]) for key in NETWORKS),
        second_phase(found, "sim_bn-sam", fit["sim_bn"]),
        *(_reaches_bound(found, key, fit[key]) for key in ("bias", "sim_ln")),
        flatter(found, "bias-gd", "bias-sam", said),
    ]


def _generalises(found: Compared, key: str, decisive: Fit) -> Verdict:
    paper, line = NETWORKS[key].generalises, decided_by(key)
    does = "generalises" if paper else "does not generalise"
    when = " in its first phase" if line == FIRST else ""
    said = f"1-SAM on the two-layer network {NETWORKS[key].title} {does}{when} (test error)"
    claim, errors = found.claim(key), found.final(line, "test_error")
    rule = Rule("below" if paper else "above", THRESHOLD, "the test error", touch=None)
    how: How = {"decisive": decisive, "within": FRACTION, "paper": _mark(paper)}
    verdict, losses = judge(claim, said, errors, rule, **how), found.final(line, "train_loss")
    return on_minimum(verdict, losses, decisive=decisive, most=not paper)


def _reaches_bound(found: Compared, key: str, decisive: Fit) -> Verdict:
    floor, traces = found.floor(f"{key}-sam"), found.final(f"{key}-sam", "trace_ggn")
    said = f"1-SAM {NETWORKS[key].title} reaches {BOUND}"
    ratios = [value / floor for value in traces if floor]
    return near(f"wen2023.sec6.reaches_bound.{key}", said, ratios, decisive=decisive)


def _mark(generalises: bool | None) -> str:
    return {True: "✓", False: "✗", None: "?"}[generalises]


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return the overview, and a picture for each network."""
    top, bottom, pictures = [], [], []
    answers = {v.claim.rpartition(".")[2]: v.holds for v in verdicts(found)[: len(NETWORKS)]}
    for key, network in NETWORKS.items():
        both, floor = [f"{key}-{algorithm}" for algorithm in ALGORITHMS], found.floor(f"{key}-sam")
        lines = (Reference(f"{network.reference}: {floor:.2f}", floor),) if floor else ()
        loss, error = (
            through_training(found, both, column, NAMES[column], NAMES[column])
            for column in ("train_loss", "test_error")
        )
        trace = through_training(found, both, "trace_ggn", "sharpness", NAMES["trace_ggn"], lines)
        holds = answers[key]
        here = None if holds is None else holds == network.generalises
        title = f"{network.title}\npaper {_mark(network.generalises)}   here {_mark(here)}"
        top.append(dataclasses.replace(error, title=title))
        bottom.append(dataclasses.replace(trace, title=""))
        title = f"Two-layer ReLU network {network.title}"
        pictures.append(Plot(f"table1-{key}", title, ((loss, error, trace),), CURVES))
    marks = "✓ 1-SAM generalises, ✗ it does not, ? not assessed; BatchNorm in its first phase."
    rows, caption = (tuple(top), tuple(bottom)), f"{marks} {CURVES}"
    return Plot("table1-overview", COMPARISON.title, rows, caption), *pictures


COMPARISON = Comparison(
    id="wen2023/table1",
    source="Wen, Li & Ma 2023",
    figure="Table 1",
    title="Does sharpness minimisation generalise? It depends on the architecture",
    claim="1-SAM generalises without bias, with simplified BatchNorm and with simplified "
    "LayerNorm, and does not generalise with bias",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    tables=tables,
    plots=plots,
    prefix="",
)
EXPERIMENT = COMPARISON.experiment(__name__)
