"""VGG11 for small images (Simonyan and Zisserman 2015, configuration A)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from ..specs import spec
from .cnn import blocks, require_images
from .contract import Described, Examples

if TYPE_CHECKING:
    from torch import nn

LAYERS = (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M")


@spec
class VGG11(Described):
    """Eight convolutions, five max-pools and a classifier; no pooling below one pixel.

    Attributes:
        batch_norm: Whether BatchNorm follows each convolution.
        channels: Factor on the number of channels, and on the width of the classifier.
        hidden: Hidden layers of the classifier, each as wide as the last convolution.
        dropout: Probability of dropout before each linear layer.
        init: "fan_out" draws convolutions from N(0, 2/(k²·out)) with zero biases and linear layers
            from PyTorch's default law; "torch" draws all from the default law; "he" from N(0,
            2/fan_in) with zero biases.
    """

    batch_norm: bool = False
    channels: Annotated[float, Field(gt=0, le=8)] = 1.0
    hidden: Annotated[int, Field(ge=0, le=8)] = 2
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    init: Literal["fan_out", "torch", "he"] = "fan_out"
    kind: ClassVar[str] = "vgg11"

    def _entries(self) -> tuple[int | str, ...]:
        return tuple(e if isinstance(e, str) else max(1, round(e * self.channels)) for e in LAYERS)

    def size(self, shape: tuple[int, ...], outputs: int) -> int | None:
        """Return the number of parameters on images of at most 63 pixels a side.

        >>> VGG11().size((3, 32, 32), 10), VGG11(channels=0.25, hidden=0).size((3, 32, 32), 10)
        (9750922, 578410)
        """
        if len(shape) != 3 or not max(shape[1:]) < 64:
            return None
        inputs, total = shape[0], 0
        for entry in self._entries():
            if not isinstance(entry, str):
                total += 9 * inputs * entry + entry + (2 * entry if self.batch_norm else 0)
                inputs = entry
        return total + self.hidden * (inputs + 1) * inputs + (inputs + 1) * outputs

    def module(self, data: Examples, seed: int) -> nn.Module:
        """Return the network with its initial weights."""
        import torch
        from torch import nn

        from .layers import drawn, head, undisturbed

        require_images(self.kind, data.shape)
        channels, height, width = data.shape
        drop, wide = self.dropout, max(1, round(512 * self.channels))
        with undisturbed():
            made, flat = blocks(channels, (height, width), self._entries(), self.batch_norm)
            for _ in range(self.hidden):
                made += [nn.Dropout(drop)] if drop else []
                made += [nn.Linear(flat, wide, dtype=torch.float64), nn.ReLU()]
                flat = wide
            made += [nn.Dropout(drop)] if drop else []
            return drawn(nn.Sequential(*made, *head(flat, data.outputs)), self.init, seed)
