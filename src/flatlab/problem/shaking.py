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

# A problem of at most this many parameters has `RUNS` runs over all of its examples.
SMALL, RUNS = 1000, 3
# A larger one has one run, over this many random examples or this share of them.
FEW, SHARE = 32, 1 / 64


def shaken(problem: Problem, compute: Callable[[Problem], Any]) -> tuple[Tensor, Tensor]:
    """Return compute(problem), and what each run in disturbed arithmetic adds to it.

    A large problem is replaced by random examples of it, or by its first batch if the model mixes
    examples; they show how much each example rounds. A run that fails adds ∞: where rounding leaves
    the domain of a function, the result is unknown.
    """
    part, runs = copy.copy(problem), RUNS
    if problem.size > SMALL and problem.n > FEW:
        some = drawn(problem.batches, max(FEW, int(SHARE * problem.n)), 0, "rounding")
        pieces = [each for batch in some for each in cut(batch, PIECE)]
        part.batches = problem.batches[:1] if problem.mixed else pieces
        part.n, runs = sum(len(x) for x, _ in part.batches), 1
    clean = torch.as_tensor(compute(part), dtype=torch.float64)
    moved = []
    for run in range(runs):
        found: Any = torch.full_like(clean, math.inf)
        with Disturbed(run), contextlib.suppress(FlatlabError, RuntimeError, TypeError, ValueError):
            found = compute(copy.copy(part))
        moved.append(torch.as_tensor(found, dtype=torch.float64) - clean)
    return clean, torch.stack(moved).nan_to_num(math.inf, math.inf, -math.inf)
