"""A fully connected network of any widths, with dropout."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from ..specs import spec
from .contract import Described, Examples

if TYPE_CHECKING:
    from torch import nn

Width = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]


@spec
class MLP(Described):
    """A fully connected network with dropout after each hidden layer.

    Attributes:
        widths: Widths of the hidden layers, the first one first.
        dropout: Probability that dropout sets an activation to zero.
        activation: The nonlinearity after each hidden layer.
        bias: Whether the layers have biases.
        init: How weights start: PyTorch's default law, or normal weights and zero biases.
    """

    widths: Annotated[tuple[Width, ...], Field(strict=False)] = (256, 256)
    dropout: Rate = 0.0
    activation: Literal["relu", "tanh", "gelu", "softplus", "identity"] = "relu"
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

        from .layers import OneOutput, activation, drawn, undisturbed

        sizes = [math.prod(data.shape), *self.widths, data.outputs]
        made: list[nn.Module] = [nn.Flatten()] if len(data.shape) != 1 else []
        with undisturbed():
            for inputs, outputs in itertools.pairwise(sizes):
                if made and not isinstance(made[-1], nn.Flatten):
                    made.append(activation(self.activation))
                    made += [nn.Dropout(self.dropout)] if self.dropout else []
                made.append(nn.Linear(inputs, outputs, bias=self.bias, dtype=torch.float64))
        made += [OneOutput()] if data.outputs == 1 else []
        return drawn(nn.Sequential(*made), self.init, seed)
