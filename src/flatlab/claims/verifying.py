"""Checking claims: choose them, run their checks in processes, collect the results.

There is one job for each worker process, so that a process pays for its imports once. The claims
are dealt out to the jobs like cards, because neighbouring claims cost about the same. A check that
raises is reported as broken and stops no other. A check that takes its process down fails its
claim, and the remaining claims of that process are dealt out again.
"""

from __future__ import annotations

import collections
import contextlib
import difflib
import fnmatch
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, unknown, whole_number
from ..experiments import CATALOGUE
from ..experiments.results import stored
from ..jobs import Job, Outcome, run_jobs, usable_cores
from ..outside.functions import Report
from ..outside.tables import html_table
from . import Claim, Line, Trial, claims
from .contract import Word
from .decided import Decided, decided

TARGET = "flatlab.claims.verifying:check_claims"
# Words for claims that have neither a check nor an experiment to decide them.
UNCHECKED: tuple[Word, ...] = ("not checkable", "not yet")
# Called as on_event(id, kind) with kind "started" or "finished".
OnCheck = Callable[[str, str], None]


@dataclass(frozen=True)
class Result:
    """A claim and the result of its check.

    Attributes:
        word: The word that its check gives; without a check, the claim's own word.
        error: Why the check ended without evidence, or "".
        decided: What stored results say of it, if an experiment decides it and there are any.
    """

    claim: Claim
    word: Word
    seconds: float = 0.0
    lines: tuple[Line, ...] = ()
    error: str = ""
    decided: Decided | None = None

    @property
    def as_expected(self) -> bool:
        """Whether the word is the expected one."""
        return self.word == self.claim.expected

    @property
    def whereto(self) -> str:
        """The command that decides it by training, or "" for a claim that is decided here."""
        name = self.claim.experiment
        if not name:
            return ""
        return f"flatlab run {name}" if name in CATALOGUE else f"{name} (not yet there)"

    @property
    def decisive(self) -> Line | None:
        """The most telling line: the first that goes wrong, or else the first that is judged."""
        judged = [line for line in self.lines if line.holds is not None]
        wrong = [line for line in judged if line.holds is line.of_printed]
        fair = [line for line in judged if not line.of_printed]
        numbers = [line for line in fair if line.relation != "is"]
        return next(iter([*wrong, *numbers, *fair, *judged]), None)

    @property
    def measured(self) -> str:
        """What decides it, in a few words."""
        if self.decisive is not None:
            return self.decisive.comparison()
        return "error" if self.error else str(self.decided or self.whereto)

    def __repr__(self) -> str:
        return f"Result({self.claim.id} {self.word}: {self.measured})"

    def _repr_html_(self) -> str:
        """Return the statement and its evidence for a notebook."""
        marks = {True: "✓", False: "✗", None: ""}
        rows = [
            {"evidence": line.what, "measured": line.comparison(), "": marks[line.holds]}
            for line in self.lines
        ]
        notes = [text for text in (self.error, self.claim.note) if text]
        title = f"{self.claim.id}, {self.word}: {self.claim.says}"
        return html_table(rows, title, notes if rows else [*notes, self.measured])

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        claim = self.claim
        return {
            "id": claim.id, "source": claim.source, "where": claim.where, "kind": claim.kind,
            "says": claim.says, "as_printed": claim.as_printed, "errata": list(claim.errata),
            "expected": claim.expected, "word": self.word, "as_expected": self.as_expected,
            "seconds": round(self.seconds, 3), "lines": [asdict(line) for line in self.lines],
            "error": self.error, "note": claim.note, "experiment": claim.experiment,
            "experiment_exists": claim.experiment in CATALOGUE if claim.experiment else None,
            "decided": asdict(self.decided) if self.decided else None,
        }  # fmt: skip


