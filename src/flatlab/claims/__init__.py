"""What the sources state, and a check for each statement that can be checked."""

from __future__ import annotations

import functools
import importlib

from .contract import Claim as Claim
from .contract import Evidence as Evidence
from .contract import Trial as Trial
from .lines import Line as Line

__all__ = ["Claim", "Evidence", "Line", "Trial", "claims"]

# In the order of the sources.
MODULES = (
    "wen2023.section2",
    "wen2023.section3",
    "wen2023.sections4_5",
    "wen2023.batch_norm",
    "wen2023.no_bias",
    "wen2023.no_bias_proof",
    "wen2023.bias",
    "wen2023.logistic",
    "wen2023.subgaussian",
    "wen2023.shattering",
    "wen2023.complexity",
    "wen2023.figures",
    "found",
    "kaur2022.section2",
    "kaur2022.section3",
    "wu2025.background",
    "wu2025.perturbations",
    "wu2025.pac_bayes",
    "wu2025.flatness_bound",
    "wu2025.norms",
    "wu2025.memorising",
    "wu2025.sam",
    "wu2025.gradient_descent",
    "wu2025.linear_stability",
    "wu2025.noise",
    "wu2025.alignment",
    "wu2025.escape",
)


@functools.cache
def claims() -> dict[str, Claim]:
    """Return every claim by its id, in the order of the sources."""
    found: dict[str, Claim] = {}
    for name in MODULES:
        module = importlib.import_module(f"{__name__}.{name}")
        for value in vars(module).values():
            for one in value if isinstance(value, tuple) else (value,):
                if not isinstance(one, Claim):
                    continue
                if one.id in found:
                    raise RuntimeError(f"two claims are called {one.id}")
                found[one.id] = one
    return found
