"""Claims that an experiment decides: what the stored results say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..experiments.results import NOT_THE_PAPERS, Judged, Results, VerdictWord
from .contract import Claim


@dataclass(frozen=True)
class Decided:
    """What stored results say of a claim: how many of its verdicts hold, fail and are open.

    The `verdict` is "fails" if one of them does, "holds" if all do, else "not assessed".
    """

    verdict: VerdictWord
    holds: int
    fails: int
    open: int
    preset: str
    folder: str

    def __str__(self) -> str:
        counts = {"hold": self.holds, "fail": self.fails, "not assessed": self.open}
        said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        return f"{self.verdict} ({said}; {self.folder})"


def decided(claim: Claim, results: Mapping[Path, Results]) -> Decided | None:
    """Return what results say of a claim, or None if they say nothing.

    Of several results the best is taken: one that decides a verdict before one that decides none,
    then one with a preset's own settings (its number of seeds may differ), then the one that
    decides most of the claim's verdicts, then the first.
    """
    found = [
        (_counted(verdicts, made.preset, folder), made.changes.keys() <= {"seeds"})
        for folder, made in results.items()
        if (verdicts := _verdicts(claim, made))
    ]

    def rank(each: tuple[Decided, bool]) -> tuple[bool, bool, int]:
        decides = each[0].holds + each[0].fails
        return decides > 0, each[1], decides

    return max(found, key=rank)[0] if found else None


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
    word: VerdictWord = "fails" if fails else "holds" if holds == len(words) else "not assessed"
    return Decided(word, holds, fails, len(words) - holds - fails, preset, folder.as_posix())
