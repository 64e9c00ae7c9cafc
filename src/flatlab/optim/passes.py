"""What the two passes of a SAM step share: their noise, and one update of BatchNorm statistics."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.module import register_module_forward_pre_hook

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@contextmanager
def frozen_batchnorm(model: nn.Module | None = None) -> Iterator[None]:
    """Leave the running statistics of every BatchNorm (and InstanceNorm) alone inside the block.

    The layers still normalise by the batch, so outputs and gradients are those of training. Without
    a model, every such layer that is called inside the block is meant, also in modules that
    torch.compile or torch.jit.script made.

    >>> layer = nn.BatchNorm1d(2)
    >>> with frozen_batchnorm(layer):
    ...     _ = layer(torch.ones(4, 2))
    >>> layer.running_mean, int(layer.num_batches_tracked)
    (tensor([0., 0.]), 0)
    """
    kept: list[tuple[_NormBase, Tensor | None, Tensor | None]] = []
    copied: dict[Tensor, Tensor] = {}

    def called(layer: nn.Module, given: Any) -> None:
        # Inside what is compiled or scripted no hook runs.
        whole = hasattr(layer, "_orig_mod") or isinstance(layer, torch.jit.ScriptModule)
        for part in layer.modules() if whole else [layer]:
            freeze(part)

    def freeze(layer: nn.Module) -> None:
        if isinstance(layer, torch.jit.ScriptModule):  # its flags are part of its code
            for name, value in layer.named_buffers(recurse=False):
                if name in STATISTICS and value not in copied:
                    copied[value] = value.clone()
        elif isinstance(layer, _NormBase) and layer.training and layer.track_running_stats:
            kept.append((layer, layer.running_mean, layer.running_var))
            # BatchNorm looks at the flag, InstanceNorm at the tensors.
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = None

    hook, stack = None, ExitStack()
    try:
        if model is None and "torch._dynamo" in sys.modules:
            # torch warns that a compiled module is one more module to call.
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", ".*when there are global hooks", UserWarning)
        if model is None:
            hook = register_module_forward_pre_hook(called)
        else:
            for layer in model.modules():
                freeze(layer)
        yield
    finally:
        if hook is not None:
            hook.remove()
        stack.close()
        for layer, mean, var in kept:
            layer.running_mean, layer.running_var = mean, var
            layer.track_running_stats = True
        with torch.no_grad():
            for value, before in copied.items():
                value.copy_(before)


class Noise:
    """The state of the default random generators, to draw the same numbers once more.

    >>> noise = Noise()
    >>> one = torch.empty(3).uniform_()
    >>> noise.replay()
    >>> torch.equal(one, torch.empty(3).uniform_())
    True
    """

    def __init__(self, devices: Iterable[torch.device] = ()):
        self._cpu = torch.get_rng_state()
        self._cuda: dict[torch.device, Tensor] = {
            d: torch.cuda.get_rng_state(d) for d in set(devices) if d.type == "cuda"
        }

    def replay(self) -> None:
        """Set the generators back to the stored state."""
        torch.set_rng_state(self._cpu)
        for device, state in self._cuda.items():
            torch.cuda.set_rng_state(state, device)
