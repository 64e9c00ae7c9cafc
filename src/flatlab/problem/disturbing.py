"""Arithmetic in which every operation rounds at random: what it moves is rounding.

Before each floating-point operation its inputs are multiplied by 1 + ½ε(s + r), with ε the distance
from 1 to the next number in the precision of that input, a random sign s for the whole tensor and a
random r in [−1, 1] for each entry. The difference from the undisturbed result shows how far
rounding can move it, whatever cancels inside the model or the loss (1 − p, f − y, 1 − tanh², a sum
of large terms) and wherever they cast to float32. The common sign stands for rounding that does not
average out over equal entries.

Fused operations are taken apart first: what cancels inside a kernel would not be disturbed.
Operations that move or select numbers (comparisons, maxima, pooling) round nothing and are not
disturbed, so no tie is broken.

Reference: Parker, Monte Carlo arithmetic, UCLA CSD-970002, 1997.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..randomness import generator

aten: Any = torch.ops.aten
# Kernels that torch keeps whole but that cancel inside.
_FUSED = (aten._softmax, aten._log_softmax, aten.native_layer_norm, aten.native_group_norm)
_PARTS: dict[Any, Any] = {
    **core_aten_decompositions(),
    **{each.default: decomposition_table[each.default] for each in _FUSED},
}
# Its parts keep the graph: an output that its own function saves would never be freed.
_PARTS.pop(aten.detach.default, None)
# Operations that move or select numbers and round none; those that return indices show it.
_EXACT = """
    abs alias amax amin as_strided cat clone constant_pad_nd copy diag_embed diagonal_scatter
    embedding flip full_like gather index index_put index_select lift_fresh masked_fill max maximum
    median min minimum nanmedian neg relu repeat roll scatter select_scatter sgn sign slice_scatter
    stack tril triu where
"""
_NAMES = frozenset(_EXACT.split())
_CASTS = {aten._to_copy.default, aten.to.dtype, aten.to.device, aten.to.dtype_layout, aten.to.other}
# Random numbers are drawn once and used from a random place on.
_BANK = 2**18


def _rounds(part: Any) -> bool:
    return isinstance(part, Tensor) and part.is_floating_point() and not part.is_meta


def _stored(part: Tensor) -> Tensor:
    """Return zeros in place of a tangent that torch keeps as a zero without memory."""
    if part._is_zerotensor():
        return torch.zeros(part.shape, dtype=part.dtype, device=part.device)
    return part


def _tensors(parts: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among an operation's arguments, which may be in lists."""
    found = []
    for part in parts:
        if isinstance(part, Tensor):
            found.append(part)
        elif isinstance(part, list | tuple):
            found += [each for each in part if isinstance(each, Tensor)]
    return found


def _changed(change: Callable[[Tensor], Tensor], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return an operation's arguments with every tensor changed."""

    def one(part: Any) -> Any:
        if isinstance(part, Tensor):
            return change(part)
        return [one(each) for each in part] if isinstance(part, list | tuple) else part

    return [one(part) for part in args], {name: one(part) for name, part in kwargs.items()}


class Disturbed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, every floating-point operation rounds at random; a seed for each run."""

    def __init__(self, seed: int):
        super().__init__()  # type: ignore[no-untyped-call]
        self._draw = generator(seed, "disturbed")
        self._bank: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._exact: dict[Any, bool] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch that nothing is compiled here, so that it does not load its compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take the operation apart, or disturb its inputs; torch's own result where neither can."""
        kwargs = kwargs or {}
        tensors = _tensors((*args, *kwargs.values()))
        if any(part._is_zerotensor() for part in tensors):
            args, kwargs = _changed(_stored, args, kwargs)
            tensors = _tensors((*args, *kwargs.values()))
        if func in _PARTS:
            with self:
                made = _PARTS[func](*args, **kwargs)
            if made is not NotImplemented:
                return made
        given = [part for part in tensors if _rounds(part)]
        if not given or func.is_view or func._schema.is_mutable or self._exact.get(func):
            return func(*args, **kwargs)
        if func not in self._exact:
            plain = func(*args, **kwargs)
            named = func.overloadpacket.__name__ in _NAMES
            self._exact[func] = named or not all(map(_rounds, tree_leaves(plain)))
            if self._exact[func]:
                return plain
        if func in _CASTS:  # a cast rounds only if it lowers the precision
            made = func(*args, **kwargs)
            lower = _rounds(made) and made.itemsize < given[0].itemsize
            return self._shaken(made) if lower else made
        # Inputs of a lower precision are exact in that of the operation.
        least = max((part.itemsize for part in given if part.ndim), default=0)

        def rounded(part: Tensor) -> Tensor:
            return self._shaken(part) if _rounds(part) and part.itemsize >= least else part

        args, kwargs = _changed(rounded, args, kwargs)
        return func(*args, **kwargs)

    def _shaken(self, part: Tensor) -> Tensor:
        place, sign = self._draw.integers(_BANK, size=2).tolist()
        noise = self._noise(part)[sign % 2, place:]
        if part.numel() > len(noise):
            noise = noise.repeat(part.numel() // len(noise) + 1)
        moved = torch.addcmul(part, part, noise[: part.numel()].view(part.shape))
        finite = torch.isfinite(part)
        return moved if bool(finite.all()) else torch.where(finite, moved, part)  # ∞ − ∞ is NaN

    def _noise(self, like: Tensor) -> Tensor:
        """Return numbers ½ε(r − 1) in the first row and ½ε(r + 1) in the second."""
        key = (like.dtype, like.device)
        if key not in self._bank:
            drawn = torch.from_numpy(self._draw.random(2 * _BANK))
            rows = torch.finfo(like.dtype).eps * torch.stack([drawn - 1, drawn])
            self._bank[key] = rows.to(like.device, like.dtype)
        return self._bank[key]
