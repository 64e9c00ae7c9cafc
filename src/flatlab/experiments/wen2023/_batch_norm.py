"""Sim-BN: the stages of training at which it is judged, and the features in its first layer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...models import Params
from ...theory.table2 import NEURONS
from ...training.run import Run
from ..compared import Compared, at, first_phase, unfit
from ..contract import FRACTION, Fit, Verdict
from ..judging import INTERPOLATES, THRESHOLD, How, below, on_minimum

NEARLY_ZERO = 0.9  # training loss; the zero function's is 1


@dataclasses.dataclass(frozen=True)
class Stage:
    """The end of one of an arm's phases: its key in claims, its label in tables and sentences."""

    key: str
    label: str
    arm: str
    last: bool  # it is the end of the last phase, not of the first
    needs: str = "lab"  # the preset with enough epochs to say that signs or trace are not reached
    readable: bool = True  # the weights are judged too, not only the network's outputs

    def fit(self, found: Compared) -> Fit:
        """Return whether it can be judged: sizes are large enough and every run reached it."""
        if not found.decisive:
            return found.decisive
        runs = found.runs[self.arm].items()
        short = {found.run_name(self.arm, k): run for k, run in runs if self.last or not run.ends}
        return unfit(short)

    def value(self, run: Run, column: str, share: float = 1.0) -> float:
        """Return a column of the history after a share of the stage's phase."""
        first = run.config.schedule[0].epochs
        begin, length = (first, run.config.epochs - first) if self.last else (0, first)
        if self.last and share == 1:
            return run.final[column]
        return at(run, round(begin + share * length), column)

    def params(self, run: Run) -> Params:
        """Return the weights; if the first phase diverged, the last finite ones."""
        return dict(run.params if self.last or not run.ends else run.ends[0])


def over_infimum(found: Compared, stage: Stage, share: float = 1.0) -> list[float]:
    """Return the Gauss–Newton trace divided by the xor network's infimum on the same data.

    `share` is the share of the stage's last phase that has passed.
    """
    floors = found.floors[stage.arm]
    return [
        stage.value(run, "trace_ggn", share) / floors[seed]
        for seed, run in found.runs[stage.arm].items()
    ]


def because(found: Compared, stage: Stage) -> str:
    """Say what happened to the network up to a stage, averaged over seeds."""
    runs = list(found.runs[stage.arm].values())
    loss = float(np.mean([stage.value(run, "train_loss") for run in runs]))
    if stage.last and loss >= INTERPOLATES:
        return off_minimum(runs)
    half, end = (float(np.mean(over_infimum(found, stage, share))) for share in (0.5, 1.0))
    carried = np.mean([carried_by_four(stage.params(run)) for run in runs])
    return (
        f"in the second half of the phase the trace went from {half:.3f} to {end:.3f} of the xor "
        f"network's infimum, and the four largest neurons carry {carried:.0%} of the output weights"
    )


def off_minimum(runs: Sequence[Run]) -> str:
    """Say how networks left the minimum in the second phase."""
    first = np.mean([first_phase(run).final["train_loss"] for run in runs])
    loss = np.mean([run.final["train_loss"] for run in runs])
    left = max(leaves_minimum(run) for run in runs)
    zero = ", as for a network near the zero function" if loss > NEARLY_ZERO else ""
    return (
        f"the training loss was {first:.1e} at the end of the first phase, is first logged "
        f"above {INTERPOLATES} at most {left:,} epochs later, and ends at {loss:.3f}{zero}"
    )


def second_phase(found: Compared, key: str, decisive: Fit) -> Verdict:
    """Judge Table 1's claim on Sim-BN at the end of the second phase."""
    claim, after = found.claim("sim_bn_second"), "after its second phase, of radius 1, too"
    said = f"1-SAM with simplified BatchNorm generalises {after} (test error)"
    errors, losses = (found.final(key, column) for column in ("test_error", "train_loss"))
    how: How = {"decisive": decisive, "within": FRACTION, "paper": "✓"}
    verdict = on_minimum(below(claim, said, errors, THRESHOLD, **how), losses, decisive=decisive)
    if verdict.holds is False and np.mean(losses) >= INTERPOLATES:
        return dataclasses.replace(verdict, because=off_minimum(list(found.runs[key].values())))
    return verdict


def leaves_minimum(run: Run) -> int:
    """Return after how many epochs of the second phase a large training loss is first logged."""
    begin = run.config.schedule[0].epochs
    epochs, losses = run.columns["epoch"], run.columns["train_loss"]
    return int(epochs[(epochs > begin) & (losses >= INTERPOLATES)].min(initial=epochs[-1])) - begin


@np.errstate(over="ignore")  # the last weights of a run that diverged may be huge
def largest(params: Params, count: int = 4) -> list[int]:
    """Return the neurons with the largest weights, the largest first."""
    return [int(j) for j in np.argsort(-np.linalg.norm(params["W1"], axis=1))[:count]]


def patterns(params: Params) -> int:
    """Return how many of the four sign patterns of (w1, w2) the four largest neurons have."""
    return len({tuple(np.sign(params["W1"][j, :2])) for j in largest(params)})


def misalignment(params: Params) -> float:
    """Return the largest sine of the angles between the four largest neurons and their ±x1 ± x2."""
    rows = params["W1"][largest(params)].astype(float)
    lengths = np.linalg.norm(rows, axis=1)
    cosine = np.abs(rows[:, :2]).sum(1) / np.sqrt(2) / np.where(lengths > 0, lengths, 1)
    return float(np.sqrt(np.maximum(0, 1 - cosine**2)).max())


def columns(params: Params) -> tuple[float, float, float]:
    """Return the norms of the first two columns of W1 and the largest of the others."""
    norms = np.linalg.norm(params["W1"].astype(float), axis=0)
    return float(norms[0]), float(norms[1]), float(norms[2:].max(initial=0.0))


def other_columns(params: Params) -> float:
    """Return the largest norm of the other columns over the smaller norm of the first two."""
    one, two, rest = columns(params)
    least = min(one, two)
    return rest / least if least else math.inf


def carried_by_four(params: Params) -> float:
    """Return the share of the four largest neurons in Σ |γ_i a_i|."""
    weights = np.abs(params["gamma"].astype(float) * params["W2"].astype(float).ravel())
    return float(weights[largest(params)].sum() / (weights.sum() or 1.0))


def printed_neurons() -> list[dict[str, Any]]:
    """Return the paper's rows; the paper does not show biases and output weights."""
    return [
        {"weights": "paper", "w1": w1, "w2": w2, "rest": rest, "bias": None, "output": None}
        for w1, w2, rest in NEURONS
    ]


@np.errstate(over="ignore")
def neurons(label: str, params: Params) -> list[dict[str, Any]]:
    """Return a row for each of the four largest neurons."""
    return [
        {
            "weights": label,
            "w1": float(params["W1"][j, 0]),
            "w2": float(params["W1"][j, 1]),
            "rest": float(np.linalg.norm(params["W1"][j, 2:].astype(float))),
            "bias": float(params["b1"][j]),
            "output": float(params["gamma"][j] * params["W2"][j]),
        }
        for j in largest(params)
    ]


def column_norms(
    label: str, each: Sequence[tuple[float, float, float]], seeds: int | None
) -> dict[str, Any]:
    """Return a row with the norms of the columns, averaged over seeds."""
    one, two, rest = (float(norm) for norm in np.mean(each, axis=0))
    return {"weights": label, "first": one, "second": two, "largest_other": rest, "seeds": seeds}
