"""What disturbed arithmetic adds to a number that is computed from a problem."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import FlatlabError
from .batches import cut, drawn
from .disturbing import Disturbed
from .problem import PIECE, Problem

# A problem of at most this many parameters has `RUNS` runs, over at least this many examples.
SMALL, RUNS, SEVERAL = 1000, 3, 1000
# A larger one has one run, over at least this many examples.
FEW = 32
# Of more examples this share is drawn at random.
SHARE = 1 / 64


def shaken(problem: Problem, compute: Callable[[Problem], Any]) -> tuple[Tensor, Tensor]:
    """Return compute(problem), and what each run in disturbed arithmetic adds to it.

    Many examples are replaced by some of them, drawn at random, or by the first batch if the model
    mixes examples; they show how much each example rounds. A run that fails adds ∞: where rounding
    leaves the domain of a function, the result is unknown.
    """
    part = copy.copy(problem)
    runs, least = (RUNS, SEVERAL) if problem.size <= SMALL else (1, FEW)
    if problem.n > least:
        some = drawn(problem.batches, max(least, int(SHARE * problem.n)), 0, "rounding")
        pieces = [each for batch in some for each in cut(batch, PIECE)]
        part.batches = problem.batches[:1] if problem.mixed else pieces
        part.n = sum(len(x) for x, _ in part.batches)
    clean = torch.as_tensor(compute(part), dtype=torch.float64)
    moved = []
    for run in range(runs):
        found: Any = torch.full_like(clean, math.inf)
        with Disturbed(run), contextlib.suppress(FlatlabError, RuntimeError, TypeError, ValueError):
            found = compute(copy.copy(part))
        moved.append(torch.as_tensor(found, dtype=torch.float64) - clean)
    return clean, torch.stack(moved).nan_to_num(math.inf, math.inf, -math.inf)
