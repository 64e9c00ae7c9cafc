"""Networks as chains of linear maps with positively homogeneous modules between them.

g is positively homogeneous if g(αx) = α g(x) for α > 0. If only such modules are between two linear
maps, the first can be multiplied by α and the second divided by α without changing the function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

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
        if plain_sequential(module):
            yield from steps(module, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            yield f"{prefix}{name}", module


def plain_sequential(module: nn.Module) -> bool:
    """Return whether a module applies its children one after the other and does nothing else."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


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
    return getattr(arch, "norm", None) is None and getattr(arch, "activation", "relu") in (
        "relu",
        "identity",
    )


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
        biases = [(names["b1"],) if i == 0 and "b1" in names else () for i in range(len(layers))]
        return [
            Pair(f"W{i + 1}", (layers[i], *biases[i]), layers[i + 1])
            for i in range(len(layers) - 1)
        ]
    if "gamma" in names:  # the output is linear in γ, together with β if there is one, and in W2
        affine = tuple(names[name] for name in ("gamma", "beta") if name in names)
        return [Pair("gamma", affine, layers[1])]
    return []


def _tops(model: nn.Module) -> Iterator[tuple[str, nn.Sequential]]:
    """Yield the Sequentials that lie in no other plain Sequential."""
    if plain_sequential(model):
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
