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
- Gradient descent on the two normalised networks, which the paper does not show, takes the row of
  Figure 1a. It is not expected to tell anything about Sim-LN: weight decay shrinks a first layer on
  whose scale the output does not depend, and the trace grows without bound.
- Sim-LN follows Figure 6b (first layer, weights and bias together, projected to norm 10).
- A network generalises if its test error is below 10 % (chance is 50 %); the 95 % interval over
  seeds must lie on one side. f = 0 counts as an error.
- Traces are compared with the bounds through their Gauss–Newton part (2/n) Σ‖∇f‖², of which the
  theory speaks; it equals the Hessian's trace at interpolation. Where normalisation gives f a
  second derivative and SAM keeps the residuals from zero, the two differ; both are reported.
- A network must be at a minimum, with a training loss below 0.01: in every seed to count as
  generalising, in most to count as not generalising.
- Sim-BN is judged at the end of its first phase. In the second (radius 1) the ascent and the
  interpolating solution balance exactly, and the network may collapse to the zero function, which
  says nothing about the first phase's minimum. What is there after it is judged apart.
- `lab` shortens the epochs; those of Sim-BN are `fig2`'s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ...data import Dataset, xor
from ...models import Init, TwoLayer
from ...plots import Curves, Plot, Reference
from ...specs import spec
from ...theory import batch_norm_xor, bias_floor, layer_norm_floor, no_bias_floor
from ...training.config import Dtype, RunConfig
from ...training.run import Run
from ...training.schedule import Phase
from ..analysis import curves, finals, judge
from ..contract import Experiment, Findings, Interval, Planned, Verdict
from ..evidence import after_first_phase, diverged, large_enough
from ..judging import THRESHOLD, below, near, on_minimum
from ._stages import second_phase

Count = Annotated[int, Field(gt=0)]


@spec
class Settings:
    """Sizes and lengths. Defaults are the paper's own; fields can be changed with --set."""

    seeds: Annotated[int, Field(gt=0, le=1000)] = 1
    width: Count = 500
    d: Annotated[int, Field(ge=2)] = 30
    n: Count = 100
    n_test: Count = 10_000
    dtype: Dtype = "float32"
    gd_epochs: Count = 100_000
    no_bias_epochs: Count = 100_000
    bias_epochs: Count = 200_000
    bias_epochs_second: Count = 400_000
    batch_norm_epochs: Count = 100_000
    batch_norm_epochs_second: Annotated[int, Field(ge=0)] = 100_000
    layer_norm_epochs: Count = 500
    gamma_scale: Annotated[float, Field(gt=0)] = 4.0
    ln_epsilon: Annotated[float, Field(gt=0)] = 1e-3


