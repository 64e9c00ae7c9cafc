"""What the two passes of a SAM step share: their noise, and one update of BatchNorm statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.module import register_module_forward_pre_hook


@contextmanager
def frozen_batchnorm(model: nn.Module | None = None) -> Iterator[None]:
    """Leave the running statistics of every BatchNorm (and InstanceNorm) alone inside the block.

    The layers still normalise by the batch, so outputs and gradients are those of training. Without
    a model, every such layer that is called inside the block is meant.

    >>> layer = nn.BatchNorm1d(2)
    >>> with frozen_batchnorm(layer):
    ...     _ = layer(torch.ones(4, 2))
    >>> layer.running_mean, int(layer.num_batches_tracked)
    (tensor([0., 0.]), 0)
    """
    kept: list[tuple[_NormBase, Tensor | None, Tensor | None]] = []

    def freeze(layer: nn.Module, given: Any = None) -> None:
        if isinstance(layer, _NormBase) and layer.training and layer.track_running_stats:
            kept.append((layer, layer.running_mean, layer.running_var))
            # BatchNorm looks at the flag, InstanceNorm at the tensors.
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = None

    hook = None
    try:
        if model is None:
            hook = register_module_forward_pre_hook(freeze)
        else:
            for layer in model.modules():
                freeze(layer)
        yield
    finally:
        if hook is not None:
            hook.remove()
        for layer, mean, var in kept:
            layer.running_mean, layer.running_var = mean, var
            layer.track_running_stats = True


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
