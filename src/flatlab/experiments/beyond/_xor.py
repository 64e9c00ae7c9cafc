"""What the experiments on xor share: networks with and without bias, 1-SAM, words for findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...data import Dataset, xor
from ...models import Architecture, TwoLayer
from ...theory import bias_floor, no_bias_floor
from ...training.config import Dtype, RunConfig
from ...training.schedule import LogGrid, Phase
from ..wen2023._table2 import phase_of, row

# Fewer points than usual: at n_test = 10,000 measuring would take longer than training.
LOG = LogGrid(per_decade=5, regular=20)


def network(s: Any, bias: bool) -> TwoLayer:
    """Return the two-layer ReLU network of the settings' width."""
    return TwoLayer(width=s.width, bias=bias)


def floor(bias: bool) -> Callable[[Dataset], float]:
    """Return the floor of the trace with or without bias."""
    return bias_floor if bias else no_bias_floor


def of_row(panel: str, index: int = 0, **changes: Any) -> Phase:
    """Return a row of the paper's Table 2 as a phase, with changes."""
    return phase_of(row(panel, index), **changes)


def config(
    s: Any,
    arch: Architecture,
    schedule: Sequence[Phase],
    seed: int,
    n: int | None = None,
    log: LogGrid = LOG,
    dtype: Dtype | None = None,
) -> RunConfig:
    """Return a run on the xor data of a seed."""
    data = xor(d=s.d, n=n or s.n, seed=seed, n_test=s.n_test)
    return RunConfig(
        arch=arch,
        data=data.spec,
        schedule=tuple(schedule),
        seed=seed,
        dtype=dtype or s.dtype,
        log=log,
    )


def listed(words: Sequence[str]) -> str:
    """Write words as a list.

    >>> listed(["a", "b", "c"]), listed(["a"]), listed([])
    ('a, b and c', 'a', 'none')
    """
    if len(words) < 2:
        return words[0] if words else "none"
    return f"{', '.join(words[:-1])} and {words[-1]}"