@dataclass(frozen=True)
class Verification:
    """The results of several claims, in the order of the registry.

    Attributes:
        results: One for each claim, except those that an interrupt left unchecked.
        left: Ids of claims that were to be checked when an interrupt came.
        warnings: Stored results that cannot be read, and why.
    """

    results: tuple[Result, ...]
    seed: int
    thorough: bool
    seconds: float
    left: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def surprises(self) -> tuple[Result, ...]:
        """The results that are not as expected."""
        return tuple(result for result in self.results if not result.as_expected)

    def __repr__(self) -> str:
        return f"Verification({self.summary()})"

    def _repr_html_(self) -> str:
        """Return a table of the claims for a notebook."""
        rows = [
            {"id": r.claim.id, "kind": r.claim.kind, "measured": r.measured, "verdict": r.word}
            for r in self.results
        ]
        return html_table(rows, self.summary(), self.warnings)

    def summary(self) -> str:
        """Count the words: one line."""
        words = collections.Counter(str(result.word) for result in self.results)
        said = "".join(f", {count} {word}" for word, count in words.items())
        left = f"; {len(self.left)} left unchecked" if self.left else ""
        return f"{len(self.results)} claims{said}{left}"

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how often each word was said, by source."""
        found: dict[str, dict[str, int]] = {}
        for result in self.results:
            words = found.setdefault(result.claim.source, collections.Counter())
            words[result.word] += 1
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "seed": self.seed,
            "thorough": self.thorough,
            "seconds": round(self.seconds, 2),
            "counts": self.counts(),
            "surprises": [result.claim.id for result in self.surprises],
            "left": list(self.left),
            "warnings": list(self.warnings),
            "claims": [result.to_dict() for result in self.results],
        }


def select(patterns: Sequence[str] = (), source: str | None = None) -> tuple[str, ...]:
    """Return the ids that the patterns select, in the order of the registry.

    Args:
        patterns: Each an id, a pattern with * ? or [], or the beginning of ids. The source may be
            left out: "thm4.1" stands for its full id. No pattern at all selects every claim.
        source: Only claims of this source.

    Raises:
        UserError: A pattern or the source matches nothing.
    """
    registry = claims()
    sources = list(dict.fromkeys(claim.source for claim in registry.values()))
    if source is not None and source not in sources:
        raise unknown("source", source, sources)
    ids = [id for id, claim in registry.items() if source in (None, claim.source)]
    chosen = {id for pattern in patterns for id in _matching(pattern, ids)}
    return tuple(id for id in ids if id in chosen or not patterns)


def checks_of(ids: Iterable[str]) -> int:
    """Return how many of these claims have a check."""
    return sum(claims()[id].check is not None for id in ids)


def _matching(pattern: str, ids: Sequence[str]) -> list[str]:
    names = {id: (id, id.partition(".")[2]) for id in ids}
    exact = [id for id in ids if pattern in names[id]]
    if exact:
        return exact
    if not pattern:
        raise UserError("a claim's id may not be empty: `flatlab list claims` lists all")
    if any(sign in pattern for sign in "*?["):
        found = [id for id in ids if any(fnmatch.fnmatchcase(n, pattern) for n in names[id])]
    else:
        found = [id for id in ids if any(n.startswith(pattern) for n in names[id])]
    if not found:
        places = {name: id for id in ids for name in names[id]}
        near = difflib.get_close_matches(pattern, places, n=5, cutoff=0.5)
        hint = dict.fromkeys(places[name] for name in near)
        mean = f"did you mean {' or '.join(map(repr, hint))}? " if hint else ""
        # Some hundred ids are too many for one line.
        raise UserError(f"unknown claim {pattern!r}: {mean}`flatlab list claims` lists all")
    return found


def verify(
    ids: Iterable[str],
    seed: int = 0,
    thorough: bool = False,
    workers: int | None = None,
    on_event: OnCheck | None = None,
    results: Path | None = None,
) -> Verification:
    """Run the checks of the claims, and look up what experiments decided.

    Args:
        ids: The claims, as `select` gives them.
        seed: Decides all random instances.
        thorough: Whether to use the larger sizes.
        workers: Processes at once; None is one for each usable core; 1 checks in this process.
        on_event: Called when a check starts and when it finishes.
        results: The folder of all results, where verdicts of experiments are stored.
    """
    started, registry = time.monotonic(), claims()
    seed = whole_number("seed", seed, least=0)
    workers = usable_cores() if workers is None else whole_number("workers", workers, least=1)
    wanted = [registry[id] for id in ids]
    asked = results is not None and any(claim.experiment for claim in wanted)
    there, warnings = stored(results) if results is not None and asked else ({}, ())
    unchecked = [claim for claim in wanted if claim.check is None]
    found = {c.id: Result(c, c.expected, decided=decided(c, there)) for c in unchecked}
    pool = _Checks(seed, thorough, on_event or (lambda id, kind: None))
    left = [claim.id for claim in wanted if claim.check is not None]
    while left and not pool.interrupted:
        left = pool.run(left, workers)
    found |= {id: _decode(registry[id], plain) for id, plain in pool.found.items()}
    checked = tuple(found[claim.id] for claim in wanted if claim.id in found)
    seconds = time.monotonic() - started
    return Verification(checked, seed, thorough, seconds, tuple(left), warnings)


class _Checks:
    """Collects results from all jobs as they come in."""

    def __init__(self, seed: int, thorough: bool, on_event: OnCheck) -> None:
        self.seed, self.thorough, self.on_event = seed, thorough, on_event
        self.found: dict[str, dict[str, Any]] = {}
        self.under_way: dict[str, str] = {}
        self.interrupted = False

    def run(self, ids: Sequence[str], workers: int) -> list[str]:
        """Deal the claims out and run them; return those that a dead process left unchecked."""
        hands = [ids[k::workers] for k in range(min(workers, len(ids)))]
        trial = {"seed": self.seed, "thorough": self.thorough}
        jobs = [Job(f"checks {k}", TARGET, {"ids": hand, **trial}) for k, hand in enumerate(hands)]
        for outcome in run_jobs(jobs, len(jobs), self.hear):
            self.close(outcome)
        return [id for id in ids if id not in self.found]

    def hear(self, job: Job, kind: str, info: dict[str, Any]) -> None:
        if kind == "progress" and "result" in info:
            self.found[info["id"]] = info["result"]
            self.on_event(info["id"], "finished")
        elif kind == "progress":
            self.under_way[job.name] = info["id"]
            self.on_event(info["id"], "started")

    def close(self, outcome: Outcome) -> None:
        if outcome.status == "interrupted":
            self.interrupted = True
        self.found |= (outcome.result or {}).get("results", {})
        if outcome.status == "failed":
            ids = [id for id in outcome.job.payload["ids"] if id not in self.found]
            guilty = [id for id in ids if id == self.under_way.get(outcome.job.name)]
            for id in guilty or ids:  # it died before its first check: blame all
                self.found[id] = {"word": "broken", "error": outcome.error, "seconds": 0.0}
                self.on_event(id, "finished")


def check_claims(payload: dict[str, Any], report: Report) -> Any:
    """Run the checks of some claims, one after the other: the function of a job."""
    trial = Trial(payload["seed"], payload["thorough"])
    results: dict[str, dict[str, Any]] = {}
    try:
        with one_thread():
            for id in payload["ids"]:
                report({"id": id})
                results[id] = _encode(check(claims()[id], trial))
                report({"id": id, "result": results[id]})
    except KeyboardInterrupt:
        return {"status": "interrupted", "results": results}
    return {"results": results}


def check(claim: Claim, trial: Trial) -> Result:
    """Run one check in this process; a check that raises is broken."""
    started = time.perf_counter()
    try:
        evidence = claim.verify(trial)
    except Exception as error:
        text = f"the check raised {type(error).__name__}: {' '.join(str(error).split())}"
        return Result(claim, "broken", time.perf_counter() - started, error=text)
    seconds = time.perf_counter() - started
    return Result(claim, evidence.word, seconds, evidence.lines)


def _encode(result: Result) -> dict[str, Any]:
    """Return what the check added to the claim, as plain values."""
    plain = result.to_dict()
    return {name: plain[name] for name in ("word", "seconds", "lines", "error")}


def _decode(claim: Claim, plain: dict[str, Any]) -> Result:
    lines = tuple(Line(**line) for line in plain.get("lines", ()))
    return Result(claim, plain["word"], plain["seconds"], lines, plain["error"])


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch and BLAS to one thread, so that results do not depend on the machine's cores."""
    import threadpoolctl
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpoolctl.threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
