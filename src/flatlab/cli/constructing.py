"""Networks that theory gives, stored as runs: to be measured, shown, drawn and trained further."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..models import Params
from ..theory.constructions import construct
from ..theory.solution import Solution
from ..training.config import RunConfig
from ..training.run import Run
from ..training.session import run_config


def store_construction(
    name: str, data: Dataset, options: Mapping[str, Any], out: Path, *, fresh: bool = False
) -> Run:
    """Make a construction and store it as a run of no epochs, in float64."""
    solution = construct(name, data, options)
    return store_solution(solution, {"construction": name, **options}, out, fresh=fresh)


def store_solution(
    solution: Solution, start: Mapping[str, Any], out: Path, *, fresh: bool = False
) -> Run:
    """Store a network as a run of no epochs; `start` says where it comes from."""
    config = RunConfig(
        arch=solution.arch, data=solution.data.spec, schedule=(), dtype="float64", start=start
    )
    params: Params = {name: np.asarray(value) for name, value in solution.params.items()}
    return run_config(config, data=solution.data, out=out, fresh=fresh, start=params)
