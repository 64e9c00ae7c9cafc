"""The stages of training at which Sim-BN is judged: the state of a network and its history."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...models import Params
from ...training.run import Run
from ..compared import Compared, after_first_phase, at
from ..contract import Verdict
from ..judging import FRACTION, INTERPOLATES, THRESHOLD, below, on_minimum
from ._figure2b import carried_by_four

NEARLY_ZERO = 0.9  # training loss; the zero function's is 1


@dataclasses.dataclass(frozen=True)
class Stage:
    """The end of one of an arm's phases.

    Attributes:
        key: Its name in claims.
        label: Its name in tables and sentences.
        arm: The arm's key.
        last: Whether it is the end of the last phase, not of the first.
        needs: The preset whose epochs are enough to say that signs or trace are not reached.
        readable: Whether to judge the weights too, not only the network's outputs.
    """

    key: str
    label: str
    arm: str
    last: bool
    needs: str = "lab"
    readable: bool = True

    def fit(self, found: Compared) -> bool:
        """Return whether it can be judged: sizes are large enough and every run reached it."""
        return found.decisive and not self.lost(found)

    def lost(self, found: Compared) -> int:
        """Return how many runs diverged before it."""
        runs = found.runs[self.arm].values()
        there = [run.status == "done" or (not self.last and bool(run.ends)) for run in runs]
        return there.count(False)

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
    first = np.mean([after_first_phase(run, "train_loss") for run in runs])
    loss = np.mean([run.final["train_loss"] for run in runs])
    left = max(leaves_minimum(run) for run in runs)
    zero = ", as for a network near the zero function" if loss > NEARLY_ZERO else ""
    return (
        f"the training loss was {first:.1e} at the end of the first phase, is first logged "
        f"above {INTERPOLATES} at most {left:,} epochs later, and ends at {loss:.3f}{zero}"
    )


def second_phase(found: Compared, key: str, decisive: bool) -> Verdict:
    """Judge Table 1's claim on Sim-BN at the end of the second phase."""
    verdict = below(
        "wen2023.table1.sim_bn_second",
        "1-SAM with simplified BatchNorm generalises after its second phase, of radius 1, too "
        "(test error)",
        found.final(key, "test_error"),
        THRESHOLD,
        decisive=decisive,
        within=FRACTION,
        paper="✓",
    )
    losses = found.final(key, "train_loss")
    verdict = on_minimum(verdict, losses, decisive=decisive)
    if verdict.holds is False and np.mean(losses) >= INTERPOLATES:
        return dataclasses.replace(verdict, because=off_minimum(list(found.runs[key].values())))
    return verdict


def leaves_minimum(run: Run) -> int:
    """Return after how many epochs of the second phase a large training loss is first logged."""
    begin = run.config.schedule[0].epochs
    epochs, losses = run.columns["epoch"], run.columns["train_loss"]
    return int(epochs[(epochs > begin) & (losses >= INTERPOLATES)].min(initial=epochs[-1])) - begin
