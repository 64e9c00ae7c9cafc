"""Claims that an experiment decides: what the stored results say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..experiments.results import NOT_THE_PAPERS, Judged, Results, Word
from .contract import Claim


@dataclass(frozen=True)
class Decided:
    """What stored results say of a claim.

    Attributes:
        verdict: "fails" if one of its verdicts does, "holds" if all do, else "not assessed".
        holds: How many of its verdicts hold.
        fails: How many fail.
        open: How many are not assessed.
        preset: The preset they come from.
        folder: Where the results are.
    """

    verdict: Word
    holds: int
    fails: int
    open: int
    preset: str
    folder: str

    def __str__(self) -> str:
        counts = {"hold": self.holds, "fail": self.fails, "not assessed": self.open}
        said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        return f"{self.verdict} ({said}; {self.folder})"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def decided(claim: Claim, results: Mapping[Path, Results]) -> Decided | None:
    """Return what results say of a claim, or None if they say nothing.

    Of several results those count that decide most of the claim's verdicts; of equals the first.
    """
    found = [
        _counted(verdicts, made.preset, folder)
        for folder, made in results.items()
        if (verdicts := _verdicts(claim, made))
    ]
    return max(found, key=lambda one: one.holds + one.fails, default=None)


def _verdicts(claim: Claim, results: Results) -> Sequence[Judged]:
    """Return the verdicts on a claim: those named after it, or all of its experiment.

    Where the experiment asks more than the paper claims, the paper's claims count.
    """
    of_it = results.of(claim.experiment)
    named = [v for v in of_it if v.claim == claim.id or v.claim.startswith(f"{claim.id}.")]
    chosen = named or of_it
    return [v for v in chosen if v.paper not in NOT_THE_PAPERS] or chosen


def _counted(verdicts: Sequence[Judged], preset: str, folder: Path) -> Decided:
    words = [v.verdict for v in verdicts]
    holds, fails = words.count("holds"), words.count("fails")
    word: Word = "fails" if fails else "holds" if holds == len(words) else "not assessed"
    return Decided(word, holds, fails, len(words) - holds - fails, preset, folder.as_posix())
