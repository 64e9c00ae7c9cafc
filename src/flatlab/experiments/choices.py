"""Choices that a source leaves open, varied one at a time: does an answer depend on them?

A scenario is an arm with its answer: it generalises, or it does not. A variation changes one thing
in a scenario's configuration; a case is the result. The answer does not depend on a choice if in
every case the whole interval over seeds lies on the scenario's side of the threshold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..plots import Plot, Reference
from ..training.config import RunConfig
from ..training.run import Run
from .arms import Arm
from .compared import falling
from .contract import FRACTION, Fit, Interval, Verdict
from .judging import THRESHOLD, Rule, judge
from .showing import DOTS, error_and_trace, said, score

BASE = "base"
UNFITTED = 0.05  # training loss above which a network has not fitted its data
SAME = Rule("above", 0, "the margin", touch=None)
Change = Callable[[RunConfig], RunConfig]


class Variation(NamedTuple):
    """One change to the configuration of some scenarios."""

    choice: str
    key: str  # unique among all variations
    label: str
    scenarios: tuple[str, ...]  # the keys of those that it is tried on
    change: Change


def varied(scenario: Arm, key: str, label: str, change: Change = lambda config: config) -> Arm:
    """Return a scenario with a variation; its key is "scenario-variation"."""
    return dataclasses.replace(
        scenario,
        key=f"{scenario.key}-{key}",
        label=f"{scenario.label}: {label}",
        config=lambda seed: change(scenario.config(seed)),
    )


@dataclasses.dataclass(frozen=True)
class Case:
    """The result of one variation on one scenario."""

    choice: str  # the choice varied, or `BASE`
    label: str
    scenario: Arm
    errors: tuple[float, ...]  # the final test error of each seed
    runs: tuple[Run, ...]
    threshold: float = THRESHOLD

    @property
    def diverged(self) -> int:
        """How many of the runs diverged."""
        return sum(run.status == "diverged" for run in self.runs)

    @property
    def margins(self) -> list[float]:
        """How far each seed's test error lies on the answer's side of the threshold."""
        sign = 1 if self.scenario.generalises else -1
        return [sign * (self.threshold - error) for error in self.errors]

    @property
    def within(self) -> tuple[float, float]:
        """The smallest and the largest possible margin."""
        ends = (self.threshold - 1, self.threshold)
        return ends if self.scenario.generalises else (-ends[1], -ends[0])

    @property
    def agrees(self) -> bool | None:
        """Whether it gives the scenario's answer; None if undecided."""
        if self.diverged:
            return False
        if not self.errors:
            return None
        return SAME.decide(Interval.of(self.margins, *self.within) or Interval(*self.margins * 3))

    def column(self, name: str) -> tuple[float, ...]:
        """Return a column's last values, none if a run diverged."""
        return () if self.diverged else tuple(run.final[name] for run in self.runs)

    def words(self) -> str:
        """Say in a few words how runs that did not diverge ended."""
        where = f"{self.label} on {self.scenario.label}"
        error, wrong = said(self.errors, FRACTION), self.agrees is not True
        falls = self.scenario.generalises and wrong and falling(self.runs, "test_error")
        loss = float(np.mean(self.column("train_loss")))
        fitted = "" if loss < UNFITTED else f" and training loss {loss:.2f}"
        return f"{where} has test error {error}{fitted}{', still falling' if falls else ''}"


def farthest(cases: Sequence[Case]) -> Case:
    """Return the case that speaks most against "the answer does not depend on it".

    The opposite answer is the strongest evidence; then divergence, then an undecided answer.
    """
    rank = {False: 0, None: 2, True: 3}

    def place(case: Case) -> tuple[int, float]:
        return (1, 0.0) if case.diverged else (rank[case.agrees], float(np.mean(case.margins)))

    return min(cases, key=place)


def against(cases: Sequence[Case]) -> str:
    """Name the cases that speak against "the answer does not depend on it".

    Those are the cases with another answer and the diverged ones; without any, the undecided ones;
    without those, the case that `farthest` returns.
    """
    lost: dict[str, list[str]] = {}
    for case in cases:
        if case.diverged:
            lost.setdefault(case.label, []).append(case.scenario.label)
    other = [case.words() for case in cases if case.agrees is False and not case.diverged]
    other += [f"{label} diverges on {', '.join(where)}" for label, where in lost.items()]
    undecided = [case.words() for case in cases if case.agrees is None]
    return "; ".join(other or undecided or [farthest(cases).words()])


def verdict(claim: str, statement: str, cases: Sequence[Case], *, decisive: Fit | bool) -> Verdict:
    """Judge "the answer is the same in all these cases" by the case that speaks most against it.

    The number is that case's margin: how far its test error lies on the answer's side.
    """
    found = [case for case in cases if case.errors]
    worst = farthest(found) if found else None
    if worst and worst.diverged and decisive:
        return Verdict(claim, statement, "silent", None, None, None, False, against(found))
    values, within = (worst.margins, worst.within) if worst else ([], FRACTION)
    made = judge(claim, statement, values, SAME, decisive=decisive, within=within, paper="silent")
    if not worst or not decisive:
        return made
    if made.holds and len(found) < len(cases):
        missing = [f"{case.label} on {case.scenario.label}" for case in cases if not case.errors]
        reason = f"there is no finished run of {', '.join(missing)}"
        return dataclasses.replace(made, holds=None, reason=reason)
    seed = "one seed: " if len(values) == 1 else ""
    return dataclasses.replace(made, reason=f"{seed}{against(found)}")


def finding(named: Sequence[tuple[str, Verdict]], held: str) -> str:
    """Say on which choices the answers depend: (choice, verdict on "it does not")."""

    def those(word: str) -> str:
        return "; ".join(f"{name} ({v.reason})" for name, v in named if v.word == word)

    parts = []
    if turned := those("fails"):
        count = sum(v.word == "fails" for _, v in named)
        parts.append(f"{count} of {len(named)} choices matter: {turned}")
    if undecided := those("not assessed"):
        parts.append(f"not decided: {undecided}")
    if same := [name for name, v in named if v.word == "holds"]:
        parts.append(f"{held}: {', '.join(same)}")
    return ". ".join(part[0].upper() + part[1:] for part in parts) + "."


def table(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Return a row for each case: its test error with the interval, its traces and its answer."""
    words = {True: "same", False: "other", None: "undecided"}
    return [
        {
            "network": case.scenario.label,
            "choice": case.choice,
            "variation": case.label,
            **score("test_error", () if case.diverged else case.errors),
            **{
                name: float(np.mean(column)) if (column := case.column(name)) else None
                for name in ("trace", "trace_ggn")
            },
            "answer": "diverged" if case.diverged else words[case.agrees],
            "seeds": len(case.runs),
        }
        for case in cases
    ]


def picture(name: str, title: str, cases: Sequence[Case]) -> Plot:
    """Return the picture of one scenario: test error and trace of each variation."""

    def label(case: Case) -> str:
        before = "" if case.choice == BASE else f"{case.choice.replace('_', ' ')}: "
        return f"{before}{case.label}{' (diverged)' if case.diverged else ''}"

    rows = {
        f"{case.choice} {case.label}": (
            label(case),
            case.choice,
            () if case.diverged else case.errors,
            case.column("trace_ggn"),
        )
        for case in cases
    }
    panels = error_and_trace(rows, (Reference("threshold", THRESHOLD), Reference("chance", 0.5)))
    return Plot(name, title, (panels,), f"Colours: what is varied. {DOTS}")
