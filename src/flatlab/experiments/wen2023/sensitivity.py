"""What the paper leaves unsaid, varied one at a time: do the answers of Table 1 depend on it?

Source:   Wen, Li & Ma 2023, Table 1; rows 1a, 1b, 2a, 4a, 4b and 6b of their Table 2.
Command:  flatlab run wen2023/sensitivity
Seconds:  337 of training on one core (lab, 3 seeds, two runs at a time)
Claim:    not the paper's but ours: "the answer does not depend on this choice", for each choice.
Expected: every network stays on its side of a test error of 0.1, with the whole interval over
          seeds; a choice that moves a network to the other side matters, and is named.

docs/choices.md says which choices are varied and which are not. Here:
- Each arm is a row of Table 1 (1-SAM, or gradient descent for questions of weight decay) with one
  thing changed. Test sets, the threshold, outputs of 0 and the definition of sharpness need no new
  training.
- Half the loss has half the gradient. The normalised ascent does not change; the descent has in
  effect half the learning rate, and weight decay must double to keep its weight:
  lr (g/2 + λθ) = (lr/2)(g + 2λθ).
- `lab` shortens the epochs. Sim-BN, whose steps run through all examples, has width 200 and only
  its first phase. A test error that still falls at the end is reported as still falling.
- γ = 1 is tried at the paper's width, because the gradient that makes it diverge grows with width.
- Momentum μ multiplies the total effect of a gradient by 1/(1 − μ). If a run diverges at the
  printed learning rate, the rate times 1 − μ is tried too.
- A diverged run gives no answer, so a choice that diverges matters; the command then ends with the
  exit code of a divergence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ...data.catalogue import make
from ...plots import Plot
from ...specs import spec
from ...training.rows import on_test_set, outputs_on_test_set
from ...training.run import Run
from ...training.schedule import LogGrid
from ..arms import AnyArm, Arm, Comparison, Derived
from ..choices import BASE, Case, finding, picture, table, varied, verdict
from ..compared import Compared
from ..contract import Verdict
from ..judging import NEAR, near
from ..sizes import Count, lengths
from . import table1
from ._variations import ASCENDING, VARIATIONS

LOG = LogGrid(per_decade=0, regular=10)
THRESHOLDS = (0.05, 0.2)


@spec
class Settings(table1.Settings):
    """Sizes and lengths. Defaults are the paper's own; fields can be changed with --set."""

    batch_norm_width: Count = 500
    largest_test: Annotated[int, Field(ge=100)] = 100_000  # a tenth and a hundredth are tried too


SHORT = lengths(gd=20, no_bias=10, bias=(10, 10), batch_norm=(10, 0), layer_norm=4)
LONG = lengths(gd=12_000, no_bias=2_000, bias=(3_000, 6_000), batch_norm=(750, 0), layer_norm=300)
PRESETS = {
    "quick": Settings(
        seeds=1, width=40, batch_norm_width=30, d=6, n=30, n_test=200, largest_test=1000, **SHORT
    ),
    "lab": Settings(seeds=3, batch_norm_width=200, n_test=5_000, **LONG),
}


def scenarios(s: Settings) -> list[Arm]:
    """Return Table 1's networks under 1-SAM, and two of them under gradient descent."""

    def scenario(name: str, label: str, key: str, algorithm: str) -> Arm:
        width = s.batch_norm_width if key == "sim_bn" else s.width
        made = table1.arm(key, algorithm, dataclasses.replace(s, width=width))
        return dataclasses.replace(
            made,
            key=name,
            label=label,
            config=lambda seed: dataclasses.replace(made.config(seed), log=LOG),
            floor=None,
        )

    by_sam = [scenario(k, network.short, k, "sam") for k, network in table1.NETWORKS.items()]
    return [
        *by_sam,
        scenario("gd_no_bias", "GD, no bias", "no_bias", "gd"),
        scenario("gd_bias", "GD, bias", "bias", "gd"),
    ]


STATEMENTS = {
    BASE: "with this laboratory's choices the answers are the same as in Table 1",
    "initial_law": "the answers do not depend on the law of the initial weights",
    "first_layer": "the answers do not depend on the initial scale of the first layer",
    "gamma": "Sim-BN's answer does not depend on γ's shape, start and training",
    "statistics": "Sim-BN's answer does not depend on gradients through its statistics",
    "order": "the answers do not depend on the order of the examples",
    "ascent": "the answers do not depend on whether the ascent is normalised",
    "second_batch": "the answers do not depend on the example of 1-SAM's second gradient",
    "momentum": "the answers do not depend on momentum",
    "loss": "the answers do not depend on whether the loss has a factor ½",
    "weight_decay": "gradient descent's answers do not depend on the form of weight decay",
    "ln_epsilon": "Sim-LN's answer does not depend on ε",
    "norm_limit": "Sim-LN's answer does not depend on the limit of the first layer's norm",
    "phases": "the answers do not depend on how several rows of Table 2 follow each other",
    "dtype": "the answers do not depend on the dtype",
    "test_set": "the answers do not depend on the size of the test set",
    "zero_output": "the answers do not depend on whether an output of 0 is right or wrong",
    "threshold": "the answers do not depend on the test error that counts as generalising",
}


def _with_error(error: Callable[[Run], float]) -> Callable[[Run], Run]:
    """Return a function that replaces the test error at a run's end."""

    def changed(run: Run) -> Run:
        column = run.columns["test_error"].copy()
        column[-1] = error(run)
        return dataclasses.replace(run, columns={**run.columns, "test_error": column})

    return changed


