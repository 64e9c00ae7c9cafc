"""How the benchmarks take time: interleaved slices of equal work, the fastest of each contender.

Other work on a machine only adds time, so the minimum over repeats is the best estimate of the cost
of a step. Contenders take turns, so that a slow minute hits all of them. Steps are timed in
processor time of the whole process. For loops on one thread that is the wall-clock of a quiet
machine. On a busy machine it leaves out the waiting for a core, which would hit long slices more
than short ones.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from threadpoolctl import threadpool_limits

import flatlab.engine  # noqa: F401  loads its BLAS before threads are limited

SLICE_SECONDS = 0.1
ROUNDS = 9


class Contender(Protocol):
    """One way to train a network."""

    steps_per_epoch: int

    def reset(self) -> None:
        """Go back to the initial weights."""
        ...

    def run(self, epochs: int) -> None:
        """Train from the current weights for the epochs 0..epochs−1 of the sample order."""
        ...

    def check(self) -> None:
        """Raise if the weights are not finite, since the timing would mean nothing."""
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
    """Return each contender's fastest time per step.

    Every slice repeats the same epochs from the same weights: at least one, and as many as fit in
    `SLICE_SECONDS`.
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
    """Return the seconds of this number of epochs from the initial weights."""
    contender.reset()
    start = clock()
    contender.run(epochs)
    seconds = clock() - start
    contender.check()
    return seconds


def _epochs_in_a_slice(contender: Contender) -> int:
    """Double the epochs until they fill half a slice, then scale up; the first calls compile."""
    epochs = 1
    slice_seconds(contender, epochs)
    while (seconds := slice_seconds(contender, epochs)) < SLICE_SECONDS / 2:
        epochs *= 2
    return max(1, round(epochs * SLICE_SECONDS / seconds))
