"""What the two trainers share, the compiled engine's and torch's, and which one takes a run."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from ..data import Dataset
from ..engine import CompiledTrainer, unsupported
from ..errors import UserError
from ..models import Params
from ..models.contract import State
from .config import RunConfig
from .schedule import Phase

TrainerChoice = Literal["auto", "engine", "torch"]
TrainerKind = Literal["engine", "torch"]


class Trainer(Protocol):
    """Holds a network and advances it by units, pieces that never cross an epoch.

    Its state is everything that later units depend on: parameters, buffers, the optimizer's state.
    """

    def load(self, state: State) -> None: ...  # noqa: D102
    def state(self) -> State: ...  # noqa: D102
    def params(self) -> Params: ...  # noqa: D102
    def units_per_epoch(self, phase: Phase) -> int: ...  # noqa: D102
    def advance(self, phase: Phase, first: int, last: int, epoch0: int) -> int: ...  # noqa: D102
    def evaluate(self) -> dict[str, float]: ...  # noqa: D102
    def module(self) -> Any: ...  # noqa: D102


def labelled(name: str, arrays: Params) -> State:
    """Return arrays as a part of a state; the inverse of `part`."""
    return {f"{name}/{key}": value for key, value in arrays.items()}


def finite(state: State) -> bool:
    """Return whether all parameters and buffers are finite."""
    return all(
        bool(np.isfinite(value).all())
        for name, value in state.items()
        if name.startswith(("params/", "buffers/"))
    )


def choose_trainer(backend: TrainerChoice, config: RunConfig) -> tuple[TrainerKind, list[str]]:
    """Return which trainer takes a run, and a note if there is a reason to tell.

    "auto" is the engine where it can and torch elsewhere, with a note.
    """
    reason = unsupported(config.loss, config.arch, config.schedule)
    if backend == "engine" and reason:
        raise UserError(f"{reason}: use backend 'auto' or 'torch'")
    if backend == "auto" and reason and config.arch.chain is None:
        return "torch", []  # as every network of its kind
    if backend == "auto" and reason:
        return "torch", [f"trained by torch autograd, not the compiled engine: {reason}"]
    return ("torch" if backend == "torch" else "engine"), []


def trainer_of(
    kind: TrainerKind, config: RunConfig, state: State, data: Dataset, device: str = "cpu"
) -> Trainer:
    """Return the trainer, in this state."""
    made: Any = CompiledTrainer
    extra: dict[str, Any] = {}
    if kind == "torch":
        from .torch_trainer import TorchTrainer as made

        extra = {"device": device}
    trainer: Trainer = made(config.arch, config.loss, data, config.seed, config.dtype, **extra)
    trainer.load(state)
    return trainer
