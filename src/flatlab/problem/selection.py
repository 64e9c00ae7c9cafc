"""Which parameters are meant: by name pattern or by layer."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from ..errors import UserError, nearest


def select(model: nn.Module, patterns: str | Sequence[str] | None) -> dict[str, nn.Parameter]:
    """Return the trainable parameters whose name matches a pattern; all of them for None.

    A pattern is a shell pattern on the full name ("features.*.weight") or the name of a layer
    ("features.0"). A tied parameter appears once, under its first name.
    """
    every = dict(model.named_parameters())
    trainable = {name: p for name, p in every.items() if p.requires_grad}
    if not trainable:
        raise UserError(
            f"the model has no trainable parameter (of {len(every)}): set requires_grad where "
            "curvature is wanted"
        )
    if patterns is None:
        return trainable
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in wanted:
        if not any(_matches(name, pattern) for name in trainable):
            if any(_matches(name, pattern) for name in every):
                raise UserError(f"params {pattern!r} matches frozen parameters only")
            raise UserError(f"params {pattern!r} matches nothing: {nearest(pattern, trainable)}")
    found = {n: p for n, p in trainable.items() if any(_matches(n, each) for each in wanted)}
    if not found:
        raise UserError("params is an empty list: name at least one pattern, or pass None for all")
    return found


def layer_of(name: str) -> str:
    """Return the layer a parameter belongs to.

    >>> layer_of("features.0.weight"), layer_of("W1")
    ('features.0', 'W1')
    """
    return name.rpartition(".")[0] or name


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")
