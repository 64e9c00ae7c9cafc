"""What an architecture is: a frozen spec that makes its torch module for a data set and a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ..specs import spec_text, to_dict

if TYPE_CHECKING:
    from torch import nn

Params = dict[str, NDArray[Any]]


class Examples(Protocol):
    """What an architecture must know of a data set; `data.Dataset` has it."""

    @property
    def x_train(self) -> NDArray[Any]:
        """Training inputs, (n, *shape)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""

    @property
    def outputs(self) -> int:
        """Number of outputs a network needs: classes, or numbers a label has."""


class Architecture(Protocol):
    """A network as a value. Specs do not import torch; `module` does.

    Attributes:
        kind: Its name in configurations and on the command line.
    """

    kind: ClassVar[str]

    @property
    def parts(self) -> frozenset[str]:
        """Parts that a phase may treat apart: "first_layer", "bias", "gamma", "statistics"."""

    def module(self, data: Examples, seed: int) -> nn.Module:
        """Return the network with its initial weights, drawn from the seed, in float64.

        One output for each example has the shape (examples,), several (examples, outputs).
        """

    def describe(self) -> str:
        """Return one line for a person."""

    def size(self, shape: tuple[int, ...], outputs: int) -> int | None:
        """Return the number of parameters, or None where only building it can tell."""


def shapes_of(arrays: Params) -> dict[str, tuple[int, ...]]:
    """Return name → shape."""
    return {name: np.shape(value) for name, value in arrays.items()}


class Described:
    """What the architectures share: one line for a person, and no parts."""

    kind: ClassVar[str]

    @property
    def parts(self) -> frozenset[str]:
        """Parts that a phase may treat apart: none."""
        return frozenset()

    def describe(self) -> str:
        """Return the spec as the command line takes it: kind:field=value,…."""
        return spec_text(self.kind, to_dict(self))