def _on(size: int) -> Callable[[Run], Run]:
    return _with_error(
        lambda run: on_test_set(run, make({**run.config.data, "n_test": size}))["test_error"]
    )


@_with_error
def _zero_is_right(run: Run) -> float:
    return float(np.mean(run.dataset().y_test * outputs_on_test_set(run) < 0))


def read_again(s: Settings) -> list[tuple[str, str, str, Callable[[Run], Run]]]:
    """Return the variations without training: choice, key, label, and the change to a base run."""
    sizes = [s.largest_test // 100, s.largest_test // 10, s.largest_test]
    sets = [("test_set", f"test_{n}", f"{n:,} points", _on(n)) for n in sizes]
    return [*sets, ("zero_output", "zero", "f = 0 counts as right", _zero_is_right)]


def arms(s: Settings) -> list[AnyArm]:
    """Return each scenario unchanged, with each variation, and with those in `read_again`."""
    made: list[AnyArm] = []
    for scenario in scenarios(s):
        base = varied(scenario, BASE, BASE)
        made.append(base)
        made += [
            varied(scenario, v.key, v.label, v.change)
            for v in VARIATIONS
            if scenario.key in v.scenarios
        ]
        if scenario.key in ASCENDING:
            made += [
                Derived(f"{scenario.key}-{key}", f"{scenario.label}: {label}", base.key, change)
                for _, key, label, change in read_again(s)
            ]
    return made


def cases(found: Compared) -> list[Case]:
    """Return the case of every variation, with and without training."""
    made = []
    for scenario in scenarios(found.settings):

        def case(choice: str, key: str, label: str, of: str = "", scenario: Arm = scenario) -> Case:
            errors = found.final(f"{scenario.key}-{key}", "test_error")
            runs = found.runs[f"{scenario.key}-{of or key}"].values()
            return Case(choice, label, scenario, tuple(errors), tuple(runs))

        base = case(BASE, BASE, BASE)
        tried = [v for v in VARIATIONS if scenario.key in v.scenarios]
        made += [base, *(case(v.choice, v.key, v.label) for v in tried)]
        if scenario.key in ASCENDING:
            again = read_again(found.settings)
            made += [case(choice, key, label, BASE) for choice, key, label, _ in again]
            made += [
                dataclasses.replace(base, choice="threshold", label=f"below {t:.0%}", threshold=t)
                for t in THRESHOLDS
            ]
    return made


def judged(found: Compared, tried: list[Case]) -> dict[str, Verdict]:
    """Return choice → verdict on "the answer does not depend on it"."""
    made = {
        choice: verdict(
            f"wen2023.sensitivity.{choice}",
            f"{statement} (margin to the threshold)",
            [case for case in tried if case.choice == choice],
            decisive=found.decisive,
        )
        for choice, statement in STATEMENTS.items()
    }
    return {**made, "sharpness": _sharpness(found, tried)}


def _sharpness(found: Compared, tried: list[Case]) -> Verdict:
    """Judge the network whose Hessian trace is farthest from its Gauss–Newton part."""
    ratios = {
        case.scenario.label: [
            run.final["trace"] / run.final["trace_ggn"]
            for run in case.runs
            if run.final["trace_ggn"]  # 0 if no neuron is alive
        ]
        for case in tried
        if case.choice == BASE and case.scenario.key in ASCENDING
    }
    where = max(ratios, key=lambda key: max((abs(r - 1) for r in ratios[key]), default=0.0))
    made = near(
        "wen2023.sensitivity.sharpness",
        f"the Hessian's trace and its Gauss–Newton part agree within {NEAR:.0%} (ratio)",
        ratios[where],
        decisive=found.decisive,
        paper="silent",
    )
    if not found.decisive or made.measured is None:
        return made
    low, high = min(ratios[where]), max(ratios[where])
    said = f"the Hessian's trace over its Gauss–Newton part is {low:.2f} to {high:.2f} on {where}"
    return dataclasses.replace(made, reason=said)


def verdicts(found: Compared) -> list[Verdict]:
    """Judge every choice."""
    return list(judged(found, cases(found)).values())


def tables(found: Compared) -> dict[str, list[dict[str, Any]]]:
    """Return a row for each case."""
    return {"sensitivity": table(cases(found))}


def plots(found: Compared) -> tuple[Plot, ...]:
    """Return a picture for each scenario."""
    tried = [case for case in cases(found) if case.choice != "threshold"]
    return tuple(
        picture(
            f"sensitivity-{scenario.key}",
            f"{scenario.label}: {'generalises' if scenario.generalises else 'does not generalise'}."
            " On what does that depend?",
            [case for case in tried if case.scenario.key == scenario.key],
        )
        for scenario in scenarios(found.settings)
    )


def told(found: Compared) -> str:
    """Say on which choices the answers depend."""
    made = judged(found, cases(found))
    base = made.pop(BASE)
    begin = "" if base.holds else f"The base gives no clear answer: {base.reason}. "
    return begin + finding(list(made.items()), "no answer of Table 1 depends on")


COMPARISON = Comparison(
    id="wen2023/sensitivity",
    source="Wen, Li & Ma 2023",
    figure="what is left unsaid",
    title="On what do the answers of Table 1 depend?",
    claim="the answers of Table 1 do not depend on what the paper leaves unsaid",
    presets=PRESETS,
    arms=arms,
    verdicts=verdicts,
    finding=told,
    tables=tables,
    plots=plots,
)
EXPERIMENT = COMPARISON.experiment(__name__)
