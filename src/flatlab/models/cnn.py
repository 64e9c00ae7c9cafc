"""Convolutional networks: a plain one of equal blocks, and VGG11 for small images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from ..errors import UserError
from ..specs import spec
from .chains import Width
from .contract import Activation, Architecture, Examples

if TYPE_CHECKING:
    from torch import nn

# Configuration A of Simonyan and Zisserman (2015): channels of convolutions, "M" for a max-pool.
LAYERS = (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M")


def pooled(height: int, width: int) -> tuple[int, int]:
    """Return the sides of an image after pooling by two; a side of one pixel is not pooled.

    >>> pooled(32, 7), pooled(8, 1)
    ((16, 3), (8, 1))
    """
    return (height // 2, width // 2) if min(height, width) > 1 else (height, width)


def counted(
    shape: tuple[int, ...], widths: tuple[int | str, ...], batch_norm: bool
) -> tuple[int, int]:
    """Return the number of parameters of `blocks`, and how many numbers they end in."""
    total, (channels, height, width) = 0, shape
    for entry in widths:
        if isinstance(entry, str):
            height, width = pooled(height, width)
        else:
            total += (9 * channels + 1) * entry + (2 * entry if batch_norm else 0)
            channels = entry
    return total, channels * height * width


def blocks(
    kind: str,
    shape: tuple[int, ...],
    widths: tuple[int | str, ...],
    batch_norm: bool,
    activation: Activation = "relu",
) -> tuple[list[nn.Module], int]:
    """Return convolutional blocks, "M" for a max-pool by two, and how many numbers they end in."""
    import torch
    from torch import nn

    from .layers import ACTIVATIONS

    if len(shape) != 3:
        raise UserError(
            f"{kind} takes images of shape (channels, height, width), got inputs of shape {shape}: "
            "reshape them, or use mlp"
        )
    made: list[nn.Module] = []
    channels, height, width = shape
    for entry in widths:
        if isinstance(entry, str):
            made += [nn.MaxPool2d(2)] if min(height, width) > 1 else []
            height, width = pooled(height, width)
            continue
        made.append(nn.Conv2d(channels, entry, 3, padding=1, dtype=torch.float64))
        made += [nn.BatchNorm2d(entry, dtype=torch.float64)] if batch_norm else []
        made.append(ACTIVATIONS[activation]())
        channels = entry
    return [*made, nn.Flatten()], channels * height * width


@spec
class CNN(Architecture):
    """Blocks of [convolution 3×3, BatchNorm, activation, max-pool 2] and a linear layer.

    Attributes:
        channels: Channels of each block.
        dropout: Probability that dropout sets an input of the linear layer to zero.
        init: How weights start: normal with variance 1/fan_in ("lecun") or 2/fan_in ("he") and zero
            biases, or PyTorch's default law.
    """

    channels: Annotated[tuple[Width, ...], Field(min_length=1, strict=False)] = (16, 32, 64, 64)
    batch_norm: bool = False
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    activation: Activation = "relu"
    init: Literal["torch", "lecun", "he"] = "lecun"
    kind: ClassVar[str] = "cnn"

    def size(self, shape: tuple[int, ...], outputs: int) -> int | None:
        """Return the number of parameters.

        >>> CNN().size((3, 16, 16), 10)
        61162
        """
        if len(shape) != 3:
            return None
        entries = tuple(part for width in self.channels for part in (width, "M"))
        total, ends = counted(shape, entries, self.batch_norm)
        return total + (ends + 1) * outputs

    def module(self, data: Examples, seed: int) -> nn.Module:
        """Return the network with its initial weights."""
        import torch
        from torch import nn

        from .layers import drawn, head

        entries = tuple(part for width in self.channels for part in (width, "M"))
        with torch.random.fork_rng(devices=[]):  # layers draw when they are made
            made, flat = blocks(self.kind, data.shape, entries, self.batch_norm, self.activation)
            made += [nn.Dropout(self.dropout)] if self.dropout else []
            return drawn(nn.Sequential(*made, *head(flat, data.outputs)), self.init, seed)


@spec
class VGG11(Architecture):
    """Eight convolutions, five max-pools and a classifier; no pooling below one pixel.

    Attributes:
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

    @property
    def _wide(self) -> int:
        return max(1, round(512 * self.channels))

    def _entries(self) -> tuple[int | str, ...]:
        return tuple(e if isinstance(e, str) else max(1, round(e * self.channels)) for e in LAYERS)

    def size(self, shape: tuple[int, ...], outputs: int) -> int | None:
        """Return the number of parameters.

        >>> VGG11().size((3, 32, 32), 10), VGG11(channels=0.25, hidden=0).size((3, 32, 32), 10)
        (9750922, 578410)
        """
        if len(shape) != 3:
            return None
        total, ends = counted(shape, self._entries(), self.batch_norm)
        for _ in range(self.hidden):
            total, ends = total + (ends + 1) * self._wide, self._wide
        return total + (ends + 1) * outputs

    def module(self, data: Examples, seed: int) -> nn.Module:
        """Return the network with its initial weights."""
        import torch
        from torch import nn

        from .layers import drawn, head

        drop, wide = self.dropout, self._wide
        with torch.random.fork_rng(devices=[]):  # layers draw when they are made
            made, flat = blocks(self.kind, data.shape, self._entries(), self.batch_norm)
            for _ in range(self.hidden):
                made += [nn.Dropout(drop)] if drop else []
                made += [nn.Linear(flat, wide, dtype=torch.float64), nn.ReLU()]
                flat = wide
            made += [nn.Dropout(drop)] if drop else []
            return drawn(nn.Sequential(*made, *head(flat, data.outputs)), self.init, seed)
