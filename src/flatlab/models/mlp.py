"""A fully connected network of any widths, with dropout."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from ..specs import spec
from .chains import Width
from .contract import Activation, Architecture, Examples

if TYPE_CHECKING:
    from torch import nn


@spec
class MLP(Architecture):
    """A fully connected network with dropout after each hidden layer.

    Attributes:
        widths: Widths of the hidden layers, the first one first.
        dropout: Probability that dropout sets an activation to zero.
        init: How weights start: PyTorch's default law, or normal weights and zero biases.
    """

    widths: Annotated[tuple[Width, ...], Field(strict=False)] = (256, 256)
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    activation: Activation = "relu"
    bias: bool = True
    init: Literal["torch", "lecun", "he"] = "torch"
    kind: ClassVar[str] = "mlp"

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        """Return the number of parameters.

        >>> MLP(widths=(5,)).size((3,), 2)
        32
        """
        sizes = [math.prod(shape), *self.widths, outputs]
        return sum((a + self.bias) * b for a, b in itertools.pairwise(sizes))

    def module(self, data: Examples, seed: int) -> nn.Module:
        """Return the network with its initial weights."""
        import torch
        from torch import nn

        from .layers import ACTIVATIONS, OneOutput, drawn

        sizes = [math.prod(data.shape), *self.widths, data.outputs]
        made: list[nn.Module] = [nn.Flatten()] if len(data.shape) != 1 else []
        with torch.random.fork_rng(devices=[]):  # layers draw when they are made
            for inputs, outputs in itertools.pairwise(sizes):
                if made and not isinstance(made[-1], nn.Flatten):
                    made.append(ACTIVATIONS[self.activation]())
                    made += [nn.Dropout(self.dropout)] if self.dropout else []
                made.append(nn.Linear(inputs, outputs, bias=self.bias, dtype=torch.float64))
        made += [OneOutput()] if data.outputs == 1 else []
        return drawn(nn.Sequential(*made), self.init, seed)
