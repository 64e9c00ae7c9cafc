"""Thin a product of factors: `make test` runs a part, `make test-all` every case.

The part is chosen greedily and is the same on every machine. Every value of every factor occurs
in it, and where several cases cover equally much, the one whose values occurred least is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest


def cover(cases: Sequence[tuple]) -> set[int]:
    """Return the places of cases in which every value of every factor occurs.

    >>> cases = [(a, b) for a in "xyz" for b in (1, 2)]
    >>> [cases[place] for place in sorted(cover(cases))]
    [('x', 1), ('y', 2), ('z', 1)]
    """
    values = [set(enumerate(case)) for case in cases]
    missing, seen, chosen = set().union(*values), Counter(), set()
    while missing:
        place = max(
            range(len(cases)),
            key=lambda i: (len(values[i] & missing), -sum(seen[v] for v in values[i]), -i),
        )
        missing -= values[place]
        seen.update(values[place])
        chosen.add(place)
    return chosen


def thinned(cases: Iterable[tuple]) -> list:
    """Return every case for `parametrize`, the ones outside the cover marked slow."""
    cases = list(cases)
    kept = cover(cases)
    return [
        pytest.param(*case, marks=() if place in kept else pytest.mark.slow)
        for place, case in enumerate(cases)
    ]
