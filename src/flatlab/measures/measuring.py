"""The one measuring call: a model, a loss and data in, readings out."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UserError, whole_number
from ..problem import Problem
from . import Budget as Budget
from . import Card, Effort, Measure, Reading, Readings
from .catalogue import Chosen as Chosen
from .catalogue import choose as choose
from .contract import settings_of
from .effort import Tick
from .eigenvalues import LambdaMax, Memory
from .rescaling import rescale as rescale

# A product with a matrix takes about as long as this many passes; for the first time estimate.
PASSES = 5


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
        data: A pair (x, y), a flatlab Dataset (its training part), a torch Dataset of pairs or a
            DataLoader.
        measures: Names ("trace", "lambda_max:tolerance=1e-4"), measures, a mapping from names to
            either, or "all"; None for a few common ones.
        mode: "eval", "train" (BatchNorm with the statistics of each given batch) or "recomputed"
            (BatchNorm statistics computed from this data).
        params: Name patterns or layers; None for all trainable parameters.
        seed: Decides probes and start vectors.
        budget: Seconds for each measure, or a `Budget`; a measure that runs out returns its best
        estimate.
        dtype: "float64" raises the precision for measuring only; None keeps the model's, except
            that 16-bit models are measured in float32.
        batch_size: Size of the batches that a pair or a Dataset is split into; None is one batch in
            mode "train", and a fast size in the other modes, whose result does not depend on it.
        reference: Parameters by name to measure distances from, e.g. the initial state_dict.
        progress: Show a bar with the time left; None shows it on a terminal.
        skip: Leave out measures that do not apply to this model, with the reason in `.skipped`,
            instead of raising.
    """
    chosen, limit, seed = choose(measures), Budget.of(budget), whole_number("seed", seed)
    with torch.random.fork_rng(devices=[]):
        subject = Subject.of(
            model, loss, data, mode=mode, params=params, dtype=dtype, batch_size=batch_size,
            reference=reference,
        )  # fmt: skip
        with _bar(progress, len(chosen), subject.problem) as tick:
            return read_all(subject, chosen, seed, limit, skip, tick)


@dataclass(frozen=True)
class Subject:
    """The function to measure, and what its cards say about it.

    Attributes:
        problem: The function.
        parameters: Which parameters, in words.
        model_dtype: The precision of the model as it was given.
    """

    problem: Problem
    parameters: str
    model_dtype: str

    @classmethod
    def of(
        cls,
        model: nn.Module,
        loss: Any,
        data: Any,
        *,
        params: str | Sequence[str] | None = None,
        dtype: str | None = None,
        reference: Mapping[str, Tensor] | None = None,
        **options: Any,
    ) -> Subject:
        """Build the problem; a 16-bit model is raised to float32 unless `dtype` says otherwise."""
        kinds = [p.dtype for p in model.parameters()] if isinstance(model, nn.Module) else []
        if dtype is None and {torch.float16, torch.bfloat16} & set(kinds):
            dtype = "float64" if torch.float64 in kinds else "float32"
        tensors = None if reference is None else _tensors(reference)
        problem = Problem(
            model, loss, data, params=params, dtype=dtype, reference=tensors, **options
        )
        if problem.reference is not None and not bool(torch.isfinite(problem.reference).all()):
            raise UserError("reference holds NaN or infinity: there is no distance from it")
        which = "all trainable parameters" if params is None else f"parameters {params!r}"
        own = " and ".join(dict.fromkeys(str(kind).removeprefix("torch.") for kind in kinds))
        return cls(problem, which, own)


def _tensors(reference: Any) -> dict[str, Tensor]:
    if not isinstance(reference, Mapping):
        raise UserError(
            f"reference must be parameters by name, got {type(reference).__name__}: pass a "
            "state_dict, e.g. copy.deepcopy(model.state_dict()) from the start"
        )
    try:
        return {name: torch.as_tensor(value) for name, value in reference.items()}
    except (TypeError, ValueError, RuntimeError):
        raise UserError("reference must have tensors by name, as a state_dict has") from None


def read_all(
    subject: Subject,
    chosen: Mapping[str, Measure],
    seed: int,
    budget: Budget,
    skip: bool,
    tick: Callable[[str], Tick | None] = lambda name: None,
    memories: Mapping[str, Memory] | None = None,
) -> Readings:
    """Read measures off a subject; with `skip`, measures that do not apply are left out."""
    found: dict[str, Reading] = {}
    skipped: dict[str, str] = {}
    for name, measure in chosen.items():
        effort = Effort(seed, budget, tick(name))
        try:
            found[name] = read(subject, name, measure, effort, (memories or {}).get(name))
        except UserError as error:
            if not skip:
                raise
            skipped[name] = str(error)
    return Readings(found, skipped)


