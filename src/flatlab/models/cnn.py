"""A plain convolutional network: blocks of convolution, normalisation, activation and pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from ..errors import UserError
from ..specs import spec
from .contract import Described, Examples

if TYPE_CHECKING:
    from torch import nn

Channels = Annotated[int, Field(gt=0)]


def require_images(kind: str, shape: tuple[int, ...]) -> None:
    """Raise unless an input is (channels, height, width)."""
    if len(shape) != 3:
        raise UserError(
            f"{kind} takes images of shape (channels, height, width), got inputs of shape {shape}: "
            "reshape them, or use mlp"
        )


def pooled(side: int) -> int:
    """Return the side of an image after pooling by two; an image of one pixel is not pooled.

    >>> [pooled(side) for side in (32, 7, 1)]
    [16, 3, 1]
    """
    return max(side // 2, 1)


def blocks(
    channels: int,
    sides: tuple[int, int],
    widths: tuple[int | str, ...],
    batch_norm: bool,
    activation: str = "relu",
) -> tuple[list[nn.Module], int]:
    """Return convolutional blocks, "M" for a max-pool by two, and how many numbers they end in."""
    import torch
    from torch import nn

    from .layers import activation as activated

    made: list[nn.Module] = []
    height, width = sides
    for entry in widths:
        if isinstance(entry, str):
            if min(height, width) > 1:
                made.append(nn.MaxPool2d(2))
                height, width = pooled(height), pooled(width)
            continue
        made.append(nn.Conv2d(channels, entry, 3, padding=1, dtype=torch.float64))
        made += [nn.BatchNorm2d(entry, dtype=torch.float64)] if batch_norm else []
        made.append(activated(activation))  # type: ignore[arg-type]
        channels = entry
    return [*made, nn.Flatten()], channels * height * width


@spec
class CNN(Described):
    """Blocks of [convolution 3×3, BatchNorm, activation, max-pool 2] and a linear layer.

    Attributes:
        channels: Channels of each block.
        batch_norm: Whether each block has BatchNorm.
        dropout: Probability that dropout sets an input of the linear layer to zero.
        activation: The nonlinearity.
        init: How weights start: normal with variance 1/fan_in ("lecun") or 2/fan_in ("he") and zero
            biases, or PyTorch's default law.
    """

    channels: Annotated[tuple[Channels, ...], Field(min_length=1, strict=False)] = (16, 32, 64, 64)
    batch_norm: bool = False
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    activation: Literal["relu", "tanh", "gelu", "softplus", "identity"] = "relu"
    init: Literal["torch", "lecun", "he"] = "lecun"
    kind: ClassVar[str] = "cnn"

    def size(self, shape: tuple[int, ...], outputs: int) -> int | None:
        """Return the number of parameters.

        >>> CNN().size((3, 16, 16), 10)
        61162
        """
        if len(shape) != 3:
            return None
        inputs, height, width = shape
        total = 0
        for entry in self.channels:
            total += 9 * inputs * entry + entry + (2 * entry if self.batch_norm else 0)
            inputs, height, width = entry, pooled(height), pooled(width)
        return total + (inputs * height * width + 1) * outputs

    def module(self, data: Examples, seed: int) -> nn.Module:
        """Return the network with its initial weights."""
        from torch import nn

        from .layers import drawn, head, undisturbed

        require_images(self.kind, data.shape)
        entries = tuple(part for width in self.channels for part in (width, "M"))
        channels, height, width = data.shape
        sides = (height, width)
        with undisturbed():
            made, flat = blocks(channels, sides, entries, self.batch_norm, self.activation)
            made += [nn.Dropout(self.dropout)] if self.dropout else []
            return drawn(nn.Sequential(*made, *head(flat, data.outputs)), self.init, seed)
