"""Figures 8 and 9: dropout in a network with two hidden layers, at one batch size each."""

from __future__ import annotations

from typing import Any

from ...specs import spec
from ..arms import Comparison
from ..compared import Compared
from ..deciding import Uncorrected
from ..judging import Rule
from ..sizes import Count, Seeds
from ._claims import differs, flatter
from ._figure import Grid, KeyLines, figure
from ._protocol import Cell, Fractions, Protocol, Rates

WORSE = Rule("below", 0, "the difference")
BETTER = Rule("above", 0, "the difference")


@spec
class WithDropout(Protocol):
    """One batch size, learning rates, and dropout probabilities, which the authors' code states.

    `modest` is the probability up to which the paper sees a gain.
    """

    seeds: Seeds = 3
    arch: str = "mlp:widths=[512, 512]"
    batch: Count = 100
    epochs: Count = 500
    rates: Rates = (0.025, 0.05, 0.1)
    dropouts: Fractions = (0.0, 0.1, 0.2, 0.5, 0.6, 0.7)
    modest: float = 0.2


QUICK: dict[str, Any] = {
    **{"seeds": 2, "data": "fashion_mnist", "n": 100, "n_test": 200, "size": 7},
    **{"arch": "mlp:widths=[32, 32]", "measured": 30, "tolerance": 0.05, "epochs": 150},
    **{"rates": (0.05, 0.1), "dropouts": (0.0, 0.2, 0.5)},
}
LAB: dict[str, Any] = {
    **{"seeds": 8, "data": "fashion_mnist", "n": 2000, "n_test": 2000},
    **{"arch": "mlp:widths=[256, 256]", "measured": 500, "rates": (0.05, 0.1)},
}


def lines(s: Any) -> KeyLines:
    """Return a line for each learning rate, by probability."""
    return {
        f"η = {rate:g}": [Cell(s.batch, rate, dropout=p) for p in sorted(s.dropouts)]
        for rate in sorted(s.rates)
    }


def judged(found: Compared) -> list[Uncorrected]:
    """Judge: λ_max falls with p; modest dropout helps, excessive dropout costs accuracy.

    The paper's own example compares the largest p with p = 0.1 at the largest learning rate.
    """
    s = found.settings
    groups, rate = list(lines(s).values()), max(s.rates)
    modest = max((p for p in s.dropouts if p <= s.modest), default=min(s.dropouts))
    cells = {p: Cell(s.batch, rate, dropout=p) for p in s.dropouts}
    none, some, most = cells[min(s.dropouts)], cells[modest], cells[max(s.dropouts)]
    points = f"(difference of accuracy, points, η = {rate:g})"
    helps = f"dropout of {modest:g} generalises better than {none.dropout:g} {points}"
    costs = f"dropout of {most.dropout:g} generalises worse than {modest:g} {points}"
    falls = "λ_max falls as the dropout probability grows"
    return [
        flatter(found, "lambda_falls", falls, *groups, axis="dropout"),
        differs(found, "modest_helps", helps, none, some, BETTER),
        differs(found, "excess_costs", costs, some, most, WORSE),
    ]


def dropout_figure(number: int, presets: dict[str, Any], size: str) -> Comparison:
    """Return one of the two figures; `size` says which batch size it has."""
    return figure(
        number,
        Grid(lines, axis="dropout"),
        title=f"Dropout with a {size} batch size",
        claim="more dropout gives a smaller λ_max, measured with dropout off, while the test "
        f"accuracy is best near p = 0.2 ({size} batch size)",
        presets=presets,
        judged=judged,
        prefix="kaur-mlp-",
    )
