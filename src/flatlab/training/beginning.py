"""Where a run begins: its initial state, and what is checked before the first step."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..data import Dataset
from ..errors import UserError, in_words
from ..models import Params, network
from ..models.contract import State, shapes_of
from .config import RunConfig
from .optimizers import LabelNoise
from .rows import chain_row
from .run import start_of
from .trainers import labelled


def require_kind(name: str, given: Any, kind: Any, wanted: str) -> None:
    """Refuse an argument of another type; the message says what is `wanted`."""
    if not isinstance(given, kind):
        shown = repr(given) if isinstance(given, str | int | float) else in_words(given)
        raise UserError(f"{name} must be {wanted}, got {shown}")


def check_data(config: RunConfig, data: Dataset) -> None:
    """Refuse labels that the loss does not take, outputs it cannot use, and huge inputs.

    Neither may a tracked measure need more examples than there are.
    """
    for tracked in config.measures:
        for name in ("examples", "batch_size"):
            if (asked := getattr(tracked, name)) is not None and asked > data.n:
                raise UserError(
                    f"{name} of {tracked.measure} must be <= n = {data.n}, got {asked}: leave it "
                    "out to take all"
                )
    if refused := config.loss.refusal(data.y_train, data.classes):
        raise UserError(refused)
    signs = data.y_train.ndim == 1 and bool((np.abs(data.y_train) == 1).all())
    for phase in config.schedule:
        if noisy := phase.optimizer.label_noise:
            _check_noise(noisy, data)
        if phase.variation.second_batch and (phase.batch_size or data.n) >= data.n:
            raise UserError(
                f"second_batch={phase.variation.second_batch!r} is another part of the {data.n} "
                f"examples, and batch_size={phase.batch_size} takes all of them: give a smaller "
                "one or drop it"
            )
        target = phase.until.accuracy if phase.until else None
        if target is not None and data.classes is None and not signs:
            raise UserError(
                "until accuracy needs labels that are classes or ±1, and these are other numbers: "
                "give a training loss instead"
            )
    if config.arch.chain:
        data.require_points(f"a network of kind {config.arch.kind}")
    largest = max(float(np.abs(part).max()) for part in (data.x_train, data.x_test) if part.size)
    if config.dtype == "float32" and largest > 1e15:
        raise UserError(
            f"inputs reach {largest:g}, whose squares float32 does not hold: rescale them, or use "
            "dtype 'float64'"
        )


def _check_noise(optimizer: LabelNoise, data: Dataset) -> None:
    """Refuse label noise of another kind than the labels."""
    flips = optimizer.noise_kind == "flip"
    if flips != (data.classes is not None) or (flips and optimizer.noise > 1):
        raise UserError(
            f"label noise of the kind {optimizer.noise_kind!r} with noise={optimizer.noise:g} does "
            "not fit these labels: 'flip' is for integer classes, with a probability <= 1; 'sign' "
            "and 'gaussian' are for numbers"
        )


def initial_state(config: RunConfig, data: Dataset, given: Params | None) -> State:
    """Draw, read or take over the initial state; refuse one whose loss is not finite."""
    params, buffers = given, None
    if config.start is not None and "run" in config.start:
        before = start_of(config.start)
        params, buffers = dict(before.params), dict(before.buffers)
    elif params is None and config.start is not None:
        raise UserError(
            f"a run that starts from {dict(config.start)} is made by `flatlab construct` or "
            "`flatlab flattest`; to train on from it, start from its directory"
        )
    chain = config.arch.chain
    if chain is None:
        return _torch_start(config, data, params, buffers)
    drawn = chain.initial(data.d, config.seed) if params is None else params
    expected = chain.shapes(data.d)
    if shapes_of(drawn) != expected:
        raise UserError(
            f"the start does not fit the architecture on {data.d} inputs: expected {expected}, got "
            f"{shapes_of(drawn)}"
        )
    with np.errstate(over="ignore"):
        cast: Params = {name: value.astype(config.dtype) for name, value in drawn.items()}
    row = chain_row(config, chain, cast, data)
    if not np.isfinite(list(row.values())).all():
        raise UserError(f"the loss is not finite at the initial weights: {row}")
    return labelled("params", cast)


def _torch_start(
    config: RunConfig, data: Dataset, params: Params | None, buffers: Params | None
) -> State:
    """Return the initial state of a torch network; its outputs must fit the loss."""
    from .torch_trainer import TorchTrainer

    trainer = TorchTrainer(config.arch, config.loss, data, config.seed, config.dtype)
    if params is not None:
        network(config.arch, data, config.seed, params, buffers)  # refuses what does not fit
        given = labelled("params", params) | labelled("buffers", buffers or {})
        trainer.load(given)
    trainer.require_outputs()
    for phase in config.schedule:
        trainer.require_memory(phase)
        trainer.require_step(phase)
    return trainer.state()


def seconds_between_checkpoints(usual: float) -> float:
    """Return the seconds between checkpoints: FLATLAB_CHECKPOINT_SECONDS, or the usual ones."""
    text = os.environ.get("FLATLAB_CHECKPOINT_SECONDS", str(usual))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UserError(f"FLATLAB_CHECKPOINT_SECONDS must be a number >= 0, got {text!r}")
    return seconds
