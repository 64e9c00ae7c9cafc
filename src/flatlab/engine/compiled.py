"""The compiled trainer: which combinations it supports, and how it trains one."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..data import Dataset
from ..losses import Loss
from ..models import Architecture, Chain, Params, build
from ..models.chains import NORM_EPSILON
from ..models.contract import State, part
from ..randomness import key
from . import deep, two_layer_active, two_layer_batch, two_layer_single, two_layer_standard
from .layout import Weights, inputs, pack, shares_gamma, unpack
from .loading import load
from .philox import key_words, with_order
from .room import with_room
from .scalar import ACTIVATION_CODES, ASCENTS, GAMMA_RULES, LOSS_CODES, NORM_RULES, NORMS
from .subnormal import flushed

# Inputs, and neurons of two-layer networks with σ(0) = 0, are padded with zeros to a multiple of
# this: BLAS and vector loops are slow at odd sizes. Padded weights have no gradient and stay zero.
_MULTIPLE = 8


# What an optimizer that the kernels know may say; defaults are left out of its table.
OPTIONS = {"name", "base", "rho", "noise", "momentum", "weight_decay"}

# The random quantities of training; each has its own stream.
USES = ("order", "label_noise", "input_noise", "second_order")


class Step(Protocol):
    """The hyper-parameters that a kernel needs from a phase; `training.Phase` documents them."""

    @property
    def optimizer(self) -> Any: ...  # noqa: D102
    @property
    def algorithm(self) -> str: ...  # noqa: D102
    @property
    def lr(self) -> float: ...  # noqa: D102
    @property
    def rho(self) -> float: ...  # noqa: D102
    @property
    def batch_size(self) -> int | None: ...  # noqa: D102
    @property
    def weight_decay(self) -> float: ...  # noqa: D102
    @property
    def noise(self) -> float: ...  # noqa: D102
    @property
    def order(self) -> str | None: ...  # noqa: D102
    @property
    def momentum(self) -> float | None: ...  # noqa: D102
    @property
    def of_bias(self) -> tuple[float, float]: ...  # noqa: D102
    @property
    def first_layer(self) -> Any: ...  # noqa: D102
    @property
    def variation(self) -> Any: ...  # noqa: D102


def unsupported(loss: Loss, arch: Architecture, schedule: tuple[Step, ...]) -> str | None:
    """Say why the engine cannot train this combination, or None if it can.

    It compiles `TwoLayer` and `Deep` with the losses in `LOSS_CODES`, the algorithms in `ASCENTS`
    with their `OPTIONS`, at every batch size and dtype. Only the blocked kernel for single examples
    has input noise and norm rules. Separate steps of the bias are in that kernel and in
    `two_layer_batch`, which also has momentum, second batches and rules for γ and its statistics.
    """
    chain = arch.chain
    if chain is None:
        return f"the engine compiles the architectures two_layer and deep, not {arch.kind}"
    if loss.name not in LOSS_CODES:
        return f"the engine compiles the losses {', '.join(LOSS_CODES)}, not {loss.name}"
    reasons = (_not_compiled(chain, phase) for phase in schedule)
    return next((reason for reason in reasons if reason), None)


def _not_compiled(arch: Chain, phase: Step) -> str | None:
    if phase.algorithm not in ASCENTS:
        return f"the engine compiles the optimizers {', '.join(ASCENTS)}, not {phase.algorithm}"
    own, steps = phase.optimizer.to_dict(), phase.optimizer.stepping.to_dict()
    if steps["name"] != "sgd":
        return f"the engine compiles {phase.algorithm} with the base sgd, not {steps['name']}"
    if others := sorted({*own, *steps} - OPTIONS):
        return f"the engine does not compile the option {others[0]} of {phase.algorithm}"
    norm = "deep" if arch.stacked else arch.norm
    first, change = phase.first_layer, phase.variation
    in_blocks = change.input_noise is not None or first.norm_rule is not None
    if in_blocks and not _blocked(arch, phase):
        return (
            "the engine compiles input_noise and norm_rule for two-layer networks without "
            "BatchNorm at batch_size=1 alone, without momentum, second_batch, or a norm limit on a "
            "bias with steps of its own"
        )
    if (first.bias_apart or _carried(phase)) and norm not in (None, "layer", "batch"):
        return (
            "the engine compiles bias_lr, bias_weight_decay, momentum and second_batch for "
            "two-layer networks without a standard norm alone"
        )
    if first.bias_apart and phase.momentum is not None:
        return "the engine does not compile bias_lr or bias_weight_decay with momentum"
    if (change.statistics is not None or change.gamma is not None) and norm != "batch":
        return "the engine compiles statistics and gamma of a phase for norm='batch' alone"
    return None


def _carried(phase: Step) -> bool:
    """Return whether a step needs more than the weights and one batch."""
    return phase.momentum is not None or phase.variation.second_batch is not None


def _blocked(arch: Chain, phase: Step) -> bool:
    plain = not arch.stacked and arch.norm in (None, "layer")
    first = phase.first_layer
    joint = first.bias_apart and first.max_norm is not None  # norm with the bias
    return plain and phase.batch_size == 1 and not (_carried(phase) or joint)


def _few_active(arch: Chain, phase: Step, n: int) -> bool:
    """Return whether it pays to find the neurons that a batch activates."""
    few = phase.batch_size is not None and 8 * phase.batch_size <= n
    relu = arch.norm == "batch" and arch.activation == "relu"
    return relu and few and not (_carried(phase) or phase.first_layer.bias_apart)


def kernel_of(loss: Loss, arch: Chain, phase: Step, n: int) -> tuple[str | int | bool, ...]:
    """Return the key of the compiled function for a phase; its dtype is the weights' dtype."""
    if arch.stacked:
        return ("deep", phase.batch_size == 1)
    if _blocked(arch, phase):
        hot = two_layer_single.specialised(*_codes(loss, arch, phase))
        return ("blocked", *hot, *_forms(phase))
    if arch.norm in ("standard_layer", "standard_batch"):
        return ("standard",)
    return ("active",) if _few_active(arch, phase, n) else ("batch",)


