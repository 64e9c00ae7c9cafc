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

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ..randomness import generator
from ..theory.frequencies import CONFIDENCE, clopper_pearson

Kind = Literal["definition", "identity", "construction", "inequality", "rate", "probabilistic",
               "empirical", "text"]  # fmt: skip
Relation = Literal["=", "≤", "≥", "<", ">", "is", "in"]
Word = Literal["holds", "holds corrected", "consistent", "refuted", "fails", "broken",
               "by experiment", "not checkable", "not yet"]  # fmt: skip

KINDS: dict[Kind, str] = {
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

CONTRADICTION = 0.999
CLEARLY = 1e-6
"""Relative error above which a printed statement counts as wrong."""


@dataclass(frozen=True)
class Line:
    """One piece of evidence.

    Attributes:
        what: What was measured, with its sizes.
        measured: The number.
        relation: How it should stand to `expected`.
        expected: The number it should have, or the bound.
        holds: Whether it does, within the tolerance; None for a number that is only shown.
        of_printed: Whether it is about the statement as printed, which is known to be wrong.
        low: Lower end of the 95 % interval of `measured`, if it is random.
        high: Upper end of it.
    """

    what: str
    measured: float
    relation: Relation
    expected: float
    holds: bool | None
    of_printed: bool = False
    low: float | None = None
    high: float | None = None

    @property
    def clear(self) -> bool:
        """Whether the two numbers are finite and differ by more than rounding."""
        scale = max(math.fabs(self.measured), math.fabs(self.expected))
        apart = math.fabs(self.measured - self.expected) > CLEARLY * scale
        return math.isfinite(scale) and apart


def equal(
    what: str, measured: SupportsFloat, expected: SupportsFloat, rel: float = 1e-9, abs: float = 0
) -> Line:
    """Return a line that requires equality up to rounding."""
    m, e = float(measured), float(expected)
    return Line(what, m, "=", e, math.isclose(m, e, rel_tol=rel, abs_tol=abs))


def near_zero(what: str, measured: SupportsFloat, tolerance: float = 1e-10) -> Line:
    """Return a line that requires a zero: the largest error of many, a loss, a distance."""
    m = float(measured)
    return Line(what, m, "≤", tolerance, -tolerance <= m <= tolerance)


def at_least(
    what: str, measured: SupportsFloat, bound: SupportsFloat, slack: float = 1e-10
) -> Line:
    """Return a line that requires measured ≥ bound, up to a slack relative to the bound's size."""
    m, b = float(measured), float(bound)
    return Line(what, m, "≥", b, m >= b - slack * max(1.0, math.fabs(b)))


def at_most(what: str, measured: SupportsFloat, bound: SupportsFloat, slack: float = 1e-10) -> Line:
    """Return a line that requires measured ≤ bound, up to a slack relative to the bound's size."""
    m, b = float(measured), float(bound)
    return Line(what, m, "≤", b, m <= b + slack * max(1.0, math.fabs(b)))


def above(what: str, measured: SupportsFloat, bound: SupportsFloat) -> Line:
    """Return a line that requires measured > bound, strictly."""
    return Line(what, float(measured), ">", float(bound), float(measured) > float(bound))


def below(what: str, measured: SupportsFloat, bound: SupportsFloat) -> Line:
    """Return a line that requires measured < bound, strictly."""
    return Line(what, float(measured), "<", float(bound), float(measured) < float(bound))


def true(what: str, fact: bool | np.bool_) -> Line:
    """Return a line for a fact that must be true."""
    return Line(what, float(bool(fact)), "is", 1.0, bool(fact))


def shown(what: str, measured: SupportsFloat) -> Line:
    """Return a line that shows a number and judges nothing."""
    return Line(what, float(measured), "is", float(measured), None)


def frequency(
    what: str, hits: int, trials: int, *, at_most: float | None = None,
    at_least: float | None = None,
) -> Line:  # fmt: skip
    """Return a measured frequency that must be at most, or at least, a probability.

    It fails if the whole two-sided 99.9 % Clopper–Pearson interval lies on the wrong side. So it
    can contradict a bound on a probability, but it cannot confirm one that is nearly attained. The
    interval shown is the 95 % one.

    >>> frequency("failures", 1, 100, at_most=0.05).holds
    True
    >>> frequency("failures", 30, 100, at_most=0.05).holds
    False
    """
    low, high = clopper_pearson(hits, trials)
    least, most = clopper_pearson(hits, trials, CONTRADICTION)
    if at_most is not None:
        return Line(what, hits / trials, "≤", at_most, least <= at_most, low=low, high=high)
    if at_least is None:
        raise ValueError("frequency needs at_most or at_least")
    return Line(what, hits / trials, "≥", at_least, most >= at_least, low=low, high=high)


def estimate(what: str, samples: ArrayLike, expected: float, sigmas: float = 4.0) -> Line:
    """Return a Monte-Carlo mean that must be within some standard errors of a number."""
    values = np.asarray(samples, dtype=float)
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))
    half = special.ndtri((1 + CONFIDENCE) / 2) * error
    holds = math.fabs(mean - expected) <= sigmas * error + 1e-12 * max(1.0, math.fabs(expected))
    return Line(what, mean, "=", float(expected), holds, low=mean - half, high=mean + half)


