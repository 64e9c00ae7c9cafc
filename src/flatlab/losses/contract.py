"""What a loss is: a spec with a torch form, the labels it takes and, for one output, a scalar form.

A training loss is the mean over examples. The torch form is the meaning. The scalar form gives the
value and two derivatives in the output f, which the engine and the exact Hessian trace need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, unknown
from ..specs import from_dict

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Array = NDArray[np.floating[Any]]
Labels = Literal["real", "signs", "classes"]

LABELS: dict[Labels, str] = {
    "real": "real numbers, one for each output",
    "signs": "real numbers between -1 and 1",
    "classes": "integer classes 0, 1, …, one output for each class",
}
LOSSES: dict[str, type[Loss]] = {}


class _Named(type):
    """Lets `Loss("logistic", smoothing=0.1)` make the loss of that name."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if cls is not Loss:
            return super().__call__(*args, **options)
        name = args[0] if args else options.pop("name", "mse")
        if len(args) > 1:
            raise UserError(f"Loss takes a name and options by name, got {name!r}, {args[1]!r}")
        if not isinstance(name, str):
            raise UserError(f"a loss is named by a string such as 'mse', got {name!r}")
        if name not in LOSSES:
            raise unknown("loss", name, LOSSES)
        return LOSSES[name](**options)


class Loss(metaclass=_Named):
    """The base of every loss; `Loss(name, **options)` makes one by name.

    Attributes:
        name: Its name in configurations and on cards.
        formula: The loss of one example, for lists.
        labels: Which labels it takes, a key of `LABELS`.
    """

    name: ClassVar[str]
    formula: ClassVar[str]
    labels: ClassVar[Labels] = "real"

    if TYPE_CHECKING:

        def __init__(self, name: str = "mse", **options: Any) -> None: ...

    @property
    def least(self) -> float:
        """The least value of the loss of one example."""
        return 0.0

    def values(self, f: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return ℓ, ℓ', ℓ'' elementwise, for losses of one output."""
        raise UserError(f"the loss {self.name!r} has no form for one output")

    def torch(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss as a torch scalar."""
        raise UserError(f"the loss {self.name!r} has no torch form")

    def function(self) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the loss as a function of outputs and labels: torch's own, where it has one."""
        return self.torch

    def refusal(self, labels: NDArray[Any], classes: int | None) -> str | None:
        """Say why the loss refuses these labels, or return None; numbers have no `classes`."""
        takes = f"the loss {self.name!r} takes {LABELS[self.labels]}"
        if self.labels == "classes" and classes is None:
            return (
                f"{takes}; these labels are numbers: give the number of classes, as classes=… of "
                "flatlab.data.arrays or as the entry 'classes' of an .npz file"
            )
        if self.labels != "classes" and classes is not None:
            return f"{takes}; these labels are {classes} integer classes: use 'cross_entropy'"
        if self.labels == "signs" and np.abs(labels).max() > 1:
            largest = np.abs(labels).max()
            return f"{takes}, got {largest:g}: use 'mse', or labels -1 and 1"
        if self.labels == "signs" and 0 in labels and np.isin(labels, (0, 1)).all():
            return f"{takes}, and two classes are -1 and 1; these are 0 and 1: use 2 * y - 1"
        return None


def loss(name: str, formula: str) -> Callable[[type], type]:
    """Register a loss under its name."""

    def register(cls: type) -> type:
        made = cast(Any, cls)
        made.name, made.formula = name, formula
        LOSSES[name] = made
        return cls

    return register


def as_loss(given: Any) -> Loss:
    """Accept a `Loss`, its name, or a table {"name": …, …}."""
    if isinstance(given, Loss):
        return given
    if isinstance(given, str):
        return Loss(given)
    if isinstance(given, dict):
        options = dict(given)
        name = options.pop("name", "mse")
        if not isinstance(name, str) or name not in LOSSES:
            raise unknown("loss", str(name), LOSSES)
        return from_dict(LOSSES[name], options)
    raise UserError(f"loss must be a name or a Loss, got {given!r}")
