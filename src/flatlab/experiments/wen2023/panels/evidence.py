"""A figure's runs, part by part and seed by seed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....training.run import Run
from ... import evidence
from ...contract import Verdict
from ...evidence import by_seed, large_enough
from ...judging import on_minimum

if TYPE_CHECKING:
    from .figure import Figure, Part


@dataclasses.dataclass(frozen=True)
class Evidence(evidence.Evidence):
    """What there is to judge a figure by; its parts are the arms.

    Attributes:
        figure: The figure.
    """

    figure: Figure

    def as_long_as(self, preset: str, key: str, first: bool = False) -> bool:
        """Return whether a part, or its first phase, has at least the epochs of a preset."""
        other, name = self.figure.presets[preset], f"{key}_epochs"
        return all(
            getattr(self.settings, field.name) >= getattr(other, field.name)
            for field in dataclasses.fields(other)
            if (field.name == name if first else field.name.startswith(name))
        )

    def excess(self, key: str) -> list[float]:
        """Return how far each run of a part ends above the least training loss."""
        least = self.figure.loss.least
        return [loss - least for loss in self.final(key, "train_loss")]

    def minimum(self, verdict: Verdict, key: str, *, most: bool = False) -> Verdict:
        """Return a verdict on a part's minimum, after asking whether it is one (`on_minimum`)."""
        short = not self.as_long_as("paper", key)
        decisive = self.fit(key)
        return on_minimum(verdict, self.excess(key), decisive=decisive, short=short, most=most)

    def part(self, key: str) -> Part:
        """Return a part by its key."""
        return next(part for part in self.figure.parts if part.key == key)


def collect(figure: Figure, s: Any, preset: str, runs: Mapping[str, Run]) -> Evidence:
    """Sort a figure's runs by part and seed."""
    found = {
        part.key: by_seed(runs, functools.partial(figure.run_name, part.key), s.seeds)
        for part in figure.parts
    }
    data = {seed: figure.data_of(seed, s) for seed in range(s.seeds)}
    floors = {
        part.key: {seed: part.floor(data[seed], s) for seed in data} if part.floor else {}
        for part in figure.parts
    }
    decisive = large_enough(s, figure.presets["lab"]) and preset != "quick"
    return Evidence(s, found, floors, decisive, figure)
