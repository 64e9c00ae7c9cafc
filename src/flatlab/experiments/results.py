"""`Results`: the document that every run of experiments returns.

`flatlab run` and `flatlab reproduce` print it (`--json`) and store it as `results.json` in the
folder of the request; pages, tables and `flatlab verify` read it back. Its paths are relative, so
folders can be moved: a figure's path to that folder, a run's path to the folder of all results.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import FlatlabError, StoreError, UserError
from ..files.durable import read
from ..files.store import plain, write_json
from .contract import Verdict

FORMAT = 1
FILE = "results.json"
AGAIN = "run the command that made it again"
Word = Literal["holds", "fails", "not assessed"]
NOT_THE_PAPERS = ("ours", "silent", "open")  # a verdict's `paper` if the claim is not the paper's


class _Record(BaseModel):
    """A part of the document: frozen, and strict about names and types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Judged(_Record):
    """A verdict on one claim, and the experiment and preset it comes from.

    The fields are the same as in `Verdict`; `verdict` says `holds` in words.
    """

    claim: str
    statement: str
    paper: str | float
    measured: float | None
    low: float | None
    high: float | None
    verdict: Word
    holds: bool | None
    reason: str
    because: str
    experiment: str
    preset: str

    @classmethod
    def of(cls, verdict: Verdict, experiment: str, preset: str) -> Judged:
        """Return a row for a verdict; a number that is not finite is None."""
        fields = plain(vars(verdict))
        word: Any = verdict.word
        return cls(**fields, verdict=word, experiment=experiment, preset=preset)

    @model_validator(mode="after")
    def _agrees(self) -> Judged:
        if {"holds": True, "fails": False, "not assessed": None}[self.verdict] is not self.holds:
            raise ValueError(f"verdict {self.verdict!r} does not fit holds={self.holds}")
        return self


class RunRecord(_Record):
    """A run or computation behind the results.

    Attributes:
        name: Its name here.
        names: All names it was planned under.
        kind: What it is.
        experiments: Ids of the experiments that use it.
        digest: The digest of its configuration, or of what was computed.
        path: Its directory, below the folder of all results.
        status: As in `Run`, or "failed"; work that comes after a failure fails too.
        error: Why it failed.
        exit_code: The exit code of its failure; 0 if it did not fail.
        reused: Whether it was done before.
        epochs: How many epochs it trains for.
        seconds: Time spent on it in all sittings; None if it is not finished.
        sha256: The checksum of its result.json, as sha256sum gives it.
    """

    name: str
    names: tuple[str, ...]
    kind: Literal["training", "computation"]
    experiments: tuple[str, ...]
    digest: str
    path: str
    status: Literal["done", "reached", "missed", "diverged", "interrupted", "failed"]
    error: str | None
    exit_code: int
    reused: bool
    epochs: int
    seconds: float | None
    sha256: str | None


class LeftOut(_Record):
    """An experiment that did not run, or not in full: why, and how many seconds are left.

    `seeds` of `of` seeds were run. An experiment without the preset has no estimated seconds.
    """

    experiment: str
    seeds: int | None
    of: int | None
    estimated_seconds: float | None
    reason: str


class Part(_Record):
    """The results of one experiment; its verdicts are in `Results.verdicts`.

    Attributes:
        id: The experiment.
        source: The paper.
        figure: Which figure or table of it.
        claim: What it claims.
        settings: The settings it was run with.
        seeds: How many seeds were run; None if nothing is random.
        of: How many seeds were asked for.
        runs: How many runs it used.
        digests: The digests of these runs.
        epochs: The sum of their epochs.
        training_seconds: The sum of the seconds spent on its runs, in all sittings.
        wall_seconds: Seconds while at least one of its runs was under way, in the last sitting
            that had work to do; None if unknown.
        paper_epochs: Epochs of the paper's own runs; None if the paper states no hours.
        paper_hours: Hours of these runs according to the paper.
        paper_hours_per_epoch: Hours of an epoch according to the paper.
        finding: The result in plain language.
        notes: Remarks for the reader.
        tables: Name → rows of plain values.
        figures: Files of its pictures, in the folder of the results.
    """

    id: str
    source: str
    figure: str
    claim: str
    settings: dict[str, Any]
    seeds: int | None
    of: int | None
    runs: int
    digests: tuple[str, ...]
    epochs: int
    training_seconds: float
    wall_seconds: float | None
    paper_epochs: int | None
    paper_hours: float | None
    paper_hours_per_epoch: float | None
    finding: str
    notes: tuple[str, ...]
    tables: dict[str, list[dict[str, Any]]]
    figures: tuple[str, ...]


