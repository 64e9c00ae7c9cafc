"""How long a run will take, from its configuration: an estimate, for planning only.

The time of an update is modelled as

    fixed + a · weights + b · weights · examples + c · neurons · examples

with constants for each kind of update (`Kind`), which `python benchmarks/costs.py` measures and
prints as they stand here. They were measured on one core of an AMD EPYC, in processor time; another
machine is slower or faster by some factor, and a network whose neurons die is faster late in
training. Finished runs therefore correct the constants, kind by kind (`CostModel.calibrated`).
Expect an estimate to be wrong by a factor of up to two before that.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ..training.config import RunConfig
from ..training.schedule import Phase

Constants = tuple[float, float, float, float]

# Kind of update → (nanoseconds: fixed, a weight, a weight and example, a neuron and example), for
# one pass (SGD, label noise) and for two (SAM). Printed by benchmarks/costs.py.
CONSTANTS: dict[str, tuple[Constants, Constants]] = {
    "plain, one example": ((47.6, 0.0, 0.000841, 1.78), (133.0, 0.0, 0.0154, 1.23)),
    "a batch of one example": ((301.0, 0.244, 0.0, 3.69), (791.0, 0.446, 0.0, 3.87)),
    "torch": ((436_000.0, 0.0, 0.0, 3.47), (1_080_000.0, 0.0, 0.137, 0.0)),
    "plain, a batch": ((725.0, 0.0894, 0.0271, 0.935), (952.0, 0.201, 0.0511, 1.94)),
    "layer norm, one example": ((145.0, 0.0, 0.0, 2.09), (208.0, 0.0, 0.0, 2.57)),
    "softplus, one example": ((173.0, 0.0, 0.0459, 0.935), (317.0, 0.0, 0.0991, 0.0)),
    "softplus, a batch": ((618.0, 0.0955, 0.0281, 1.5), (1650.0, 0.182, 0.0592, 2.86)),
    "tanh, one example": ((0.0, 0.0207, 0.0, 15.1), (39.6, 0.0, 0.0, 28.2)),
    "tanh, a batch": ((2000.0, 0.342, 0.106, 11.3), (0.0, 0.67, 0.0711, 25.9)),
    "batch norm": ((0.0, 0.0, 0.0086, 0.873), (0.0, 0.0, 0.0159, 1.55)),
    "deep, one example": ((78.4, 0.129, 0.0, 4.26), (0.0, 0.169, 0.0, 6.19)),
    "deep, a batch": ((0.0, 0.564, 0.0651, 0.0), (0.0, 1.08, 0.13, 0.0)),
}
EVALUATION: Constants = (374_000.0, 24.5, 0.0173, 1.24)  # one logged row; examples of both sets
FLOAT64 = 1.9  # float64 over float32; from 1 to 2.3
START_SECONDS = 0.2  # a process, and kernels from the cache
LEAST_SECONDS = 1.0  # shorter runs measure the start, not the training


@dataclasses.dataclass(frozen=True)
class Cost:
    """An estimate: the kind of update that most of the time goes to, and the seconds."""

    kind: str
    seconds: float


def kind_of(config: RunConfig, phase: Phase) -> str:
    """Return the kind of update: what the engine has kernels of its own for.

    >>> from flatlab.models import Deep
    >>> config = RunConfig(Deep(), {"n": 100}, (Phase("sam", 0.1, 1, 1, rho=0.1),))
    >>> kind_of(config, config.schedule[0])
    'deep, one example'
    """
    from ..engine import kernel_of, unsupported  # numba's import is for those who ask

    arch = config.arch.chain
    if arch is None or unsupported(config.loss, arch, (phase,)):
        return "torch"
    many = "one example" if phase.batch_size == 1 else "a batch"
    if arch.stacked:
        return f"deep, {many}"
    if arch.norm == "batch":
        return "batch norm"
    kernel, *_ = kernel_of(config.loss, arch, phase, dimensions(config)[2])
    if kernel == "batch" and phase.batch_size == 1 and arch.activation != "tanh":
        return "a batch of one example"
    if arch.activation in ("softplus", "tanh"):
        return f"{arch.activation}, {many}"
    if arch.norm == "layer" and phase.batch_size == 1:
        return f"layer norm, {many}"
    return f"plain, {many}"


def kernels(config: RunConfig) -> frozenset[tuple[object, ...]]:
    """Return what names the compiled functions that a run needs; none for torch.

    >>> from flatlab.models import Deep
    >>> kernels(RunConfig(Deep(), {"n": 9}, (Phase("sam", 0.1, 1, 1, rho=0.1),)))
    frozenset({('deep', True, 'float32')})
    """
    from ..engine import kernel_of, unsupported

    arch, n = config.arch.chain, dimensions(config)[2]
    if arch is None or unsupported(config.loss, arch, config.schedule):
        return frozenset()
    made = (kernel_of(config.loss, arch, phase, n) for phase in config.schedule)
    return frozenset((*kernel, config.dtype) for kernel in made)


def dimensions(config: RunConfig) -> tuple[int, int, int]:
    """Return the weights, the neurons, and the number n of training examples.

    Weights count as 0 if their number is known only after the data is read.

    >>> from flatlab.models import CNN
    >>> sgd = (Phase("sgd", lr=0.1, epochs=1),)
    >>> dimensions(RunConfig(CNN(), {"name": "cifar10", "n": 1000, "size": 16}, sgd))
    (61162, 0, 1000)
    """
    shape, outputs = config.shape or ((30,), 1)
    weights, chain = config.arch.size(shape, outputs) or 0, config.arch.chain
    neurons = (chain.depth - 1) * chain.width if chain else 0
    return weights, neurons, int(config.data.get("n", 100))


def counts_of(weights: int, neurons: int, examples: int) -> Constants:
    """Return what the constants multiply.

    >>> counts_of(10, 3, 2)
    (1.0, 10.0, 20.0, 6.0)
    """
    return 1.0, float(weights), float(weights * examples), float(neurons * examples)


def update_counts(config: RunConfig, phase: Phase) -> Constants:
    """Return the features of one update; Sim-BN's passes over all examples for its statistics."""
    weights, neurons, n = dimensions(config)
    examples = min(phase.batch_size or n, n)
    chain = config.arch.chain
    batch_norm = chain is not None and chain.norm == "batch"
    return counts_of(weights, neurons, examples + (n if batch_norm else 0))


