"""The two trainers, the compiled engine and torch: what they share, and which one takes a run."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from ..data import Dataset
from ..engine import CompiledTrainer, unsupported
from ..errors import UserError
from ..models import Params
from .config import RunConfig
from .schedule import Phase

Backend = Literal["auto", "engine", "torch"]
Kind = Literal["engine", "torch"]


class Trainer(Protocol):
    """What `engine.CompiledTrainer` and `torch_trainer.TorchTrainer` share.

    Its state is the parameters and, inside a phase with momentum, the velocity.
    """

    def load(self, params: Params, velocity: Params | None = None) -> None: ...  # noqa: D102
    def params(self) -> Params: ...  # noqa: D102
    def velocity(self) -> Params: ...  # noqa: D102
    def units_per_epoch(self, phase: Phase) -> int: ...  # noqa: D102
    def advance(self, phase: Phase, first: int, last: int, epoch0: int) -> int: ...  # noqa: D102


def choose(backend: Backend, config: RunConfig) -> tuple[Kind, list[str]]:
    """Return which trainer takes a run, and what is to be noted of that.

    "auto" is the engine where it can and torch elsewhere, with a note.
    """
    reason = unsupported(config.loss, config.arch, config.schedule)
    if backend == "engine" and reason:
        raise UserError(f"{reason}: use backend 'auto' or 'torch'")
    if backend == "auto" and reason:
        return "torch", [f"trained by torch autograd, not the compiled engine: {reason}"]
    return ("torch" if backend == "torch" else "engine"), []


def trainer_of(kind: Kind, config: RunConfig, params: Params, data: Dataset) -> Trainer:
    """Return the trainer, with these parameters."""
    made: Any = CompiledTrainer
    if kind == "torch":
        from .torch_trainer import TorchTrainer as made
    trainer: Trainer = made(config.arch, params, config.loss, data, config.seed, config.dtype)
    return trainer
