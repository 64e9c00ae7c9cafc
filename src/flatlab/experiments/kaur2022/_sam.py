"""Figures 6 and 7: SAM over its radius, at two batch sizes and one learning rate each."""

from __future__ import annotations

from typing import Any

from ...specs import spec
from ..arms import Comparison
from ..compared import Compared
from ..deciding import Uncorrected
from ..sizes import Positive, Seeds
from ._batches import TwoBatches
from ._claims import better, flatter, no_gain
from ._figure import Grid, KeyLines, figure
from ._protocol import Cell, Radii


@spec
class WithSAM(TwoBatches):
    """Radii of SAM, and the learning rate of each batch size. A radius of 0 is plain SGD."""

    seeds: Seeds = 4
    rhos: Radii = (0.0, 0.025, 0.05, 0.1, 0.2)
    small_rate: Positive = 0.005
    large_rate: Positive = 0.005


def lines(s: Any) -> KeyLines:
    """Return both batch sizes, by radius."""
    return {
        f"batch {batch:,}, η = {rate:g}": [Cell(batch, rate, rho=rho) for rho in sorted(s.rhos)]
        for batch, rate in ((s.small, s.small_rate), (s.large, s.large_rate))
    }


def judged(found: Compared) -> list[Uncorrected]:
    """Judge: λ_max falls with ρ in both, accuracy rises at the small batch size only."""
    small, large = lines(found.settings).values()
    which = "with the {} batch size {} as SAM's radius grows"
    falls = "λ_max falls"
    return [
        flatter(found, "small_lambda_falls", which.format("small", falls), small, axis="rho"),
        flatter(found, "large_lambda_falls", which.format("large", falls), large, axis="rho"),
        better(
            found,
            "small_accuracy_rises",
            which.format("small", "test accuracy rises"),
            small,
            axis="rho",
        ),
        no_gain(
            found,
            "large_no_gain",
            which.format("large", "test accuracy does not rise by a point"),
            large,
            "rho",
        ),
    ]


def sam_figure(number: int, presets: dict[str, Any], size: str) -> Comparison:
    """Return one of the two figures; `size` says which learning rate it has."""
    return figure(
        number,
        Grid(lines, axis="rho"),
        title=f"SAM at a {size} learning rate",
        claim="a larger radius of SAM gives a smaller λ_max at small and large batch size, and a "
        f"better test accuracy at the small one only ({size} learning rate)",
        presets=presets,
        judged=judged,
    )
