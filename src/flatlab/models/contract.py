"""What an architecture is: a frozen spec that makes its torch module for a data set and a seed."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..specs import spec_text, to_dict

if TYPE_CHECKING:
    from torch import nn

    from .chains import Chain

Params = dict[str, NDArray[Any]]
State = dict[str, NDArray[Any]]  # "params/W1", "buffers/…", "optimizer/…": all that training needs
Activation = Literal["relu", "tanh", "gelu", "softplus", "identity"]


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


class Architecture(abc.ABC):
    """A network as a value. Specs do not import torch; `module` does.

    Attributes:
        kind: Its name in configurations and on the command line.
        draws: Whether a forward pass may draw random numbers outside of dropout layers.
    """

    kind: ClassVar[str]
    draws: ClassVar[bool] = False

    @property
    def parts(self) -> frozenset[str]:
        """Parts that a phase may treat apart: "first_layer", "bias", "gamma", "statistics"."""
        return frozenset()

    @property
    def normalises(self) -> bool:
        """Whether it has BatchNorm; True also if only building it can tell."""
        return bool(getattr(self, "batch_norm", False))

    @property
    def chain(self) -> Chain | None:
        """Itself, if it is one of the scalar networks that the engine computes; None otherwise."""
        return None

    @abc.abstractmethod
    def module(self, data: Examples, seed: int) -> nn.Module:
        """Return the network with its initial weights, drawn from the seed, in float64.

        One output for each example has the shape (examples,), several (examples, outputs).
        """

    @abc.abstractmethod
    def size(self, shape: tuple[int, ...], outputs: int) -> int | None:
        """Return the number of parameters, or None where only building it can tell."""

    def code(self) -> str | None:
        """Return the SHA-256 of the user's own code behind it; None if there is none."""
        return None

    def describe(self) -> str:
        """Return the spec as the command line takes it, kind:field=value,…, without defaults."""
        return spec_text(self.kind, to_dict(self))


def part(arrays: Params, name: str) -> Params:
    """Return the arrays called "name/…", by the rest of their names.

    >>> part({"params/W": np.ones(1), "buffers/b": np.ones(2)}, "params")
    {'W': array([1.])}
    """
    start = f"{name}/"
    return {key.removeprefix(start): v for key, v in arrays.items() if key.startswith(start)}


def shapes_of(arrays: Params) -> dict[str, tuple[int, ...]]:
    """Return name → shape."""
    return {name: np.shape(value) for name, value in arrays.items()}
