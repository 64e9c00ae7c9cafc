"""Five interventions of the figures in one grid, and what is measured at the end of their runs."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...specs import spec
from ..arms import Arm
from ..contract import measurement
from ..sizes import Count, Positive
from . import fig3, fig6, fig8, fig10
from ._batches import LAB, LAB_RATES, QUICK, QUICK_RATES, TwoGrids, line
from ._dropout import WithDropout
from ._protocol import Cell, Counts, Fractions, Radii, Rates, arm_of

RADIUS = 0.05  # of the ball of Appendix A.1, the authors' default ρ


@spec
class Interventions(TwoGrids):
    """The grids of five figures, in one class; the network with dropout has its own data."""

    middle: Counts = (250, 500, 1000, 2500)
    rhos: Radii = (0.0, 0.025, 0.05, 0.1, 0.2)
    small_rate: Positive = 0.005
    bn_batch: Count = 100
    bn_rates: Rates = (0.001, 0.005, 0.01, 0.05, 0.1)
    mlp: str = "mlp:widths=[512, 512]"
    mlp_data: str = "cifar10"
    mlp_size: Count | None = None
    mlp_batch: Count = 100
    mlp_epochs: Count = 500
    mlp_rate: Positive = 0.1
    dropouts: Fractions = (0.0, 0.1, 0.2, 0.5, 0.6, 0.7)
    ascent_steps: Count = 20
    probes: Count = 100  # products of the alignment, at most


def _of(preset: str, sizes: dict[str, Any], rates: dict[str, Any], **changes: Any) -> Interventions:
    """Return settings that agree with those of the figures in a preset, so that runs are shared."""
    dropout: Any = fig8.PRESETS[preset]
    given: dict[str, Any] = {
        **sizes,
        **rates,
        "middle": fig3.PRESETS[preset].middle,
        "rhos": fig6.PRESETS[preset].rhos,
        "small_rate": fig6.PRESETS[preset].small_rate,
        "bn_batch": fig10.PRESETS[preset].batch,
        "bn_rates": fig10.PRESETS[preset].rates,
        "mlp": dropout.arch,
        "mlp_data": dropout.data,
        "mlp_size": dropout.size,
        "mlp_batch": dropout.batch,
        "mlp_epochs": dropout.epochs,
        "mlp_rate": max(dropout.rates),
        "dropouts": dropout.dropouts,
    }
    return Interventions(**{**given, **changes})


PRESETS = {
    "quick": _of("quick", QUICK, QUICK_RATES, ascent_steps=3, probes=10),
    "lab": _of("lab", LAB, LAB_RATES),
    "paper": _of("paper", {}, {}),
}


def mlp_settings(s: Any) -> Any:
    """Return the settings of the network with dropout."""
    shared = ("seeds", "first_seed", "n", "n_test", "accuracy", "measured", "tolerance", "dtype")
    return WithDropout(
        **{name: getattr(s, name) for name in shared},
        data=s.mlp_data,
        arch=s.mlp,
        size=s.mlp_size,
        batch=s.mlp_batch,
        epochs=s.mlp_epochs,
        dropouts=s.dropouts,
    )


def interventions(s: Any) -> dict[str, list[tuple[Any, Cell]]]:
    """Return intervention → (stratum, cell); pairs of runs are compared within a stratum."""
    small = line(s, s.small)
    sizes = sorted({s.small, *s.middle, s.large})
    middle = [(cells := line(s, batch))[len(cells) // 2] for batch in sizes]
    radii = [Cell(s.small, s.small_rate, rho=rho) for rho in sorted(s.rhos)]
    drops = [Cell(s.mlp_batch, s.mlp_rate, dropout=p) for p in sorted(s.dropouts)]
    norms = [
        Cell(s.bn_batch, rate, batch_norm=given) for rate in s.bn_rates for given in (False, True)
    ]
    return {
        "learning rate": [("", cell) for cell in small],
        "batch size": [("", cell) for cell in middle],
        "SAM": [("", cell) for cell in radii],
        "dropout": [("", cell) for cell in drops],
        "BatchNorm": [(cell.lr, cell) for cell in norms],
    }


def measures_of(s: Any) -> list[str]:
    """Return the measures that are taken at the end of each run, with their options."""
    steps = f"steps={s.ascent_steps},restarts=1"
    return [
        f"lambda_max:tolerance={s.tolerance:g}",
        "trace:tolerance=0.1",
        "frobenius:tolerance=0.1",
        f"sam_sharpness:rho={RADIUS}",
        f"sam_sharpness_steps:rho={RADIUS},{steps}",
        f"adaptive_sharpness:{steps}",
        f"alignment:max_products={s.probes}",
    ]


def arms(s: Any) -> list[Arm]:
    """Return the cells of all interventions, each once, with the measuring of their ends."""
    mlp, made = mlp_settings(s), {}
    then = {"measures": measurement("", "", measures_of(s), s.measured, seconds=20.0)}
    for name, cells in interventions(s).items():
        for _, cell in cells:
            key = key_of(name, cell)
            arm = arm_of(mlp if name == "dropout" else s, cell, then)
            made[key] = dataclasses.replace(arm, key=key)
    return list(made.values())


def key_of(name: str, cell: Cell) -> str:
    """Return the key of a cell of an intervention; dropout has a network of its own."""
    return f"mlp-{cell.key}" if name == "dropout" else cell.key