class Results(_Record):
    """All results of one request.

    Attributes:
        format: The version number of the document's format.
        ids: The experiments and sources that were asked for.
        preset: The name of the preset.
        status: "done", "out of time" (the budget ended before all chosen runs were done) or
            "interrupted" (nothing is analysed).
        folder: Where the document and its pictures are.
        experiments: The results of each experiment.
        verdicts: All verdicts, in the order of the experiments.
        left_out: The experiments that did not run, or not in full.
        runs: The runs and computations behind the verdicts.
        budget_seconds: The budget, or None.
        jobs: How many runs at a time.
        wall_seconds: From beginning to end, in the last sitting that had work to do.
        training_seconds: Seconds spent on all runs, in all sittings.
        epochs: Epochs of all runs.
        paper_epochs: Epochs of the paper's own runs.
        paper_hours: Hours of these runs according to the paper.
        commit: The commit of flatlab.
        versions: Versions of the libraries.
        machine: Processor, cores and system.
        plots: Experiment → the pictures as data. Not stored.
    """

    format: Literal[1] = 1
    ids: tuple[str, ...]
    preset: str
    status: Literal["done", "out of time", "interrupted"]
    folder: str
    experiments: tuple[Part, ...]
    verdicts: tuple[Judged, ...]
    left_out: tuple[LeftOut, ...]
    runs: tuple[RunRecord, ...]
    budget_seconds: float | None
    jobs: int
    wall_seconds: float | None
    training_seconds: float
    epochs: int
    paper_epochs: int | None
    paper_hours: float | None
    commit: str | None
    versions: dict[str, str]
    machine: dict[str, str | int | None]
    plots: dict[str, tuple[Any, ...]] = Field(default_factory=dict, exclude=True, repr=False)

    @model_validator(mode="after")
    def _belongs_together(self) -> Results:
        ids, digests = {part.id for part in self.experiments}, {run.digest for run in self.runs}
        for verdict in self.verdicts:
            if verdict.experiment not in ids:
                raise ValueError(f"{verdict.claim}: {verdict.experiment} is missing")
        for part in self.experiments:
            if not digests.issuperset(part.digests):
                raise ValueError(f"{part.id} has runs that are not listed")
        return self

    @property
    def name(self) -> str:
        """What was asked for, in words."""
        return ", ".join(self.ids)

    @property
    def failed(self) -> tuple[RunRecord, ...]:
        """The runs that failed."""
        return tuple(run for run in self.runs if run.status == "failed")

    @property
    def done(self) -> int:
        """How many runs are finished."""
        return sum(run.seconds is not None for run in self.runs)

    def of(self, experiment: str) -> tuple[Judged, ...]:
        """Return the verdicts of an experiment."""
        return tuple(v for v in self.verdicts if v.experiment == experiment)

    def summary(self) -> str:
        """Summarise the results in a few sentences."""
        own = [v for v in self.verdicts if v.paper not in NOT_THE_PAPERS]
        text = f"{len(self.verdicts)} claims: {_counted(self.verdicts)}."
        if 0 < len(own) < len(self.verdicts):
            text += f" Of these the paper speaks of {len(own)}: {_counted(own)}."
        text += f" {self.done} runs."
        if self.left_out:
            text += f" Experiments left out, wholly or in part: {len(self.left_out)}."
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain values."""
        return self.model_dump(mode="json")

    def save(self) -> None:
        """Store the document in its folder, durably."""
        write_json(Path(self.folder) / FILE, self.to_dict())

    @classmethod
    def load(cls, folder: Path) -> Results:
        """Read the document of a folder; `from_json` says what is refused."""
        data = read(folder / FILE)
        if data is None:
            raise UserError(
                f"{folder / FILE} does not exist: give the folder that `flatlab run` or "
                "`flatlab reproduce` names"
            )
        return cls.from_json(data, str(folder / FILE))

    @classmethod
    def from_json(cls, data: bytes | str, where: str = "the document") -> Results:
        """Read a document.

        Args:
            data: JSON.
            where: What to call it in an error.

        Raises:
            UserError: It is not a document of flatlab, or has another format.
            StoreError: It is damaged or was changed by hand; the message names the field.
        """
        try:
            made = json.loads(data)
        except (RecursionError, ValueError) as error:
            raise StoreError(f"{where} is damaged ({error}): {AGAIN}") from None
        if not isinstance(made, dict) or "format" not in made:
            raise UserError(f"{where} is not a document of results: {AGAIN}")
        if made["format"] != FORMAT:
            raise UserError(
                f"{where} has format {made['format']!r}, this flatlab reads {FORMAT}: {AGAIN}"
            )
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise StoreError(
                f"{where} is damaged or was changed by hand: {field}: {first['msg']}: {AGAIN}"
            ) from None


def stored(out: Path) -> dict[Path, Results]:
    """Return folder → results for all results below a folder that can be read, the newest first."""
    found = {}
    paths = [path for path in out.glob(f"*/{FILE}") if path.is_file()]
    for path in sorted(paths, key=lambda path: -path.stat().st_mtime_ns):
        with contextlib.suppress(FlatlabError):
            found[path.parent] = Results.load(path.parent)
    return found


def _counted(verdicts: Sequence[Judged]) -> str:
    words = [v.verdict for v in verdicts]
    return (
        f"{words.count('holds')} hold, {words.count('fails')} fail, "
        f"{words.count('not assessed')} are not assessed"
    )