PRESETS = {
    "quick": Settings(
        seeds=2,
        width=100,
        d=10,
        n=60,
        n_test=1000,
        gd_epochs=400,
        no_bias_epochs=200,
        bias_epochs=200,
        bias_epochs_second=200,
        batch_norm_epochs=20,
        batch_norm_epochs_second=5,
        layer_norm_epochs=50,
    ),
    "lab": Settings(
        seeds=3,
        gd_epochs=20_000,
        no_bias_epochs=20_000,
        bias_epochs=80_000,
        bias_epochs_second=160_000,
        batch_norm_epochs=5_000,
        batch_norm_epochs_second=100,
    ),
    "paper": Settings(),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    key: str
    short: str
    title: str
    paper: bool
    reference: str


ROWS = (
    Row("no_bias", "no bias", "without bias", True, "floor, reached only on kinks"),
    Row("bias", "bias", "with bias", False, "floor, attained"),
    Row("sim_bn", "Sim-BN", "with simplified BatchNorm", True, "xor network's infimum"),
    Row("sim_ln", "Sim-LN", "with simplified LayerNorm", True, "floor, attained"),
)
ALGORITHMS = {"sam": "1-SAM", "gd": "GD + weight decay"}


def architecture(key: str, s: Settings) -> TwoLayer:
    """Return the network of a row."""
    init = Init(gamma_scale=s.gamma_scale)
    norms: dict[str, Any] = {"sim_bn": "batch", "sim_ln": "layer"}
    return TwoLayer(
        width=s.width,
        bias=key != "no_bias",
        norm=norms.get(key),
        ln_epsilon=s.ln_epsilon,
        init=init,
    )


def schedule(key: str, algorithm: str, s: Settings) -> tuple[Phase, ...]:
    """Return the rows of the paper's Table 2 for one line and algorithm."""

    def sam(lr: float, rho: float, epochs: int, limit: float | None = None) -> Phase:
        return Phase("sam", lr=lr, rho=rho, batch_size=1, epochs=epochs, max_first_layer_norm=limit)

    if algorithm == "gd":  # Figures 1a and 4a
        return (Phase("sgd", lr=0.01, weight_decay=0.05, epochs=s.gd_epochs),)
    match key:
        case "no_bias":  # Figure 1b
            return (sam(0.01, 0.05, s.no_bias_epochs),)
        case "bias":  # Figure 4b
            return (sam(0.01, 0.05, s.bias_epochs), sam(0.01, 0.1, s.bias_epochs_second))
        case "sim_bn":  # Figure 2a
            first, second = s.batch_norm_epochs, s.batch_norm_epochs_second
            return (sam(0.005, 0.1, first), *([sam(0.003, 1.0, second)] if second else []))
        case _:  # Figure 6b
            return tuple(sam(0.01, rho, s.layer_norm_epochs, 10.0) for rho in (0.1, 0.5, 1.0))


def data_of(seed: int, s: Settings) -> Dataset:
    """Return the training and test set of a seed."""
    return xor(d=s.d, n=s.n, seed=seed, n_test=s.n_test)


def run_name(key: str, algorithm: str, seed: int) -> str:
    """Return a run's name."""
    return f"{key}-{algorithm}-seed{seed}"


def plan(s: Settings) -> list[Planned]:
    """Return all runs; Sim-BN's 1-SAM, by far the dearest, comes first."""
    order = sorted(
        ((row.key, algorithm) for row in ROWS for algorithm in ALGORITHMS),
        key=lambda pair: (
            ("sim_bn-sam", "bias-sam").index("-".join(pair))
            if "-".join(pair) in ("sim_bn-sam", "bias-sam")
            else 2
        ),
    )
    return [
        Planned(
            run_name(key, algorithm, seed),
            RunConfig(
                arch=architecture(key, s),
                data=data_of(seed, s).spec,
                schedule=schedule(key, algorithm, s),
                seed=seed,
                dtype=s.dtype,
            ),
            ours=algorithm == "gd" and key.startswith("sim"),
        )
        for key, algorithm in order
        for seed in range(s.seeds)
    ]


def reference(key: str, s: Settings) -> float:
    """Return the trace a row is compared with, the mean over the seeds' data sets."""

    def one(data: Dataset) -> float:
        if key == "sim_bn":
            return batch_norm_xor(data)
        if key == "sim_ln":
            return layer_norm_floor(data, s.ln_epsilon)
        return bias_floor(data) if key == "bias" else no_bias_floor(data)

    return float(np.mean([one(data_of(seed, s)) for seed in range(s.seeds)]))


def analyse(s: Settings, preset: str, runs: Mapping[str, Run]) -> Findings:
    """Turn runs into the table, its pictures and the verdicts."""
    decisive = large_enough(s, PRESETS["lab"]) and preset != "quick"
    found = {row.key: _groups(runs, row.key, s) for row in ROWS}
    sound = {
        row.key: all(run.status == "done" for group in found[row.key].values() for run in group)
        for row in ROWS
    }
    floors = {row.key: reference(row.key, s) for row in ROWS}
    table = [
        {
            "network": row.short,
            "algorithm": label,
            **{name: _mean(group, name, first) for name in ("train_loss", "trace", "trace_ggn")},
            "reference": floors[row.key],
            **_error(group, first),
            "seeds": len(group),
        }
        for row in ROWS
        for algorithm, group in found[row.key].items()
        for label, first in _stages(row.key, algorithm)
    ]
    fit = {row.key: decisive and sound[row.key] for row in ROWS}
    verdicts = [_generalises(row, found[row.key]["sam"], fit[row.key]) for row in ROWS]
    verdicts.append(second_phase(found["sim_bn"]["sam"], fit["sim_bn"]))
    verdicts += [
        _reaches_bound(row, found[row.key]["sam"], floors[row.key], fit[row.key])
        for row in ROWS
        if row.key in ("bias", "sim_ln")
    ]
    verdicts.append(_flatter(found["bias"], fit["bias"]))
    panels = {row.key: _panels(row, found[row.key], floors[row.key]) for row in ROWS}
    plots = (_overview(panels, verdicts), *(_picture(row, panels[row.key]) for row in ROWS))
    return Findings(tuple(verdicts), {"table1": table}, plots, diverged(runs))


def _groups(runs: Mapping[str, Run], key: str, s: Settings) -> dict[str, list[Run]]:
    """Return algorithm → the runs there are, in the order of seeds."""
    return {
        algorithm: [
            runs[name]
            for seed in range(s.seeds)
            if (name := run_name(key, algorithm, seed)) in runs
        ]
        for algorithm in ALGORITHMS
    }


def _stages(key: str, algorithm: str) -> list[tuple[str, bool]]:
    """Return label and "is it the end of the first phase" of the moments to tell of."""
    if (key, algorithm) != ("sim_bn", "sam"):
        return [(ALGORITHMS[algorithm], False)]
    return [(f"{ALGORITHMS[algorithm]}, first phase", True), (ALGORITHMS[algorithm], False)]


def _values(group: list[Run], column: str, first: bool) -> list[float]:
    """Return a column at the end of each run, or at the end of its first phase."""
    if not first:
        return finals(group, column)
    return [after_first_phase(run, column) for run in group]


def _mean(group: list[Run], column: str, first: bool) -> float | None:
    return float(np.mean(_values(group, column, first))) if group else None


def _error(group: list[Run], first: bool) -> dict[str, float | None]:
    interval = Interval.of(_values(group, "test_error", first), 0.0, 1.0)
    return {
        "test_error": _mean(group, "test_error", first),
        "test_error_low": interval.low if interval else None,
        "test_error_high": interval.high if interval else None,
    }


def _generalises(row: Row, group: list[Run], decisive: bool) -> Verdict:
    def rule(error: Interval) -> tuple[bool | None, str]:
        if error.low <= THRESHOLD <= error.high:
            return None, f"the interval of the test error contains {THRESHOLD:g}"
        generalises = error.high < THRESHOLD
        side = "below" if generalises else "above"
        return generalises == row.paper, f"the test error's interval lies {side} {THRESHOLD:g}"

    does = "generalises" if row.paper else "does not generalise"
    first = row.key == "sim_bn"
    when = " in its first phase" if first else ""
    verdict = judge(
        f"wen2023.table1.{row.key}",
        f"1-SAM on the two-layer network {row.title} {does}{when} (test error)",
        _mark(row.paper),
        _values(group, "test_error", first),
        rule,
        decisive=decisive,
        within=(0.0, 1.0),
    )
    losses = _values(group, "train_loss", first)
    return on_minimum(verdict, losses, decisive=decisive, most=not row.paper)


def _reaches_bound(row: Row, group: list[Run], floor: float, decisive: bool) -> Verdict:
    return near(
        f"wen2023.sec6.reaches_bound.{row.key}",
        f"1-SAM {row.title} reaches the lower bound of the trace, approximately (trace/bound)",
        [value / floor for value in finals(group, "trace_ggn")],
        decisive=decisive,
    )


def _flatter(groups: dict[str, list[Run]], decisive: bool) -> Verdict:
    traces = (finals(groups[algorithm], "trace_ggn") for algorithm in ("sam", "gd"))
    pairs = zip(*traces, strict=False)
    return below(
        "wen2023.table1.flatter",
        "with bias, 1-SAM's minimum is flatter than gradient descent's (trace ratio)",
        [sam / gd for sam, gd in pairs],
        1,
        decisive=decisive,
    )


def _panels(row: Row, groups: dict[str, list[Run]], floor: float) -> dict[str, Curves]:
    """Return the three panels of a row: training loss, test error, sharpness."""
    loss, error, trace = (
        curves(groups, ALGORITHMS, column) for column in ("train_loss", "test_error", "trace_ggn")
    )
    line = Reference(f"{row.reference}: {floor:.2f}", floor)
    chance = (Reference("chance", 0.5, above=True),)
    return {
        "loss": Curves("training loss", "training loss", loss, yscale="log"),
        "error": Curves("test error", "test error", error, chance, ylim=(-0.02, 0.6)),
        "trace": Curves("sharpness", "Gauss–Newton trace", trace, (line,), yscale="log"),
    }


def _measured(row: Row, verdict: Verdict) -> bool | None:
    """Return whether 1-SAM generalises here, or None if that was not assessed."""
    return None if verdict.holds is None else verdict.holds == row.paper


def _mark(generalises: bool | None) -> str:
    return {True: "✓", False: "✗", None: "?"}[generalises]


def _picture(row: Row, panels: dict[str, Curves]) -> Plot:
    return Plot(
        f"table1-{row.key}",
        f"Two-layer ReLU network {row.title}",
        (tuple(panels.values()),),
        caption="Lines: mean over seeds. Bands: smallest to largest.",
    )


def _overview(panels: dict[str, dict[str, Curves]], verdicts: list[Verdict]) -> Plot:
    top, bottom = [], []
    for row, verdict in zip(ROWS, verdicts, strict=False):
        title = f"{row.title}\npaper {_mark(row.paper)}   here {_mark(_measured(row, verdict))}"
        top.append(dataclasses.replace(panels[row.key]["error"], title=title))
        bottom.append(dataclasses.replace(panels[row.key]["trace"], title=""))
    return Plot(
        "table1-overview",
        "Does sharpness minimisation generalise? It depends on the architecture",
        (tuple(top), tuple(bottom)),
        caption="✓ 1-SAM generalises, ✗ it does not, ? not assessed; BatchNorm in its first phase. "
        "Lines: mean over seeds. Bands: smallest to largest.",
    )


EXPERIMENT = Experiment(
    id="wen2023/table1",
    source="Wen, Li & Ma 2023",
    figure="Table 1",
    claim="1-SAM generalises without bias, with simplified BatchNorm and with simplified "
    "LayerNorm, and does not generalise with bias",
    presets=PRESETS,
    plan=plan,
    analyse=analyse,
    module=__name__,
)
