"""`Results`: the document that every run of experiments returns.

`flatlab run` and `flatlab reproduce` print it (`--json`) and store it as `results.json` in the
folder of the request; pages, tables and `flatlab verify` read it back. Its paths are relative, so
folders can be moved: a figure's path to that folder, a run's path to the folder of all results.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import FlatlabError, StoreError, UserError
from ..files.durable import read
from ..files.store import plain, write_json
from ..outside.tables import html_table
from ..specs import spec_text
from .contract import Verdict

FORMAT = 1
FILE = "results.json"
AGAIN = "run the command that made it again"
VerdictWord = Literal["holds", "fails", "not assessed"]
NOT_THE_PAPERS = ("ours", "silent", "open")  # a verdict's `paper` if the claim is not the paper's


class _Record(BaseModel):
    """A part of the document: frozen, and strict about names and types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def __str__(self) -> str:
        return repr(self)


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
    verdict: VerdictWord
    holds: bool | None
    reason: str
    because: str
    experiment: str
    preset: str

    def __repr__(self) -> str:
        return repr(self.seen())

    def _repr_html_(self) -> str:
        """Return a table of one row for a notebook."""
        return html_table([self.seen().row()])

    def seen(self) -> Verdict:
        """Return the verdict alone."""
        names = (field.name for field in dataclasses.fields(Verdict))
        return Verdict(**{name: getattr(self, name) for name in names})

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
    """A run or computation behind the results; work that comes after a failure fails too."""

    name: str
    names: tuple[str, ...]  # all names it was planned under
    kind: Literal["training", "computation"]
    experiments: tuple[str, ...]  # ids of the experiments that use it
    digest: str
    path: str  # below the folder of all results
    status: Literal["done", "reached", "missed", "diverged", "interrupted", "failed"]
    error: str | None
    exit_code: int  # 0 if it did not fail
    reused: bool
    epochs: int
    seconds: float | None  # in all sittings; None if it is not finished
    sha256: str | None  # of its result.json


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

    `seeds` of `of` seeds were run; both are None if nothing is random. `training_seconds` is the
    sum over its runs in all sittings. `wall_seconds` is the time in which at least one of its runs
    was under way, in the last sitting that had work to do; None if unknown. The paper's numbers are
    those of its own runs; None if the paper states no hours. `setting` names its data, sizes and
    seeds, and what was changed, in words.
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
    setting: str = ""
    finding: str
    notes: tuple[str, ...]
    tables: dict[str, list[dict[str, Any]]]
    figures: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Part({self.id}: {self.runs} runs, {self.training_seconds:.1f} s of training)"


class Results(_Record):
    """All results of one request.

    `ids` are the experiments and sources that were asked for, `changes` the settings that differ
    from the preset's. The status is "out of time" if the budget ended before all chosen runs were
    done; if it is "interrupted", nothing is analysed. `wall_seconds` is from beginning to end, in
    the last sitting that had work to do. `plots` has the pictures of each experiment as data, and
    is not stored.
    """

    format: Literal[1] = 1
    ids: tuple[str, ...]
    preset: str
    changes: dict[str, Any] = Field(default_factory=dict)
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

    def __repr__(self) -> str:
        return f"Results({self.name}, preset {self.preset}, {self.status}: {self.summary()})"

    def _repr_html_(self) -> str:
        """Return the verdicts for a notebook, and what was found."""
        title = f"{self.name}, preset {self.preset}: {self.summary()}"
        found = [f"{part.id}: {part.finding}" for part in self.experiments if part.finding]
        left = [f"left out {one.experiment}: {one.reason}" for one in self.left_out]
        rows = [verdict.seen().row() for verdict in self.verdicts]
        return html_table(rows, title, [*found, *left, f"files: {self.folder}"])

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
    def flags(self) -> list[str]:
        """The flags of the command: the preset, and what differs from it."""
        fields = [spec_text("", {name: value})[1:] for name, value in self.changes.items()]
        return [f"--preset {self.preset}", *(f"--set {shlex.quote(field)}" for field in fields)]

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

    def shared(self, experiment: str | None = None) -> dict[str, int]:
        """Return the reasons that several open verdicts share, and how many of them.

        Without an experiment, of all experiments.
        """
        of = self.verdicts if experiment is None else self.of(experiment)
        counts = collections.Counter(v.reason for v in of if v.holds is None)
        return {reason: count for reason, count in counts.items() if count > 1}

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
        """Read a document in JSON; an error calls it `where`.

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


def stored(out: Path) -> tuple[dict[Path, Results], tuple[str, ...]]:
    """Return folder → results for all results below a folder, the newest first.

    Documents that cannot be read are left out; the second value says which and why.
    """
    found, unread = {}, []
    paths = [path for path in out.glob(f"*/{FILE}") if path.is_file()]
    for path in sorted(paths, key=lambda path: -path.stat().st_mtime_ns):
        try:
            found[path.parent] = Results.load(path.parent)
        except FlatlabError as error:
            unread.append(str(error))
    return found, tuple(unread)


def _counted(verdicts: Sequence[Judged]) -> str:
    words = [v.verdict for v in verdicts]
    return (
        f"{words.count('holds')} hold, {words.count('fails')} fail, "
        f"{words.count('not assessed')} are not assessed"
    )
