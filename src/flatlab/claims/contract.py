"""What a claim is: a statement of a source, and a check that computes evidence for or against it.

A check is a generator of `Line`s. Each compares a measured number with what the statement says:

    @claim("wen2023.eq3", "Section 4.1, eq. (3)", "inequality",
           "‖∇f(x)‖² ≥ 2‖x'‖|f(x)| for every network with bias")
    def eq3(trial):
        ...
        yield at_least("smallest ‖∇f‖²/(2‖x'‖|f|) over 1,000 random networks", ratio, 1.0)

A misprinted statement is checked twice: the corrected one by ordinary lines, and the printed one by
lines inside `printed`, which must fail. Together the lines give the claim its `Word`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ..randomness import generator
from .lines import Line, Lines

ClaimKind = Literal["definition", "identity", "construction", "inequality", "rate", "probabilistic",
               "empirical", "text"]  # fmt: skip
Word = Literal["holds", "holds corrected", "consistent", "refuted", "fails", "broken",
               "by experiment", "not checkable", "not yet"]  # fmt: skip

KINDS: dict[ClaimKind, str] = {
    "definition": "what a term means, tried on examples",
    "identity": "two sides that must be equal",
    "construction": "parameters with promised properties",
    "inequality": "tried on random and optimised instances: can be refuted, not proved",
    "rate": "a fitted slope or a bounded ratio: consistent or not, never proved",
    "probabilistic": "a measured frequency with its interval",
    "empirical": "what training does",
    "text": "words, titles and tables",
}
WORDS: dict[Word, str] = {
    "holds": "everything checked is as stated",
    "holds corrected": "the printed statement fails, the corrected one holds",
    "consistent": "a rate whose fitted exponents agree with the statement",
    "refuted": "a counterexample was expected and found; there is no corrected statement",
    "fails": "something expected to hold does not",
    "broken": "the check itself failed, so it says nothing about the claim",
    "by experiment": "decided by training: see the experiment named",
    "not checkable": "no finite computation decides it; the reason is given",
    "not yet": "listed, its check is still to be written",
}


@dataclass(frozen=True)
class Trial:
    """The circumstances of a check.

    Attributes:
        seed: Decides all random instances.
        thorough: Whether to use larger sizes and more starts; `size` chooses.
    """

    seed: int = 0
    thorough: bool = False

    def rng(self, purpose: str, index: int = 0) -> np.random.Generator:
        """Return a fresh generator for one use; always the same for a seed."""
        return generator(self.seed, f"claim:{purpose}", index)

    def size(self, quick: Any, thorough: Any) -> Any:
        """Return one of two values."""
        return thorough if self.thorough else quick


Check = Callable[[Trial], Lines]


def printed(line: Line) -> Line:
    """Mark a line as being about the printed statement: it must fail."""
    return replace(line, what=f"as printed: {line.what}", of_printed=True)


@dataclass(frozen=True)
class Claim:
    """A statement and its check.

    Attributes:
        id: "source.place".
        where: Section, theorem or equation of the source.
        kind: One of `KINDS`.
        says: The statement in our words, with its formula; the corrected one if there is one.
        as_printed: What is printed, where that is wrong.
        errata: Names of the errata that the check decides, such as "E1".
        expected: The word that its check should give.
        note: What the check cannot show, or why there is none.
        experiment: The experiment that decides it, for `kind` "empirical".
        check: The check, or None.
    """

    id: str
    where: str
    kind: ClaimKind
    says: str
    as_printed: str = ""
    errata: tuple[str, ...] = ()
    expected: Word = "holds"
    note: str = ""
    experiment: str = ""
    check: Check | None = field(default=None, repr=False)

    @property
    def source(self) -> str:
        """The part of the id before the first dot."""
        return self.id.partition(".")[0]

    def verify(self, trial: Trial) -> Evidence:
        """Run the check."""
        lines = tuple(self.check(trial)) if self.check is not None else ()
        if self.check is not None and not any(line.holds is not None for line in lines):
            raise RuntimeError(f"the check of {self.id} judged nothing")
        return Evidence(self.id, self._word(lines), lines)

    def _word(self, lines: tuple[Line, ...]) -> Word:
        if self.check is None:
            return self.expected
        good = all(line.holds is not False for line in lines if not line.of_printed)
        misprints = [line for line in lines if line.of_printed]
        bad = all(line.holds is False and line.clear for line in misprints)
        if not (good and bad and bool(misprints) == bool(self.as_printed)):
            return "fails"
        return self.expected


@dataclass(frozen=True)
class Evidence:
    """What a check found."""

    id: str
    word: Word
    lines: tuple[Line, ...]


def claim(
    id: str,
    where: str,
    kind: ClaimKind,
    says: str,
    *,
    as_printed: str = "",
    errata: tuple[str, ...] = (),
    expected: Word | None = None,
    note: str = "",
) -> Callable[[Check], Claim]:
    """Turn the decorated check into a claim; the arguments are the attributes of `Claim`.

    With `as_printed` the check needs `printed` lines. By default `expected` is "consistent" for a
    rate, "holds corrected" where something else is printed, and "holds" otherwise.
    """
    word: Word = expected or (
        "consistent" if kind == "rate" else "holds corrected" if as_printed else "holds"
    )

    def made(check: Check) -> Claim:
        return Claim(id, where, kind, says, as_printed, errata, word, note, check=check)

    return made


def by_experiment(
    id: str, where: str, says: str, experiment: str = "", *, note: str = "", as_printed: str = "",
    errata: tuple[str, ...] = (),
) -> Claim:  # fmt: skip
    """Return a claim about training; by default the experiment of the same name decides it."""
    by = experiment or id.replace(".", "/", 1)
    return Claim(id, where, "empirical", says, as_printed, errata, "by experiment", note, by)


def not_checkable(
    id: str, where: str, kind: ClaimKind, says: str, why: str, as_printed: str = "",
    errata: tuple[str, ...] = (),
) -> Claim:  # fmt: skip
    """Return a claim that no finite computation decides, or whose words alone are misprinted."""
    return Claim(id, where, kind, says, as_printed, errata, "not checkable", why)


def not_yet(source: str, *rows: tuple[str, str, ClaimKind, str]) -> tuple[Claim, ...]:
    """Return claims that are only listed, each from its place, where, kind and statement."""
    return tuple(
        Claim(f"{source}.{place}", where, kind, says, expected="not yet")
        for place, where, kind, says in rows
    )
