"""Networks as chains of linear maps, and another point with the same function: rescaling.

g is positively homogeneous if g(αx) = α g(x) for α > 0. If only such modules are between two linear
maps, the first can be multiplied by α and the second divided by α without changing the function.

Reference: Dinh et al., Sharp minima can generalize for deep nets, ICML 2017.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, positive, shown, unknown
from ..problem.copying import copying

LINEAR = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
HOMOGENEOUS = (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.Identity, nn.Flatten, nn.Unflatten,
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d,
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d,
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two linear maps in a row: `first` (its weight and bias) may be scaled against `second`."""

    name: str
    first: tuple[Tensor, ...]
    second: Tensor


def steps(sequential: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules of a Sequential in order; nested Sequentials are flattened."""
    for name, module in sequential._modules.items():
        assert module is not None
        if is_chain(module):
            yield from steps(module, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            yield f"{prefix}{name}", module


def is_chain(module: nn.Module) -> bool:
    """Return whether a module applies its children one after the other and does nothing else."""
    own = "forward" in vars(module)
    plain = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    return plain and not own


def written_out(model: nn.Module) -> Any:
    """Return the spec of a network whose layers are the parameters W1, W2, …; None for others."""
    arch = getattr(model, "arch", None)
    return arch if arch is not None and isinstance(getattr(model, "W1", None), Tensor) else None


def matrices(model: nn.Module) -> list[Tensor]:
    """Return W1, W2, … of such a network."""
    names = dict(model.named_parameters())
    found: list[Tensor] = []
    while f"W{len(found) + 1}" in names:
        found.append(names[f"W{len(found) + 1}"])
    return found


def homogeneous(arch: Any) -> bool:
    """Return whether only ReLU (or nothing) is between the layers W1, W2, …."""
    activation = getattr(arch, "activation", "relu")
    return getattr(arch, "norm", None) is None and activation in ("relu", "identity")


def pairs(model: nn.Module) -> list[Pair]:
    """Return all pairs of linear maps that can be scaled against each other.

    A tensor that is used in two places is in no pair.
    """
    arch = written_out(model)
    if arch is not None:
        found = _written_pairs(model, arch)
    else:
        found = [pair for name, top in _tops(model) for pair in _pairs_in(name, top)]
    uses = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    return [pair for pair in found if all(uses[id(p)] == 1 for p in (*pair.first, pair.second))]


def _written_pairs(model: nn.Module, arch: Any) -> list[Pair]:
    layers, names = matrices(model), dict(model.named_parameters())
    if homogeneous(arch):
        found = [Pair(f"W{k}", (one,), two) for k, (one, two) in enumerate(pairwise(layers), 1)]
        if found and "b1" in names:
            found[0] = replace(found[0], first=(layers[0], names["b1"]))
        return found
    if "gamma" in names:  # the output is linear in γ, together with β if there is one, and in W2
        affine = tuple(names[name] for name in ("gamma", "beta") if name in names)
        return [Pair("gamma", affine, layers[1])]
    return []


def _tops(model: nn.Module) -> Iterator[tuple[str, nn.Sequential]]:
    """Yield the Sequentials that lie in no other plain Sequential."""
    if is_chain(model):
        yield "", model  # type: ignore[misc]
        inside = [(name, module) for name, module in steps(model)]  # type: ignore[arg-type]
    else:
        inside = list(model.named_children())
    for name, module in inside:
        for below, top in _tops(module):
            yield f"{name}.{below}" if below else name, top


def _pairs_in(prefix: str, sequential: nn.Sequential) -> Iterator[Pair]:
    before: tuple[str, nn.Module] | None = None
    for name, module in steps(sequential, f"{prefix}." if prefix else ""):
        if type(module) in LINEAR:
            if before is not None:
                yield Pair(before[0], tuple(before[1].parameters()), module.weight)  # type: ignore[arg-type]
            before = name, module
        elif type(module) not in HOMOGENEOUS:
            before = None


def rescale(model: nn.Module, alpha: float, layers: Sequence[str] | None = None) -> nn.Module:
    """Return a copy that computes the same function with other parameters.

    relu(αz) = α relu(z) for α > 0, so a layer's weight and bias can be multiplied by α and the next
    layer's weight divided by α. That is done to every two layers (linear or convolutional) of a
    Sequential between which only ReLU-like modules, pooling, dropout or reshaping stand, one pair
    after the other. The layers must be called in the order of their Sequential.

    Args:
        model: The network; it is left as it is.
        alpha: The factor, > 0.
        layers: Names of the layers to multiply, such as ["0"]; None for all that can be.
    """
    alpha = positive("alpha", alpha)
    if not isinstance(model, nn.Module):
        raise UserError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    with copying(model):
        made = copy.deepcopy(model)
    _require_plain(made)
    found = {pair.name: pair for pair in pairs(made)}
    if not found:
        raise UserError(
            "nothing to rescale: no two Linear or convolutional layers of a Sequential have only "
            "ReLU, pooling, dropout or reshaping between them"
        )
    for name in _names(layers, found):
        for p in found[name].first:
            _set(p, p * alpha, p * alpha / alpha, alpha)
        p = found[name].second
        _set(p, p / alpha, p / alpha * alpha, alpha)
    return made


def _names(layers: Any, found: Mapping[str, Pair]) -> list[str]:
    """Return the names of the layers to multiply, without doubt what is meant."""
    if layers is None:
        return list(found)
    names = [layers] if isinstance(layers, str) else layers
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"layers must be names such as [{next(iter(found))!r}], or None for all that can be, "
            f"got {layers if isinstance(layers, list | tuple) else shown(layers)}"
        )
    for name in names:
        if name not in found:
            raise unknown("layer to rescale", name, found)
    return list(names)


def _require_plain(model: nn.Module) -> None:
    """Refuse modules that may compute something else than their type says.

    A hook of the whole model sees its outputs, which stay the same.
    """
    for name, module in model.named_modules():
        if type(module) not in (*LINEAR, *HOMOGENEOUS) and not isinstance(module, nn.Sequential):
            continue
        hooks = module is not model and (module._forward_hooks or module._forward_pre_hooks)
        if hooks or "forward" in vars(module):
            raise UserError(
                f"{f'the module {name}' if name else 'the model'} has "
                f"{'a forward hook' if hooks else 'a forward of its own'}, so it may compute "
                "something else than its type says: remove it before rescaling"
            )


@torch.no_grad()
def _set(p: Tensor, made: Tensor, back: Tensor, alpha: float) -> None:
    """Set a tensor to its scaled values; raise if scaling them back does not restore it."""
    fine = torch.isfinite(p)
    size, lost = (float(part[fine].abs().sum()) for part in (p, back - p))
    if not lost <= 4 * torch.finfo(p.dtype).eps * size:
        raise UserError(
            f"alpha={alpha:g} takes weights out of the range of {p.dtype}: choose it nearer to 1"
        )
    p.copy_(made)
