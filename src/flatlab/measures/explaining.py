"""`explain()`: what a measure is, in words."""

from __future__ import annotations

import dataclasses
from typing import Any

from . import named
from .contract import formula_of, settings_of


def facts(name: str) -> dict[str, Any]:
    """Return what a measure is, what it is invariant to, what it costs and what it is not."""
    measure = named(name)
    about = dataclasses.replace(measure.about, formula=formula_of(measure))
    return {"name": name, **dataclasses.asdict(about), "settings": settings_of(measure)}


def explanation(name: str) -> str:
    """Return those facts as lines of text."""
    found = facts(name)
    lines = [
        ("what", f"{found['symbol']}: {found['title']}"),
        ("formula", found["formula"]),
        ("ReLU rescaling", found["relu"]),
        ("scale before BatchNorm", found["batchnorm"]),
        ("permuted neurons", found["permutation"]),
        ("exact", found["exact"]),
        ("cost", found["cost"]),
        ("what it is not", found["caveat"]),
        ("settings", ", ".join(f"{k}={v!r}" for k, v in found["settings"].items()) or "none"),
    ]
    width = max(len(label) for label, _ in lines)
    return "\n".join([name, *(f"  {label.ljust(width)}  {text}" for label, text in lines)])


def explain(name: str) -> None:
    """Print what a measure is.

    >>> explain("trace")
    trace
      what                    Tr: the trace: the sum of all eigenvalues
      ...
    """
    print(explanation(name))
