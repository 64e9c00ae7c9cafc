"""What the sources state, and a check for each statement that can be checked."""

from __future__ import annotations

import functools
import importlib

from .contract import Claim as Claim
from .contract import Evidence as Evidence
from .contract import Line as Line
from .contract import Trial as Trial

__all__ = ["Claim", "Evidence", "Line", "Trial", "claims"]

# In the order of the sources.
MODULES = (
    "wen2023.setup",
    "wen2023.architectures",
    "wen2023.sharpness",
    "wen2023.section3",
    "wen2023.flattest_batch_norm",
    "wen2023.section4",
    "wen2023.section4_trace",
    "wen2023.section5",
    "wen2023.batch_norm",
    "wen2023.no_bias",
    "wen2023.no_bias_uniform",
    "wen2023.truncation",
    "wen2023.bias",
    "wen2023.layer_norm",
    "wen2023.logistic",
    "wen2023.subgaussian",
    "wen2023.concentration",
    "wen2023.shattering",
    "wen2023.complexity",
    "wen2023.hyperparameters",
    "wen2023.figures",
    "found",
    "kaur2022.flatness",
    "kaur2022.stability",
    "kaur2022.sam",
    "kaur2022.figures",
    "wu2025.background",
    "wu2025.generalisation",
    "wu2025.stability",
)


@functools.cache
def claims() -> dict[str, Claim]:
    """Return every claim by its id, in the order of the sources."""
    found: dict[str, Claim] = {}
    for name in MODULES:
        module = importlib.import_module(f"{__name__}.{name}")
        for value in vars(module).values():
            if isinstance(value, Claim):
                if value.id in found:
                    raise RuntimeError(f"two claims are called {value.id}")
                found[value.id] = value
    return found
