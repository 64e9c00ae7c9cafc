"""A job that does nothing; its file imports nothing, so that only the backend is timed."""

from __future__ import annotations

from typing import Any


def nothing(payload: dict[str, Any], report: Any) -> dict[str, Any]:
    """Return at once."""
    return {}
