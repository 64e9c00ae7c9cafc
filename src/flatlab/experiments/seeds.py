"""Settings with fewer or more seeds. An experiment that trains nothing may have none at all."""

from __future__ import annotations

import dataclasses
from typing import Any


def seeds_of(settings: Any) -> int | None:
    """Return the number of seeds, or None if the settings have no such field."""
    found: int | None = getattr(settings, "seeds", None)
    return found


def with_seeds(settings: Any, seeds: int) -> Any:
    """Return the settings with another number of seeds; as they are if they have none."""
    if seeds_of(settings) is None:
        return settings
    return dataclasses.replace(settings, seeds=seeds)