def slope(
    what: str, x: ArrayLike, y: ArrayLike, *, at_most: float | None = None,
    near: float | None = None, within: float = 0.3,
) -> Line:  # fmt: skip
    """Return the slope of log y over log x with its 95 % interval.

    With `at_most` it fails if the slope is larger; with `near`, if the slope differs from it by
    more than `within`. The interval is only shown.

    >>> slope("a line", [1, 2, 4], [3, 6, 12], near=1.0).holds
    True
    """
    from scipy import stats  # slow to import

    found = stats.linregress(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)))
    count = np.asarray(x).size
    if count < 3:
        raise ValueError("a slope needs three points or more")
    half = special.stdtrit(count - 2, (1 + CONFIDENCE) / 2) * found.stderr
    value, low, high = float(found.slope), float(found.slope - half), float(found.slope + half)
    if near is not None:
        return Line(what, value, "=", near, math.fabs(value - near) <= within, low=low, high=high)
    if at_most is None:
        raise ValueError("slope needs at_most or near")
    return Line(what, value, "≤", at_most, value <= at_most, low=low, high=high)


def printed(line: Line) -> Line:
    """Mark a line as being about the printed statement: it must fail."""
    return replace(line, what=f"as printed: {line.what}", of_printed=True)


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


Check = Callable[[Trial], Iterable[Line]]


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
    kind: Kind
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
    kind: Kind,
    says: str,
    *,
    as_printed: str = "",
    errata: tuple[str, ...] = (),
    expected: Word | None = None,
    note: str = "",
) -> Callable[[Check], Claim]:
    """Turn the decorated check into a claim.

    Args:
        id: "source.place".
        where: Section, theorem or equation.
        kind: One of `KINDS`.
        says: The statement in our words; the corrected one where the printed one is wrong.
        as_printed: The wrong statement as it is printed. The check then has `printed` lines.
        errata: Errata that it decides.
        expected: By default "consistent" for a rate, "holds corrected" where something else is
            printed, and "holds" otherwise.
        note: What the check cannot show.
    """
    word: Word = expected or (
        "consistent" if kind == "rate" else "holds corrected" if as_printed else "holds"
    )

    def made(check: Check) -> Claim:
        return Claim(id, where, kind, says, as_printed, errata, word, note, check=check)

    return made


def by_experiment(id: str, where: str, says: str, experiment: str, note: str = "") -> Claim:
    """Return a claim about training, which an experiment decides."""
    return Claim(
        id, where, "empirical", says, expected="by experiment", note=note, experiment=experiment
    )


def not_checkable(
    id: str, where: str, kind: Kind, says: str, why: str, as_printed: str = "",
    errata: tuple[str, ...] = (),
) -> Claim:  # fmt: skip
    """Return a claim that no finite computation decides, or whose words alone are misprinted."""
    return Claim(id, where, kind, says, as_printed, errata, "not checkable", why)


def not_yet(id: str, where: str, kind: Kind, says: str) -> Claim:
    """Return a claim that is only listed."""
    return Claim(id, where, kind, says, expected="not yet")
