"""Constructions of the proofs: from data to the parameters of a real model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ...data import Dataset
from ...errors import UserError, nearest, unknown, whole
from ..solution import Solution
from .balancing import balanced as balanced
from .balancing import norm_balanced as norm_balanced
from .generalising import circle_as_printed as circle_as_printed
from .generalising import circle_steps as circle_steps
from .generalising import finite_labels as finite_labels
from .memorising import layer_norm_memorising as layer_norm_memorising
from .memorising import lecture_memorising as lecture_memorising
from .memorising import memorising as memorising
from .memorising import no_bias_memorising as no_bias_memorising
from .xor import four_neurons as four_neurons
from .xor import layer_norm_four_neurons as layer_norm_four_neurons
from .xor import no_bias_xor as no_bias_xor
from .xor import xor_batch_norm as xor_batch_norm

CONSTRUCTIONS: dict[str, Callable[..., Solution]] = {
    "memorising": memorising,
    "four-neurons": four_neurons,
    "finite-labels": finite_labels,
    "circle-steps": circle_steps,
    "layer-norm-memorising": layer_norm_memorising,
    "layer-norm-four-neurons": layer_norm_four_neurons,
    "xor-batch-norm": xor_batch_norm,
    "no-bias-xor": no_bias_xor,
    "no-bias-memorising": no_bias_memorising,
    "lecture-memorising": lecture_memorising,
}


def construct(name: str, data: Dataset, options: Mapping[str, Any] | None = None) -> Solution:
    """Make a construction by its name.

    >>> from flatlab.data import xor
    >>> round(construct("four-neurons", xor(d=30, n=100)).trace, 4)  # 4√31
    22.2711
    """
    given = plain_options(name, options or {})
    data.require_points(name)
    return CONSTRUCTIONS[name](data, **given)


def plain_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a construction as Python's numbers, so equal ones are stored alike.

    >>> plain_options("memorising", {"depth": 3.0, "epsilon": 1.0})
    {'depth': 3, 'epsilon': 1.0}
    """
    if name not in CONSTRUCTIONS:
        raise unknown("construction", name, CONSTRUCTIONS)
    known = inspect.signature(CONSTRUCTIONS[name]).parameters
    allowed = [key for key in known if key != "data"]
    found = {}
    for key, value in options.items():
        if key not in allowed:
            raise UserError(f"{name} has no option {key!r}: {nearest(str(key), allowed)}")
        counts = str(known[key].annotation).startswith("int")
        scalar = getattr(value, "ndim", None) == 0 and hasattr(value, "item")
        found[key] = whole(value) if counts else value.item() if scalar else value
    return found


def descriptions() -> dict[str, str]:
    """Return name → one line, the first of the construction's docstring."""
    return {
        name: (inspect.getdoc(make) or "").partition("\n")[0].rstrip(".")
        for name, make in CONSTRUCTIONS.items()
    }
