"""Types of the numbers in settings, and the settings that most experiments share."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import Field

from ..specs import spec
from ..training.config import Dtype

Count = Annotated[int, Field(gt=0)]
Epochs = Annotated[int, Field(ge=0)]  # of a later phase; 0 leaves it out
Seeds = Annotated[int, Field(gt=0, le=1000)]
Dimension = Annotated[int, Field(ge=2)]
Positive = Annotated[float, Field(gt=0)]
T = TypeVar("T")
ORDINALS = ("", "_second", "_third")  # of an arm's phases, in the names of settings


@spec
class Sizes:
    """Sizes of a comparison on xor. Defaults are from Wen, Li & Ma, who show one run.

    `lr`, `rho`, `noise` and `batch_size` replace the values of the phases (`tuning`); None keeps
    them.
    """

    seeds: Seeds = 1
    width: Count = 500
    d: Dimension = 30
    n: Count = 100
    n_test: Count = 10_000
    dtype: Dtype = "float32"
    lr: Positive | None = None
    rho: Positive | None = None
    noise: Positive | None = None
    batch_size: Count | None = None


def lengths(**epochs: int | tuple[int, ...]) -> dict[str, Any]:
    """Return the epochs of each arm, or of each of its phases, by the names of the settings.

    >>> lengths(gd=400, sam=(200, 100))
    {'gd_epochs': 400, 'sam_epochs': 200, 'sam_epochs_second': 100}
    """
    phases = {key: (given,) if isinstance(given, int) else given for key, given in epochs.items()}
    return {
        f"{key}_epochs{ordinal}": length
        for key, given in phases.items()
        for ordinal, length in zip(ORDINALS, given, strict=False)
    }


def first_look(settings: type[T], **changes: Any) -> T:
    """Return the settings of a preset `quick`: small sizes, with changes."""
    small = {"seeds": 2, "width": 20, "d": 8, "n": 40, "n_test": 500}
    return settings(**{**small, **changes})


def quick_and_lab(settings: type[T], **changes: Any) -> dict[str, T]:
    """Return the presets of a question of ours: small sizes with changes, and the defaults."""
    return {"quick": first_look(settings, **changes), "lab": settings()}
