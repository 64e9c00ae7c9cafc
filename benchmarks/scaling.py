"""The cost of a two-layer 1-SAM step by width and input dimension: picoseconds per weight."""

from __future__ import annotations

from flatlab.models import TwoLayer

from . import timing
from .cases import Case, Engine, one_sam
from .rows import Row, Tell, number

SIZES = (
    *((width, 30) for width in (500, 1000, 2000, 4000, 8000)),
    *((500, d) for d in (100, 300, 1000)),
    (8000, 1000),
)
ROUNDS = 5


def case(width: int, d: int) -> Case:
    """Return the problem of one size.

    The squared gradient of the output grows with width × d, so the learning rate falls with it and
    every size stays finite.
    """
    lr = 0.01 * (500 * 30) / (width * d)
    return Case(f"width {width:,}, d = {d:,}", TwoLayer(width=width), one_sam(lr), d)


def benchmark(tell: Tell) -> list[Row]:
    """Return a row per size, and the largest cost per weight divided by the smallest.

    The number of weights is width × (d + 2), all that is trained.
    """
    tell(f"scaling: {len(SIZES)} sizes, {ROUNDS} rounds")
    engines = {size: Engine(case(*size)) for size in SIZES}
    names = {engine.case.what: engine for engine in engines.values()}
    best = timing.microseconds_a_step(names, ROUNDS)
    rows, costs = [], []
    for (width, d), engine in engines.items():
        step = best[engine.case.what]
        costs.append(1e6 * step / (width * (d + 2)))
        what = f"1-SAM step, {engine.case.what}: {number(step)} µs"
        rows.append(Row("scaling", what, costs[-1], "ps/weight"))
    spread = max(costs) / min(costs)
    what = f"largest cost a weight; ratio: over the smallest, {number(min(costs))} ps"
    return [*rows, Row("scaling", what, max(costs), "ps/weight", spread)]
