"""The torch trainer: any network, through autograd. For the engine's networks it is the meaning.

It visits examples in the engine's order and draws the same noise, so that the two can be compared
step by step. Dropout masks and label noise are keyed by (seed, step): nothing has generator state
to save, and the global generator is left as it was.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data import Dataset
from ..engine.compiled import USES
from ..engine.philox import OTHERS, key_words, normals, signs, visits, with_order
from ..errors import UserError, described, listed
from ..losses import Loss
from ..models import Architecture, Params
from ..models.contract import State, part
from ..optim import MSAM, LabelNoiseSGD, WrappedOptimizer
from ..outside.functions import blamed
from ..outside.memory import require_memory, saved_per_example
from ..randomness import key, torch_seed, torch_seeded
from .schedule import Phase
from .trainers import labelled

ROWS = 1000  # examples evaluated at a time
STRIDE = 2**32  # more steps than an epoch has: (epoch, step) as one number


class TorchTrainer:
    """Holds a torch module and advances it by steps; a unit is one step."""

    def __init__(
        self,
        arch: Architecture,
        loss: Loss,
        data: Dataset,
        seed: int,
        dtype: str,
        device: str = "cpu",
    ):
        self.loss, self.data, self.seed, self.dtype = loss, data, seed, np.dtype(dtype)
        self.device = require_device(device)
        net: Any = arch.module(data, seed)
        self.net = net.to(self.device, getattr(torch, dtype))
        self.images = len(data.shape) == 3
        if self.images:  # convolutions of small networks are faster on pixels that lie together
            self.net.to(memory_format=torch.channels_last)
        self.x, self.y = self._tensors(data.x_train, data.y_train)
        # A network of the user's own may draw anywhere.
        drawing = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in self.net.modules())
        self.random = drawing or arch.draws
        self.keys = np.stack([key_words(key(seed, use)) for use in USES])
        self.optimizer: torch.optim.Optimizer | None = None
        self.pending: State = {}  # the optimizer's state, until the phase is known

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return inputs and labels on the device; images with their channels last, as stored."""
        inputs = torch.tensor(x if x.dtype == np.uint8 else x.astype(self.dtype, copy=False))
        if self.images:
            inputs = inputs.permute(0, 2, 3, 1).contiguous()
        integer = self.data.classes is not None
        labels = torch.from_numpy(y.astype(np.int64 if integer else self.dtype))
        return inputs.to(self.device), labels.to(self.device)

    @functools.cached_property
    def test(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels of the test set."""
        return self._tensors(self.data.x_test, self.data.y_test)

    def _batch(self, inputs: Tensor, rows: Tensor | slice) -> Tensor:
        x = inputs[rows]
        x = x.permute(0, 3, 1, 2) if self.images else x
        return x if x.is_floating_point() else x.to(getattr(torch, self.dtype.name))

    def load(self, state: State) -> None:
        """Set parameters and buffers; the optimizer's state waits for its phase."""
        given = {**part(state, "params"), **part(state, "buffers")}
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in given.items()}
        own = {name: value.shape for name, value in self.net.state_dict().items()}
        there = {name: value.shape for name, value in tensors.items()}
        if other := sorted(n for n in own | there if own.get(n) != there.get(n)):
            raise UserError(
                f"the network and its stored state differ in {listed(other, most=3)}: make every "
                "parameter and buffer when the network is built, not in forward; if its code has "
                "changed, start again with --fresh"
            )
        self.net.load_state_dict(tensors)
        self.optimizer = None
        self.pending = {k: v for k, v in state.items() if k.startswith("optimizer/")}

    def state(self) -> State:
        """Return a copy of parameters, buffers and the optimizer's state."""
        own = {name for name, _ in self.net.named_parameters()}
        found: State = {}
        for name, value in self.net.state_dict().items():
            where = "params" if name in own else "buffers"
            found[f"{where}/{name}"] = _array(value)
        if self.optimizer is None:
            return found | self.pending
        return found | labelled("optimizer", self._optimizer_state())

    def module(self) -> nn.Module:
        """Return the network itself."""
        net: nn.Module = self.net
        return net

    def params(self) -> Params:
        """Return a copy of the parameters by name."""
        return part(self.state(), "params")

    def units_per_epoch(self, phase: Phase) -> int:
        """Return the number of steps in one epoch of a phase."""
        return -(-len(self.y) // (phase.batch_size or len(self.y)))

    def advance(self, phase: Phase, first: int, last: int, epoch0: int) -> int:
        """Run steps first..last−1 of a phase; return the step that diverged, or −1.

        The steps after a diverged one are taken too; the caller goes back to the state before.
        """
        if first == 0:
            self.optimizer, self.pending = None, {}
        if self.optimizer is None:
            self.optimizer = self._made(phase)
        self.net.train()
        with torch.random.fork_rng(devices=[]):
            return self._steps(phase, first, last, epoch0)

    def _steps(self, phase: Phase, first: int, last: int, epoch0: int) -> int:
        n = len(self.y)
        size, steps = phase.batch_size or n, self.units_per_epoch(phase)
        order, others = np.empty(n, np.int64), np.empty(n, np.int64)
        noise = np.empty(n, np.int64)
        spread, second = phase.variation.input_noise, phase.variation.second_batch is not None
        shifts = np.empty((n, *self.data.shape)) if spread is not None else None
        keys, drawn, dice = with_order(self.keys, phase.order), -1, torch.default_generator
        limit = phase.first_layer.max_norm
        losses: list[tuple[int, Tensor]] = []  # looked at in the end: asking each time costs time
        for step in range(first, last):
            epoch = step // steps
            if epoch != drawn:
                visits(keys, epoch0 + epoch, order)
                if second:
                    visits(keys[OTHERS:], epoch0 + epoch, others)
                if phase.noise:
                    signs(keys[1], epoch0 + epoch, noise)
                if shifts is not None:
                    normals(keys[2], epoch0 + epoch, shifts.reshape(n, -1))
                drawn = epoch
            within = step - epoch * steps
            where = slice(within * size, (within + 1) * size)
            moment = (epoch0 + epoch) * STRIDE + within
            if self.random:
                dice.manual_seed(torch_seed(self.seed, "dropout", moment))
            rows = torch.from_numpy(order[where])
            x = self._batch(self.x, rows)
            y = self._noisy(phase, self.y[rows], noise[where], moment)
            if shifts is not None:
                shift = torch.from_numpy(shifts[where].astype(self.dtype)).to(self.device)
                x = x + (spread or 0.0) * shift
            batches = [(x, y)]
            if second:
                rows = torch.from_numpy(others[where])
                batches.append((self._batch(self.x, rows), self.y[rows]))
            with blamed(f"the network failed in step {within + 1} of epoch {epoch0 + epoch + 1}"):
                losses += [(step, value) for value in self._step(phase, batches)]
            if limit is not None:
                self._project(limit, phase.first_layer.norm_rule)
        if not losses:
            return -1
        bad = torch.isfinite(torch.stack([value for _, value in losses])).logical_not()
        return losses[int(bad.nonzero()[0])][0] if bool(bad.any()) else -1

    def _noisy(self, phase: Phase, y: Tensor, sign: np.ndarray, moment: int) -> Tensor:
        """Return a batch's labels with the phase's label noise."""
        optimizer = phase.optimizer.label_noise
        if optimizer is None:
            return y
        if optimizer.noise_kind == "sign" and y.is_floating_point():
            signed = torch.from_numpy(sign.astype(self.dtype)).to(self.device)
            return y + optimizer.noise * (signed if y.ndim == 1 else signed[:, None])
        dice = torch.Generator().manual_seed(torch_seed(self.seed, "label_noise", moment))
        unused = [nn.Parameter(torch.zeros(1))]  # nothing steps, only labels are drawn
        options: Any = {"kind": optimizer.noise_kind, "classes": self.data.classes}
        return LabelNoiseSGD(unused, optimizer.noise, dice, lr=1.0, **options).perturb(y)

    def _made(self, phase: Phase) -> torch.optim.Optimizer:
        """Return the phase's optimizer, with the state that waits for it."""
        if hasattr(self.net, "constant_statistics"):
            self.net.constant_statistics = phase.variation.statistics == "constant"
        groups: Any = [p for p in self.net.parameters() if p.requires_grad]
        if phase.first_layer.bias_apart:
            lr, weight_decay = phase.of_bias
            rest = [p for name, p in self.net.named_parameters() if name != "b1"]
            bias = [self.net.get_parameter("b1")]
            groups = [{"params": rest}, {"params": bias, "lr": lr, "weight_decay": weight_decay}]
        made = phase.optimizer.torch(groups, phase.lr, self.net, self.loss)
        fill(made, self.net, part(self.pending, "optimizer"), self.device)
        self.pending = {}
        return made

    def _optimizer_state(self) -> State:
        """Return the optimizer's tensors and counters by name."""
        optimizer, names = self.optimizer, {p: name for name, p in self.net.named_parameters()}
        parts: dict[str, Any] = {"own": optimizer}
        found: State = {}
        if isinstance(optimizer, WrappedOptimizer):
            parts["base"] = optimizer.base
            found |= {f"counters/{k}": np.asarray(v) for k, v in optimizer._counters.items()}
        for whose, holder in parts.items():
            for p, tensors in holder.state.items():
                for key_of, value in tensors.items():
                    if isinstance(value, Tensor):
                        found[f"{whose}/{names[p]}/{key_of}"] = _array(value)
        return found

    def _step(self, phase: Phase, batches: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Take one step; return the losses on the way.

        If a step takes more gradients than there are `batches`, the last batch is used again. A
        parameter without a gradient takes no part in an ascent or a step.
        """
        optimizer: Any = self.optimizer
        if isinstance(optimizer, MSAM):
            return [optimizer.step(*batches[0]).detach()]
        losses: list[Tensor] = []
        gamma = phase.variation.gamma

        def closure() -> Tensor:
            optimizer.zero_grad()
            x, y = batches[min(len(losses), len(batches) - 1)]
            value = self.loss.torch(self.net(x), y)
            value.backward()  # type: ignore[no-untyped-call]
            losses.append(value.detach())
            if gamma == "fixed" or (gamma == "unperturbed" and len(losses) == 1):
                self.net.get_parameter("gamma").grad = None
            return value

        optimizer.step(closure)
        return losses

    @torch.no_grad()
    def _project(self, limit: float, rule: str | None) -> None:
        first = [p for name, p in self.net.named_parameters() if name in ("W1", "b1")]
        for group in [[p] for p in first] if rule == "each" else [first]:
            norm = float(torch.linalg.vector_norm(torch.stack([p.norm() for p in group])))
            if norm > limit or (rule == "held" and norm > 0):
                for p in group:
                    p.mul_(limit / norm)

    @torch.no_grad()
    def require_outputs(self) -> None:
        """Refuse a network whose outputs, or whose inputs, do not fit the data and the loss."""
        self.net.eval()
        x, y = self._batch(self.x, slice(0, 2)), self.y[:2]
        shape, data = tuple(x.shape[1:]), self.data
        try:
            f = self.net(x)
        except Exception as error:
            raise UserError(
                f"the network does not take inputs of shape {shape}: {described(error)}"
            ) from None
        if isinstance(f, Tensor) and not bool(torch.isfinite(f).all()):
            raise UserError("the outputs are not finite at the initial weights: start from others")
        wanted = tuple(y.shape) if data.classes is None else (len(y), data.classes)
        if not isinstance(f, Tensor) or tuple(f.shape) != wanted:
            given = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
            remedy = f"give the network {data.outputs} for each example"
            if given == (*wanted, 1):
                remedy = "end the network with nn.Flatten(0)"
            raise UserError(
                f"the network's outputs on {len(y)} examples have shape {given}, and the labels "
                f"need {wanted}: {remedy}"
            )

    def require_memory(self, phase: Phase) -> None:
        """Refuse a batch whose activations, kept for the gradient, do not fit into memory.

        A network that fails is refused by `require_step`.
        """
        size = phase.batch_size or len(self.y)
        if size <= 4 or self.device.type != "cpu":
            return
        before = self.state()

        def step(count: int) -> None:
            rows = slice(0, count)
            self.loss.torch(self.net(self._batch(self.x, rows)), self.y[rows])

        self.net.train()
        with torch.random.fork_rng(devices=[]):
            each = saved_per_example(step)
        self.load(before)
        if each is not None:
            state = 2 * sum(value.nbytes for value in before.values())  # gradients, the optimizer's
            require_memory(
                int(each * size) + state,
                f"a step on {size} examples ({each / 2**20:.3g} MiB of activations each)",
                "give a smaller batch_size or a smaller network",
            )

    def require_step(self, phase: Phase) -> None:
        """Refuse a network that cannot train on the smallest batch of a phase."""
        if not any(p.requires_grad for p in self.net.parameters()):
            raise UserError("the network has no parameters to train")
        size = phase.batch_size or len(self.y)
        rows = slice(0, len(self.y) % size or size)
        before, y = self.state(), self.y[rows]
        self.net.train()
        with torch.random.fork_rng(devices=[]):
            try:
                self.loss.torch(self.net(self._batch(self.x, rows)), y).backward()  # type: ignore[no-untyped-call]
            except Exception as error:
                raise UserError(
                    f"a training step fails on a batch of {len(y)} examples, the smallest of an "
                    f"epoch: {described(error)}"
                ) from None
        self.net.zero_grad()
        self.load(before)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return loss and zero-one error on both sets, the network in evaluation mode."""
        self.net.eval()
        # A network may draw in evaluation mode too.
        with torch_seeded(self.seed, "evaluate"), blamed("the network failed in evaluation"):
            row = self._evaluated("train", self.x, self.y)
            if len(self.data.x_test):
                row |= self._evaluated("test", *self.test)
        return row

    def _evaluated(self, name: str, inputs: Tensor, labels: Tensor) -> dict[str, float]:
        total, wrong = 0.0, 0.0
        for start in range(0, len(labels), ROWS):
            rows = slice(start, start + ROWS)
            y = labels[rows]
            f = self.net(self._batch(inputs, rows))
            total += float(self.loss.torch(f, y)) * len(y)
            if self.data.classes is not None:
                wrong += float((f.argmax(1) != y).sum())
            elif y.ndim == 1:
                wrong += float((y * f <= 0).sum())
        found = {f"{name}_loss": total / len(labels)}
        signs_alone = labels.is_floating_point() and bool((labels.abs() == 1).all())
        if self.data.classes is not None or (labels.ndim == 1 and signs_alone):
            found[f"{name}_error"] = wrong / len(labels)
        return found


def require_device(name: str) -> torch.device:
    """Return a device that is there."""
    if name not in ("cpu", "cuda"):
        raise UserError(f"device must be 'cpu' or 'cuda', got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' is not there: torch sees no GPU on this machine; use 'cpu'")
    return torch.device(name)


def _array(value: Tensor) -> np.ndarray:
    """Return a copy of a tensor in the usual order of its axes."""
    return np.array(value.detach().cpu().contiguous().numpy())


def fill(
    made: torch.optim.Optimizer, net: nn.Module, state: State, device: torch.device | str = "cpu"
) -> None:
    """Give an optimizer of a network's parameters a stored state."""
    named = dict(net.named_parameters())
    for path, value in state.items():
        whose, _, rest_of = path.partition("/")
        if whose == "counters":
            made._counters[rest_of] = int(value)  # type: ignore[attr-defined]
            continue
        name, _, key_of = rest_of.rpartition("/")
        holder = made.base if whose == "base" else made  # type: ignore[attr-defined]
        holder.state[named[name]][key_of] = torch.from_numpy(np.array(value)).to(device)