def estimate(config: RunConfig) -> Cost:
    """Return what training is expected to take, without the start of a process."""
    weights, neurons, n = dimensions(config)
    spent: dict[str, float] = {}
    for phase in config.schedule:
        kind = kind_of(config, phase)
        share = phase.optimizer.passes - 1  # of a second gradient; LookSAM's is between 0 and 1
        one_and_two = zip(*CONSTANTS[kind], strict=True)
        constants = [(1 - share) * one + share * two for one, two in one_and_two]
        updates = phase.epochs * -(-n // (phase.batch_size or n))
        seconds = updates * _sum(constants, update_counts(config, phase))
        slower = FLOAT64 if config.dtype == "float64" else 1.0
        spent[kind] = spent.get(kind, 0.0) + seconds * slower
    examples = n + int(config.data.get("n_test", 0))
    rows = len(config.log.epochs(config.schedule)) if config.schedule else 1
    logging = rows * _sum(EVALUATION, counts_of(weights, neurons, examples))
    kind = max(spent, key=lambda kind: spent[kind], default="none")
    return Cost(kind, sum(spent.values()) + logging)


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Estimates, corrected by what finished runs took: `factors` are measured over estimated."""

    factors: Mapping[str, float] = dataclasses.field(default_factory=dict)  # by kind
    overall: float = 1.0  # for kinds that no finished run has

    @classmethod
    def calibrated(cls, finished: Iterable[tuple[RunConfig, float]]) -> CostModel:
        """Return the model that finished runs (configuration, training seconds) agree with.

        >>> CostModel.calibrated([]).overall
        1.0
        """
        measured, expected = defaultdict[str, float](float), defaultdict[str, float](float)
        for config, seconds in finished:
            cost = estimate(config)
            if cost.seconds >= LEAST_SECONDS and seconds > 0:
                measured[cost.kind] += seconds
                expected[cost.kind] += cost.seconds
        if not measured:
            return cls()
        factors = {kind: measured[kind] / expected[kind] for kind in measured}
        return cls(factors, sum(measured.values()) / sum(expected.values()))

    def seconds(self, config: RunConfig) -> float:
        """Return the seconds a run is expected to take in a process of its own."""
        cost = estimate(config)
        return START_SECONDS + self.factors.get(cost.kind, self.overall) * cost.seconds


def _sum(constants: Iterable[float], counts: Iterable[float]) -> float:
    return 1e-9 * sum(a * b for a, b in zip(constants, counts, strict=True))
