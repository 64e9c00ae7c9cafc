"""The one measuring call: a model, a loss and data in, readings out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UserError, truth, whole_number
from ..outside.functions import Report, require_report
from ..problem import Problem
from ..randomness import global_states_kept
from . import Budget as Budget
from . import Card, Effort, Measure, Reading, Readings
from .catalogue import Chosen as Chosen
from .catalogue import choose as choose
from .contract import Needs, settings_of
from .effort import OnProducts
from .probes import OVERFLOW
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
    preconditioner: Any = None,
    progress: bool | None = None,
    skip: bool = False,
    report: Report | None = None,
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
            mode "train", and a fast size in the other modes, whose result does not depend on it. If
            an output depends on other examples of its batch in eval mode, too, as with BatchNorm
            without running statistics, None is one batch, and another size another function.
        reference: Parameters by name to measure distances from, e.g. the initial state_dict.
        preconditioner: For preconditioned_lambda_max: the torch.optim.Adam, AdamW or RMSprop that
            trains this model, or the diagonal of P by parameter name.
        progress: Show the time left: on a terminal, in a notebook, or as lines of a log on stderr.
            None shows it unless `report` is given, or this is a worker process.
        skip: Leave out measures that do not apply to this model, with the reason in `.skipped`,
            instead of raising.
        report: Called after each product with {"measure", "number", "of", "products", "expected",
            "left"}: the products with a matrix so far and in all, and the seconds left.
    """
    chosen, limit = choose(measures), Budget.of(budget)
    require_report(report)
    seed, skip = whole_number("seed", seed, least=0), truth("skip", skip)
    with torch.random.fork_rng(devices=[]), global_states_kept():
        subject = Subject.of(
            model, loss, data, mode=mode, params=params, dtype=dtype, batch_size=batch_size,
            reference=reference, preconditioner=preconditioner,
        )  # fmt: skip
        with global_states_kept():  # importing rich draws random numbers
            from ..outside.progress import MeasureProgress, drawn
        with drawn(MeasureProgress, progress, report) as tell:
            tick = _ticks(tell, len(chosen), subject.problem)
            return read_all(subject, chosen, seed, limit, skip, tick)


@dataclass(frozen=True)
class Subject:
    """The function to measure, and its parameters and the model's own dtype in words."""

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
        **options: Any,
    ) -> Subject:
        """Build the problem; a 16-bit model is raised to float32 unless `dtype` says otherwise."""
        kinds = [p.dtype for p in model.parameters()] if isinstance(model, nn.Module) else []
        if dtype is None and {torch.float16, torch.bfloat16} & set(kinds):
            dtype = "float64" if torch.float64 in kinds else "float32"
        problem = Problem(model, loss, data, params=params, dtype=dtype, **options)
        which = "all trainable parameters" if params is None else f"parameters {params!r}"
        own = " and ".join(dict.fromkeys(str(kind).removeprefix("torch.") for kind in kinds))
        return cls(problem, which, own)


def read_all(
    subject: Subject,
    chosen: Mapping[str, Measure],
    seed: int,
    budget: Budget,
    skip: bool,
    tick: Callable[[str], OnProducts | None] = lambda name: None,
) -> Readings:
    """Read measures off a subject; with `skip`, measures that do not apply are left out.

    Without it, a measure that needs what was not given is refused before the first is read.
    """
    for measure in () if skip else chosen.values():
        if isinstance(measure, Needs):
            measure.require(subject.problem)
    found: dict[str, Reading] = {}
    skipped: dict[str, str] = {}
    for name, measure in chosen.items():
        effort = Effort(seed, budget, tick(name))
        try:
            found[name] = read(subject, name, measure, effort)
        except UserError as error:
            if not skip:
                raise
            skipped[name] = str(error)
    return Readings(found, skipped)


def read(subject: Subject, name: str, measure: Measure, effort: Effort) -> Reading:
    """Read one measure."""
    problem = subject.problem
    found = measure.read(problem, effort)
    if np.isinf(found.value).any():
        raise UserError(OVERFLOW)
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
    symbol = measure.about.symbol
    return Reading(name=name, symbol=symbol, card=card, stopped=stopped, **vars(found))


def _ticks(
    report: Report | None, total: int, problem: Problem
) -> Callable[[str], OnProducts | None]:
    """Return name → what a measure calls after each product; it reports how far the measure is."""
    if report is None:
        return lambda name: None
    tell, numbers = report, itertools.count(1)
    began = time.monotonic()
    problem.value()  # one pass over the data
    guess = PASSES * (time.monotonic() - began)

    def of(name: str) -> OnProducts:
        number, start = next(numbers), time.monotonic()

        def tick(spent: int, expected: int | None, share: float) -> None:
            left = seconds_left(time.monotonic() - start, spent, expected, share * guess)
            info = {"measure": name, "number": number, "of": total}
            tell({**info, "products": spent, "expected": expected, "left": left})

        return tick

    return of


def seconds_left(gone: float, spent: int, expected: int | None, guess: float) -> float | None:
    """Return the time left to a measure: by its pace or, before its first product, by a guess.

    >>> seconds_left(10.0, 5, 20, 1.0), seconds_left(0.5, 0, 20, 1.0), seconds_left(9.0, 3, None, 1)
    (30.0, 20.0, None)
    """
    if expected is None:
        return None
    return (gone / spent if spent else guess) * max(expected - spent, 0)


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
    """What the rescaling did to one measure, and what its description declares.

    It moved if the values before and after differ by more than their errors allow.
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
        errors = [0.0 if r.lower else float(np.linalg.norm(r.stderr)) for r in (first, second)]
        error = float(np.linalg.norm(errors))
        moved = abs(after - before) > 3 * error + 1e-5 * max(abs(before), abs(after))
        found.append(Invariance(name, each.about.relu, before, after, moved))
    return found
