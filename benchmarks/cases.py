"""The training problems of the benchmarks, and the engine as a contender."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from flatlab.data import Dataset
from flatlab.data.catalogue import make
from flatlab.engine import CompiledTrainer
from flatlab.engine.philox import key_words, permutation
from flatlab.losses import Loss
from flatlab.models import Architecture, Deep, Params, TwoLayer
from flatlab.randomness import key
from flatlab.training.schedule import Phase

SEED = 0


@dataclass(frozen=True)
class Case:
    """A network, an algorithm and n = 100 examples of xor in d dimensions.

    Attributes:
        what: The step in words.
        arch: The network.
        phase: The algorithm; its number of epochs is not used.
        d: Input dimension.
    """

    what: str
    arch: Architecture
    phase: Phase
    d: int = 30

    @property
    def data(self) -> Dataset:
        """The data set, with the catalogue's default of 10,000 test examples."""
        return _xor(self.d)

    def start(self) -> Params:
        """Draw the initial weights in float64."""
        return self.arch.initial(self.d, SEED)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in one pass over the training set."""
        return -(-self.data.n // (self.phase.batch_size or self.data.n))


@functools.cache
def _xor(d: int) -> Dataset:
    return make({"name": "xor", "d": d, "n": 100, "seed": SEED})


def one_sam(lr: float = 0.01) -> Phase:
    """Return 1-SAM with the ascent radius of all cases."""
    return Phase("sam", lr=lr, rho=0.1, batch_size=1, epochs=1)


CASES = {
    "sam": Case("1-SAM step, two layers, width 500, d = 30", TwoLayer(), one_sam()),
    "deep": Case("1-SAM step, three layers, width 500", Deep(depth=3), one_sam()),
    "sim_bn": Case("1-SAM step with Sim-BN", TwoLayer(norm="batch"), one_sam(lr=0.005)),
    "sim_ln": Case("1-SAM step with Sim-LN", TwoLayer(norm="layer"), one_sam()),
    "gd": Case("gradient-descent step on all 100 examples", TwoLayer(),
               Phase("sgd", lr=0.01, epochs=1)),
}  # fmt: skip


def sample_order(n: int, epochs: int) -> list[int]:
    """Return the engine's sample order, epoch after epoch, for a competitor to follow."""
    words, order, visited = key_words(key(SEED, "order")), np.empty(n, np.int64), []
    for epoch in range(epochs):
        permutation(words, epoch, order)
        visited += order.tolist()
    return visited


class Engine:
    """The compiled trainer as a contender."""

    def __init__(self, case: Case, dtype: str = "float32"):
        self.case, self.steps_per_epoch = case, case.steps_per_epoch
        self.start = case.start()
        self.trainer = CompiledTrainer(case.arch, Loss("mse"), case.data, SEED, dtype)
        self.reset()

    def reset(self) -> None:
        """Go back to the initial weights."""
        self.trainer.load({f"params/{name}": value for name, value in self.start.items()})

    def run(self, epochs: int) -> None:
        """Train from the current weights, in one call."""
        phase = self.case.phase
        units = epochs * self.trainer.units_per_epoch(phase)
        self.failed = self.trainer.advance(phase, 0, units, 0)

    def check(self) -> None:
        """Raise if the run diverged."""
        if self.failed >= 0:
            raise FloatingPointError(f"{self.case.what}: the engine diverged in unit {self.failed}")

    def params(self) -> Params:
        """Return a copy of the weights by name."""
        return self.trainer.params()


def disagreement(ours: Params, theirs: Params) -> float:
    """Return the largest absolute difference between two sets of weights."""
    return max(float(np.abs(ours[name] - theirs[name]).max()) for name in ours)
