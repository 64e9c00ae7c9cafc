"""The one measuring call: a model, a loss and data in, readings out."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .errors import UserError
from .measures import CATALOGUE, DEFAULT, Budget, Card, Effort, Measure, Reading, Readings, named
from .measures.effort import Tick
from .measures.eigenvalues import LambdaMax, Memory
from .measures.rescaling import rescale as rescale
from .problem import Problem

Chosen = str | Measure | Sequence[str | Measure] | Mapping[str, Measure] | None


def measure(
    model: nn.Module,
    loss: Any,
    data: Any,
    measures: Chosen = None,
    mode: str = "eval",
    params: str | Sequence[str] | None = None,
    seed: int = 0,
    budget: Budget | float | None = None,
    *,
    dtype: str | None = None,
    batch_size: int | None = None,
    reference: Mapping[str, Tensor] | None = None,
    progress: bool | None = None,
    skip: bool = False,
) -> Readings:
    """Measure a model: every number with its error and its definition.

    The model is left exactly as it was: parameters, buffers, gradients, flags, and torch's random
    state.

    Args:
        model: Any module from a batch of inputs to a batch of outputs.
        loss: A callable (outputs, y) → mean over the batch, a flatlab `Loss`, or a name.
        data: A pair (x, y), a flatlab Dataset (its training part) or a DataLoader.
        measures: Names ("trace", "lambda_max:tolerance=1e-4"), measures, a mapping from names to
            measures, or "all"; None for a few that everyone wants.
        mode: "eval", "train" (BatchNorm with batch statistics, the data cut as given) or
            "recomputed" (BatchNorm statistics taken from this data).
        params: Name patterns or layers; None for all trainable parameters.
        seed: Decides probes and start vectors.
        budget: Seconds for each measure, or a `Budget`; what it ends returns its best estimate.
        dtype: "float64" raises the precision for measuring only.
        batch_size: How a pair or a Dataset is cut; None for one batch.
        reference: Parameters by name to measure distances from, e.g. the initial state_dict.
        progress: Show a bar with the time left; None shows it on a terminal.
        skip: Leave out measures that do not apply to this model, with the reason in `.skipped`,
            instead of raising.
    """
    chosen = choose(measures)
    limit = Budget(seconds=budget) if isinstance(budget, int | float) else budget
    with torch.random.fork_rng(devices=[]):
        problem = Problem(
            model, loss, data, mode=mode, params=params, dtype=dtype, batch_size=batch_size,
            reference=reference,
        )  # fmt: skip
        which = "all trainable parameters" if params is None else f"parameters {params!r}"
        found: dict[str, Reading] = {}
        skipped: dict[str, str] = {}
        with _bar(progress, len(chosen)) as tick:
            for name, each in chosen.items():
                try:
                    found[name] = read(problem, name, each, which, seed, limit, tick(name))
                except UserError as error:
                    if not skip:
                        raise
                    skipped[name] = str(error)
    return Readings(found, skipped)


def read(
    problem: Problem,
    name: str,
    measure: Measure,
    which: str = "all trainable parameters",
    seed: int = 0,
    budget: Budget | None = None,
    tick: Tick | None = None,
    memory: Memory | None = None,
) -> Reading:
    """Read one measure off a problem; λ_max starts from what `memory` has, and adds to it."""
    effort = Effort(seed, budget, tick)
    warm = {"memory": memory} if isinstance(measure, LambdaMax) else {}
    outcome = measure.read(problem, effort, **warm)
    card = Card(
        problem.loss_name, which, problem.size, problem.n, len(problem.batches), problem.mode,
        str(problem.dtype).removeprefix("torch."), effort.spent, effort.seconds,
        {f.name: getattr(measure, f.name) for f in dataclasses.fields(measure)},  # type: ignore[arg-type]
    )  # fmt: skip
    fields = {f.name: getattr(outcome, f.name) for f in dataclasses.fields(outcome)}
    return Reading(name=name, symbol=measure.about.symbol, card=card, **fields)


def choose(measures: Chosen) -> dict[str, Measure]:
    """Return measures by name from what a caller may write."""
    if measures is None:
        measures = DEFAULT
    if isinstance(measures, Mapping):
        return dict(measures)
    if measures == "all":
        return dict(CATALOGUE)
    alone = isinstance(measures, str) or not isinstance(measures, Sequence)
    listed: Any = [measures] if alone else measures
    found: dict[str, Measure] = {}
    for item in listed:
        name, made = (item, named(item)) if isinstance(item, str) else (_name_of(item), item)
        if not hasattr(made, "read"):
            raise UserError(f"a measure must be a name or a measure, got {item!r}")
        found[name] = made
    if not found:
        raise UserError("measures is empty: name at least one, or pass None for the usual ones")
    return found


def _name_of(measure: Measure) -> str:
    for name, known in CATALOGUE.items():
        if known == measure:
            return name
    return type(measure).__name__


@contextlib.contextmanager
def _bar(progress: bool | None, total: int) -> Iterator[Any]:
    """Yield name → tick; shows one line for the running measure, with its time left."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=24),
        TextColumn("{task.completed:.0f} products"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        done = 0

        def of(name: str) -> Tick:
            nonlocal done
            done += 1
            task = bar.add_task(f"{done}/{total} {name}", total=None)
            for other in bar.task_ids:
                bar.update(other, visible=other == task)

            def tick(spent: int, expected: int | None) -> None:
                bar.update(task, completed=spent, total=expected and max(expected, spent + 1))

            return tick

        yield of


def _same_function(model: nn.Module, other: nn.Module, loss: Any, data: Any) -> None:
    """Raise if the rescaled model computes something else: its layers are not used as a chain."""
    with torch.random.fork_rng(devices=[]):
        ours, theirs = (Problem(m, loss, data, dtype="float64") for m in (model, other))
        for f, g in zip(ours.outputs, theirs.outputs, strict=True):
            if not torch.allclose(f, g, rtol=1e-6, atol=1e-9 * float(f.abs().max())):
                raise UserError(
                    "rescaling changes the outputs of this model: its layers are not applied in "
                    "the order in which its Sequential lists them"
                )


@dataclass(frozen=True)
class Invariance:
    """What the rescaling did to one measure.

    Attributes:
        name: The measure.
        declared: What its description says: "invariant" or "moves".
        before: Its value on the model as it is.
        after: Its value on the rescaled model, which computes the same function.
        moved: Whether they differ by more than their errors allow.
    """

    name: str
    declared: str
    before: float
    after: float
    moved: bool


def invariance(
    model: nn.Module,
    loss: Any,
    data: Any,
    measures: Chosen = "all",
    alpha: float = 2.0,
    **options: Any,
) -> list[Invariance]:
    """Try the function-preserving ReLU rescaling beside measures and say which ones move.

    Measures that do not apply to this model are left out. Arrays are compared by their norm.
    """
    other = rescale(model, alpha)
    _same_function(model, other, loss, data)
    found = []
    for name, each in choose(measures).items():
        try:
            first = measure(model, loss, data, {name: each}, **options)[name]
            second = measure(other, loss, data, {name: each}, **options)[name]
        except UserError:
            continue
        before, after = (float(np.linalg.norm(r.value)) for r in (first, second))
        error = float(np.hypot(np.linalg.norm(first.stderr), np.linalg.norm(second.stderr)))
        moved = abs(after - before) > 3 * error + 1e-5 * max(abs(before), abs(after))
        found.append(Invariance(name, each.about.relu, before, after, moved))
    return found
