"""The choices that the paper leaves open, as changes to the configurations of Table 1."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from ...training.config import RunConfig
from ...training.schedule import Phase
from ..choices import Change, Variation
from . import table1

ASCENDING = tuple(table1.NETWORKS)
GD = ("gd_no_bias", "gd_bias")
PLAIN, BN, LN = ("no_bias", "bias"), ("sim_bn",), ("sim_ln",)


def _arch(**fields: Any) -> Change:
    def change(c: RunConfig) -> RunConfig:
        arch: Any = c.arch
        return dataclasses.replace(c, arch=dataclasses.replace(arch, **fields))

    return change


def _init(**fields: Any) -> Change:
    def change(c: RunConfig) -> RunConfig:
        arch: Any = c.arch
        return _arch(init=dataclasses.replace(arch.init, **fields))(c)

    return change


def _each(change: Callable[[Phase], Phase]) -> Change:
    return lambda c: dataclasses.replace(c, schedule=tuple(change(p) for p in c.schedule))


def _phases(**fields: Any) -> Change:
    return _each(lambda phase: phase.changed(**fields))


def half_loss(phase: Phase) -> Phase:
    """Return the phase that does with (f − y)² the same as this phase does with ½(f − y)²."""
    decay = 2 * phase.weight_decay
    rho = phase.rho / 2 if phase.algorithm == "usam" else phase.rho
    return phase.changed(lr=phase.lr / 2, weight_decay=decay, rho=rho)


def _slow(phase: Phase) -> Phase:
    """Return the phase with momentum whose steps add up to the steps without momentum."""
    return phase.changed(momentum=0.9, lr=phase.lr / 10)


def _last_row(c: RunConfig) -> RunConfig:
    """Use the last row of the schedule from the start, with the same total number of epochs."""
    last = dataclasses.replace(c.schedule[-1], epochs=c.epochs)
    return dataclasses.replace(c, schedule=(last,))


def _cumulative(c: RunConfig) -> RunConfig:
    """Count the epochs of every row from the start of the first; a row already over has none."""
    made, now = [], 0
    for phase in c.schedule:
        if phase.epochs > now:
            made.append(dataclasses.replace(phase, epochs=phase.epochs - now))
            now = phase.epochs
    return dataclasses.replace(c, schedule=tuple(made))


def _gamma_one(c: RunConfig) -> RunConfig:
    """Start at γ = 1, at the paper's width, since the gradient of γ = 1 grows with the width."""
    width = table1.PRESETS["paper"].width
    return _init(gamma_scale=math.sqrt(width))(_arch(width=width)(c))


_double_decay = _each(lambda phase: phase.changed(weight_decay=2 * phase.weight_decay))

VARIATIONS = tuple(
    Variation(*row)
    for row in (
        ("initial_law", "normal", "normal weights, zero bias", ASCENDING, _init(law="normal")),
        ("first_layer", "small", "scaled by 0.3", ASCENDING, _init(first_layer_scale=0.3)),
        ("first_layer", "large", "scaled by 3", ASCENDING, _init(first_layer_scale=3.0)),
        ("gamma", "gamma1", "γ = 1/√width", BN, _init(gamma_scale=1.0)),
        ("gamma", "gamma2", "γ = 2/√width", BN, _init(gamma_scale=2.0)),
        ("gamma", "gamma8", "γ = 8/√width", BN, _init(gamma_scale=8.0)),
        ("gamma", "gamma_one", "γ = 1, width 500", BN, _gamma_one),
        ("gamma", "gamma_shared", "one γ for all neurons", BN, _arch(gamma="shared")),
        ("gamma", "gamma_still", "γ not in the ascent", BN, _phases(gamma="unperturbed")),
        ("gamma", "gamma_fixed", "γ not trained", BN, _phases(gamma="fixed")),
        ("statistics", "constant", "constant in the gradient", BN, _phases(statistics="constant")),
        ("order", "replacement", "with replacement", ASCENDING, _phases(order="replacement")),
        ("order", "fixed", "the same every epoch", ASCENDING, _phases(order="fixed")),
        ("ascent", "usam", "not normalised", ASCENDING, _phases(algorithm="usam")),
        ("second_batch", "other", "another example", ASCENDING, _phases(second_batch="other")),
        ("momentum", "momentum", "momentum 0.9", (*ASCENDING, *GD), _phases(momentum=0.9)),
        ("momentum", "slow", "momentum 0.9, a tenth of the rate", PLAIN, _each(_slow)),
        ("loss", "half", "½(f − y)²", (*ASCENDING, *GD), _each(half_loss)),
        ("weight_decay", "double", "λ‖θ‖² in the loss", GD, _double_decay),
        ("weight_decay", "spared", "not on the bias", ("gd_bias",), _phases(bias_weight_decay=0.0)),
        ("ln_epsilon", "epsilon_large", "ε = 0.1", LN, _arch(ln_epsilon=0.1)),
        ("ln_epsilon", "epsilon_small", "ε = 1e-6", LN, _arch(ln_epsilon=1e-6)),
        ("norm_limit", "free", "no limit", LN, _phases(max_first_layer_norm=None)),
        ("norm_limit", "limit5", "limit 5", LN, _phases(max_first_layer_norm=5.0)),
        ("norm_limit", "limit20", "limit 20", LN, _phases(max_first_layer_norm=20.0)),
        ("norm_limit", "each", "weights and bias 10 each", LN, _phases(norm_rule="each")),
        ("norm_limit", "held", "held at 10", LN, _phases(norm_rule="held")),
        ("phases", "cumulative", "epochs counted from the first row", ("bias",), _cumulative),
        ("phases", "last_row", "last row from the start", ("bias", "sim_ln"), _last_row),
        (
            "dtype",
            "float64",
            "float64",
            ASCENDING,
            lambda c: dataclasses.replace(c, dtype="float64"),
        ),
    )
)