def _codes(loss: Loss, arch: Chain, phase: Step) -> tuple[int, int, int, int]:
    network = ACTIVATION_CODES[arch.activation], NORMS[arch.norm]
    return *network, LOSS_CODES[loss.name], ASCENTS[phase.algorithm]


def _forms(phase: Step) -> tuple[bool, bool]:
    """Return whether the blocked kernel keeps the bias separate and whether it adds input noise."""
    first, change = phase.first_layer, phase.variation
    return first.bias_apart or first.norm_rule == "each", change.input_noise is not None


class CompiledTrainer:
    """Holds the weights of one run and advances them by units.

    A unit is the smallest piece of work: a block of examples for the two-layer kernel at batch size
    1, one step elsewhere. Units never cross an epoch, and results do not depend on how many units a
    call runs.
    """

    def __init__(self, arch: Chain, loss: Loss, data: Dataset, seed: int, dtype: str):
        data.require_points(f"a network of kind {arch.kind}")
        self.arch, self.loss, self.data = arch, loss, data
        X = inputs(arch, data.x_train, dtype)
        self.inputs = X.shape[1]
        self.X = np.pad(X, ((0, 0), (0, -self.inputs % _MULTIPLE)))
        self.y = np.ascontiguousarray(data.y_train, dtype)
        self.keys = np.stack([key_words(key(seed, use)) for use in USES])
        self.dtype = np.dtype(dtype)
        self.block = two_layer_single.block_size(self.inputs)

    def load(self, state: State) -> None:
        """Set the weights, and the velocity in a phase with momentum."""
        velocity = part(state, "velocity")
        self.weights = self._padded(part(state, "params"))
        self.velocities = self._padded(velocity) if velocity else None

    def _padded(self, params: Params) -> Weights:
        W, M, a, gamma, beta = pack(self.arch, params, self.dtype)
        neurons = 0
        if (
            not self.arch.stacked
            and self.arch.activation != "softplus"
            and self.arch.norm != "standard_layer"  # its mean is over the neurons
        ):
            neurons = -len(a) % _MULTIPLE
        return Weights(
            np.pad(W, ((0, -self.inputs % _MULTIPLE), (0, neurons))),
            M,
            with_room(np.pad(a, (0, neurons))),
            with_room(np.pad(gamma, (0, neurons if len(gamma) else 0))),
            with_room(np.pad(beta, (0, neurons if len(beta) else 0))),
        )

    def state(self) -> State:
        """Return a copy of the weights and, inside a phase with momentum, of the velocity."""
        found = {f"params/{name}": v for name, v in self._named(self.weights).items()}
        if self.velocities:
            found |= {f"velocity/{name}": v for name, v in self._named(self.velocities).items()}
        return found

    def module(self) -> Any:
        """Return the torch network with the current weights."""
        return build(self.arch, self._named(self.weights), self.data.x_train)

    def _named(self, weights: Weights) -> Params:
        W, M, a, gamma, beta = weights
        m = self.arch.width
        return unpack(self.arch, Weights(W[: self.inputs, :m], M, a[:m], gamma[:m], beta[:m]))

    def params(self) -> Params:
        """Return a copy of the parameters by name."""
        return part(self.state(), "params")

    def units_per_epoch(self, phase: Step) -> int:
        """Return the number of units in one epoch of a phase."""
        n = len(self.y)
        size = self.block if _blocked(self.arch, phase) else phase.batch_size or n
        return -(-n // size)

    def advance(self, phase: Step, first: int, last: int, epoch0: int) -> int:
        """Run units first..last−1 of a phase; return the unit that diverged, or −1."""
        if first == 0 or phase.momentum is None:
            self.velocities = None
        if phase.momentum is not None and self.velocities is None:
            self.velocities = Weights(*(np.zeros_like(each) for each in self.weights))
        with flushed():
            return self._advance(phase, first, last, epoch0)

    def _advance(self, phase: Step, first: int, last: int, epoch0: int) -> int:
        W, M, a, gamma, beta = self.weights
        n, batch = len(self.y), phase.batch_size or len(self.y)
        loss, ascent = LOSS_CODES[self.loss.name], ASCENTS[phase.algorithm]
        span, keys = (first, last, epoch0), with_order(self.keys, phase.order)
        hyper = self._hyper(phase)
        if self.arch.stacked:
            one = batch == 1
            sizes = span if one else (*span, min(batch, n))
            deep_args = (W, M, a, self.X, self.y, *sizes, keys, loss, ascent, hyper)
            return self._call(deep.train_single if one else deep.train_batch, *deep_args)
        codes = _codes(self.loss, self.arch, phase)
        if _blocked(self.arch, phase):
            train = two_layer_single.kernel(*codes, *_forms(phase))
            d = self.inputs - self.arch.bias
            data = (self.X, self.y, d, *span, self.block)
            all_codes = np.array([*codes, NORM_RULES[phase.first_layer.norm_rule]])
            return self._call(train, W, a, *data, keys, all_codes, hyper)
        data = (self.X, self.y, *span, batch, keys)
        if len(beta):
            return self._call(two_layer_standard.train, W, a, gamma, beta, *data, *codes, hyper)
        rules = self._rules(phase)
        if _few_active(self.arch, phase, n):
            active = (W, a, gamma, *data, loss, ascent, rules, hyper)
            return self._call(two_layer_active.train, *active)
        moved = self.velocities or self.weights  # not used without momentum
        velocity = (moved.W, moved.a, moved.gamma)
        rest = (velocity, *data, *codes, rules, hyper)
        return self._call(two_layer_batch.train, W, a, gamma, *rest)

    def _call(self, kernel: Any, *args: Any) -> int:
        load(kernel, str(self.dtype), args)
        return int(kernel(*args))

    def _rules(self, phase: Step) -> np.ndarray:
        """Return the rules at the positions defined in `scalar`."""
        change = phase.variation
        constant, other = change.statistics is not None, change.second_batch is not None
        row = self.inputs - 1 if phase.first_layer.bias_apart else -1
        return np.array([shares_gamma(self.arch), GAMMA_RULES[change.gamma], constant, other, row])

    def _hyper(self, phase: Step) -> np.ndarray:
        """Return the hyper-parameters at the positions defined in `scalar`."""
        limit = phase.first_layer.max_norm or 0.0
        values = [phase.lr, phase.rho, phase.weight_decay, phase.noise, limit]
        tiny = np.finfo(self.dtype).tiny
        smoothing = getattr(self.loss, "smoothing", 0.0)  # only the logistic loss has it
        values += [smoothing, self.arch.ln_epsilon, 0.0, 1.0, tiny, *phase.of_bias]
        values += [phase.variation.input_noise or 0.0, NORM_EPSILON, phase.momentum or 0.0]
        return np.array(values, self.dtype)
