"""Types of the numbers in settings, and the settings that most experiments share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..specs import spec
from ..training.config import Dtype

Count = Annotated[int, Field(gt=0)]
Epochs = Annotated[int, Field(ge=0)]  # of a later phase; 0 leaves it out
Seeds = Annotated[int, Field(gt=0, le=1000)]
Dimension = Annotated[int, Field(ge=2)]
Positive = Annotated[float, Field(gt=0)]


@spec
class Sizes:
    """Sizes of a comparison on xor. Defaults are from Wen, Li & Ma, who show one run."""

    seeds: Seeds = 1
    width: Count = 500
    d: Dimension = 30
    n: Count = 100
    n_test: Count = 10_000
    dtype: Dtype = "float32"
