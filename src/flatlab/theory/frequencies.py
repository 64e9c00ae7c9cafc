"""Confidence intervals of frequencies."""

from __future__ import annotations

from scipy import special

CONFIDENCE = 0.95


def clopper_pearson(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact two-sided confidence interval of a frequency (Clopper and Pearson 1934).

    >>> [round(end, 4) for end in clopper_pearson(0, 100)]
    [0.0, 0.0362]
    """
    tail = (1 - confidence) / 2
    low = special.betaincinv(hits, trials - hits + 1, tail) if hits else 0.0
    high = special.betaincinv(hits + 1, trials - hits, 1 - tail) if hits < trials else 1.0
    return float(low), float(high)
