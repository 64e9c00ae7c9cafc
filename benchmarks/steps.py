"""One step of the engine compared with one step of the eager loop."""

from __future__ import annotations

from . import timing
from .cases import CASES, Case, Engine, disagreement
from .eager import Eager
from .rows import Row, Target, Tell

TOLERANCE = 1e-9
TARGETS = {"sam": 400.0, "deep": 15.0, "sim_bn": 8.0}


def require_agreement(case: Case, contender: type, who: str) -> None:
    """Raise unless a competitor and the engine take the same steps.

    Both train at least 10 steps in float64 from the same weights in the same order. Rounding makes
    them differ by about 1e-14; a mistake in either, by far more than the tolerance.
    """
    ours, theirs = Engine(case, "float64"), contender(case, "float64")
    epochs = -(-10 // case.steps_per_epoch)
    for each in (ours, theirs):
        each.reset()
        each.run(epochs)
        each.check()
    error = disagreement(ours.params(), theirs.params())
    if not error <= TOLERANCE:
        raise RuntimeError(
            f"{case.what}: the engine and {who} differ by {error:.1e} after "
            f"{epochs * case.steps_per_epoch} steps in float64 (at most {TOLERANCE:g} is allowed), "
            "so comparing their speed means nothing"
        )


def benchmark(name: str, tell: Tell) -> list[Row]:
    """Compare the engine with the eager loop on one case."""
    case = CASES[name]
    tell(f"{name}: checking the eager loop against the engine")
    require_agreement(case, Eager, "the eager loop")
    tell(f"{name}: timing")
    best = timing.microseconds_a_step({"engine": Engine(case), "eager": Eager(case)})
    target = Target("ratio", ">=", TARGETS[name]) if name in TARGETS else None
    ratio = best["eager"] / best["engine"]
    return [
        Row(name, f"{case.what}: engine", best["engine"], "µs/step", ratio, target),
        Row(name, "the same, eager PyTorch", best["eager"], "µs/step"),
    ]
