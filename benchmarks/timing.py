"""How time is taken: interleaved slices of equal work, the fastest of each contender.

Other work on a machine only ever adds time, so the minimum over repeats is the best estimate of
what a step costs. Contenders take turns, so that a slow minute hits all of them. Steps are timed in
processor time of the whole process: for loops on one thread that is the wall-clock of a quiet
machine, and on a busy one it leaves out the waiting for a core, which would fall on long slices
more than on short ones.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from threadpoolctl import threadpool_limits

import flatlab.engine  # noqa: F401  the BLAS it loads must be there before threads are limited

SLICE_SECONDS = 0.1
ROUNDS = 9


class Contender(Protocol):
    """Trains one network one way."""

    steps_per_epoch: int

    def reset(self) -> None:
        """Go back to the initial weights."""
        ...

    def run(self, epochs: int) -> None:
        """Train from the current weights for the epochs 0..epochs−1 of the sample order."""
        ...

    def check(self) -> None:
        """Raise if the weights are not finite: such a timing means nothing."""
        ...


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Hold every BLAS, OpenMP and torch pool to one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def microseconds_a_step(
    contenders: Mapping[str, Contender], rounds: int = ROUNDS
) -> dict[str, float]:
    """Return each contender's fastest time of a step.

    Every slice repeats the same epochs from the same weights; it is at least one epoch, and as many
    as fit in `SLICE_SECONDS`.
    """
    epochs = {name: _epochs_in_a_slice(contender) for name, contender in contenders.items()}
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, contender in contenders.items():
            seconds = slice_seconds(contender, epochs[name])
            step = seconds / (epochs[name] * contender.steps_per_epoch)
            best[name] = min(best[name], 1e6 * step)
    return best


def slice_seconds(
    contender: Contender, epochs: int, clock: Callable[[], float] = time.process_time
) -> float:
    """Return the seconds that so many epochs from the initial weights take."""
    contender.reset()
    start = clock()
    contender.run(epochs)
    seconds = clock() - start
    contender.check()
    return seconds


def _epochs_in_a_slice(contender: Contender) -> int:
    """Double the epochs until they fill half a slice, and scale; the first calls compile."""
    epochs = 1
    slice_seconds(contender, epochs)
    while (seconds := slice_seconds(contender, epochs)) < SLICE_SECONDS / 2:
        epochs *= 2
    return max(1, round(epochs * SLICE_SECONDS / seconds))