def read(
    subject: Subject, name: str, measure: Measure, effort: Effort, memory: Memory | None = None
) -> Reading:
    """Read one measure; λ_max starts from the vectors in `memory` and updates them."""
    problem = subject.problem
    warm = {"memory": memory} if isinstance(measure, LambdaMax) else {}
    found = measure.read(problem, effort, **warm)
    settings = settings_of(measure)
    card = Card(
        problem.loss_name, subject.parameters, problem.size, problem.n, len(problem.batches),
        problem.mode, str(problem.dtype).removeprefix("torch."), subject.model_dtype,
        effort.spent, effort.seconds, settings,
    )  # fmt: skip
    stopped = ""
    if not found.complete:
        own = f"max_products={settings.get('max_products')} was reached"
        stopped = effort.refused or (own if "max_products" in settings else "")
    fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    return Reading(name=name, symbol=measure.about.symbol, card=card, stopped=stopped, **fields)


@contextlib.contextmanager
def _bar(progress: bool | None, total: int, problem: Problem) -> Iterator[Any]:
    """Yield name → tick; shows one line for the running measure, with its time left."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Left(ProgressColumn):
        """Counts down to the end of the measure; rich's own column restarts at every new total."""

        def render(self, task: Task) -> Text:
            return Text(countdown(task.fields.get("end"), time.monotonic()))

    began = time.monotonic()
    problem.value()  # one pass over the data
    guess = PASSES * (time.monotonic() - began)
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=24),
        TextColumn("{task.completed:.0f} products"), Left(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        done = 0

        def of(name: str) -> Tick:
            nonlocal done
            done += 1
            start = time.monotonic()
            task = bar.add_task(f"{done}/{total} {name}", total=None)
            for other in bar.task_ids:
                bar.update(other, visible=other == task)

            def tick(spent: int, expected: int | None, share: float) -> None:
                end = ending(start, time.monotonic(), spent, expected, share * guess)
                bar.update(
                    task, completed=spent, total=expected and max(expected, spent + 1), end=end
                )

            return tick

        yield of


def ending(
    start: float, now: float, spent: int, expected: int | None, guess: float
) -> float | None:
    """Return when a measure will end: by its pace or, before its first product, by a guess.

    >>> ending(0.0, 10.0, 5, 20, 1.0), ending(0.0, 0.5, 0, 20, 1.0), ending(0.0, 9.0, 3, None, 1.0)
    (40.0, 20.5, None)
    """
    if expected is None:
        return None
    each = (now - start) / spent if spent else guess
    return now + each * max(expected - spent, 0)


def countdown(end: float | None, now: float) -> str:
    """Return the time left in words.

    >>> countdown(100.0, 27.5), countdown(100.0, 120.0), countdown(None, 0.0)
    ('about 0:01:12 left', 'soon', '')
    """
    if end is None:
        return ""
    return f"about {timedelta(seconds=int(end - now))} left" if end - now >= 1 else "soon"


def require_rereadable(data: Any) -> None:
    """Raise for a generator, which can be read only once."""
    if hasattr(data, "__next__"):
        raise UserError(
            f"data is a {type(data).__name__}, which can be read only once: pass a DataLoader, a "
            "list of batches or tensors (x, y)"
        )


def _same_function(model: nn.Module, other: nn.Module, loss: Any, data: Any) -> None:
    """Raise if the rescaled model computes another function: its layers are not used as a chain."""
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
    """Apply the function-preserving ReLU rescaling and say which measures move.

    Measures that do not apply to this model are left out. Arrays are compared by their norm. Other
    options are those of `measure`; the data are read more than once.
    """
    require_rereadable(data)
    other, chosen = rescale(model, alpha), choose(measures)
    _same_function(model, other, loss, data)
    options.setdefault("skip", measures == "all")
    ours, theirs = (measure(each, loss, data, chosen, **options) for each in (model, other))
    found = []
    for name in [name for name in ours if name in theirs]:
        each, first, second = chosen[name], ours[name], theirs[name]
        before, after = (float(np.linalg.norm(r.value)) for r in (first, second))
        error = float(np.hypot(np.linalg.norm(first.stderr), np.linalg.norm(second.stderr)))
        moved = abs(after - before) > 3 * error + 1e-5 * max(abs(before), abs(after))
        found.append(Invariance(name, each.about.relu, before, after, moved))
    return found
