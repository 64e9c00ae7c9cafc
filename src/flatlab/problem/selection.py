"""Which parameters are meant: by name pattern or by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, nearest
from .copying import plain_name


def select(model: nn.Module, patterns: str | Sequence[str] | None) -> dict[str, nn.Parameter]:
    """Return the trainable parameters whose name matches a pattern; all of them for None.

    A pattern is a shell pattern on the full name ("features.*.weight") or the name of a layer
    ("features.0"). A tied parameter appears once, under its first name. Parameters that hold no
    number, of layers with a width of zero, are left out.
    """
    every = dict(model.named_parameters())
    trainable = {name: p for name, p in every.items() if p.requires_grad and p.numel()}
    if not trainable:
        raise UserError(
            f"the model has no trainable parameter (of {len(every)}): set requires_grad where "
            "curvature is wanted"
        )
    if patterns is None:
        return trainable
    alone = isinstance(patterns, str | nn.Module) or not isinstance(patterns, Iterable)
    given: list[Any] = [patterns] if alone else list(patterns)
    for pattern in given:
        if not isinstance(pattern, str):
            raise UserError(
                f"params must be name patterns such as '0.weight', 'features.*' or the name of a "
                f"layer, or None for all, got {type(pattern).__name__}"
            )
    wanted = [plain_name(pattern) for pattern in given]
    for pattern in wanted:
        if not any(_matches(name, pattern) for name in trainable):
            if any(_matches(name, pattern) for name in every):
                raise UserError(f"params {pattern!r} matches frozen or empty parameters only")
            raise UserError(f"params {pattern!r} matches nothing: {nearest(pattern, trainable)}")
    found = {n: p for n, p in trainable.items() if any(_matches(n, each) for each in wanted)}
    if not found:
        raise UserError("params is an empty list: name at least one pattern, or pass None for all")
    return found


def flat_reference(params: Mapping[str, Tensor], reference: Any) -> Tensor:
    """Return reference parameters, such as the initial ones, as one vector in float64."""
    require_reference(reference)
    try:
        given = {plain_name(name): torch.as_tensor(value) for name, value in reference.items()}
    except (TypeError, ValueError, RuntimeError):
        raise UserError("reference must have tensors by name, as a state_dict has") from None
    for name, p in params.items():
        if name not in given or given[name].shape != p.shape:
            raise UserError(
                f"reference needs {name} of shape {tuple(p.shape)}, as the model's state_dict "
                "at the start has it"
            )
    found = torch.cat([given[name].flatten().to("cpu", torch.float64) for name in params])
    if not bool(torch.isfinite(found).all()):
        raise UserError("reference holds NaN or infinity: there is no distance from it")
    return found


def require_reference(reference: Any) -> None:
    """Refuse reference parameters that have no names."""
    if not isinstance(reference, Mapping):
        raise UserError(
            f"reference must be parameters by name, got {type(reference).__name__}: pass a "
            "state_dict, e.g. copy.deepcopy(model.state_dict()) from the start"
        )


def layer_of(name: str) -> str:
    """Return the layer a parameter belongs to.

    >>> layer_of("features.0.weight"), layer_of("W1")
    ('features.0', 'W1')
    """
    return name.rpartition(".")[0] or name


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")
