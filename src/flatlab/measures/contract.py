"""What a measure is and what it returns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..problem import Problem
from ..problem.problem import KINDS
from .effort import Effort

Vector = NDArray[np.float64]
Value = float | Vector

# Details with more numbers than this stay in Python: they are not written to JSON.
PRINTED = 10_000


@dataclass(frozen=True)
class About:
    """What one should know about a measure before believing it.

    Attributes:
        symbol: How it prints.
        title: What it is, in one line.
        formula: What is computed.
        cost: What it costs.
        caveat: What it is not.
        exact: Whether the number is exact, and what its error is if not.
        relu: What the ReLU rescaling (W₁, W₂) → (α W₁, W₂/α) does to it: "invariant" or "moves".
        batchnorm: What rescaling the weights before a BatchNorm does to it.
        permutation: What renaming hidden neurons does to it.
    """

    symbol: str
    title: str
    formula: str
    cost: str
    caveat: str
    exact: str
    relu: str = field(default="moves", kw_only=True)
    batchnorm: str = field(default="moves", kw_only=True)
    permutation: str = field(default="invariant", kw_only=True)


@dataclass(frozen=True)
class Measured:
    """A measured value before `measure` adds its name and its card: what `Measure.read` returns.

    Attributes:
        value: A number, or one number for each label or grid point.
        stderr: Standard error, or a bound on the error where `dof` is None; 0 when exact.
        exact: Exact up to rounding.
        method: How it was found, in a few words.
        dof: Degrees of freedom of a standard error; None if `stderr` is a bound.
        complete: False if a limit was met before the tolerance was.
        labels: Names of the entries of an array.
        details: Whatever else is worth keeping.
    """

    value: Value
    stderr: Value = 0.0
    exact: bool = False
    method: str = ""
    dof: int | None = None
    complete: bool = True
    labels: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


class Measure(Protocol):
    """A frozen spec with a description and a way to read it off a problem."""

    about: ClassVar[About]

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        ...


def settings_of(measure: Measure) -> dict[str, Any]:
    """Return a measure's own settings by name; a measure need not be a dataclass."""
    given: Any = measure
    if not dataclasses.is_dataclass(given):
        return dict(vars(given)) if hasattr(given, "__dict__") else {}
    return {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}


def formula_of(measure: Measure) -> str:
    """Return the formula with the measure's own matrix instead of the Hessian."""
    formula, kind = measure.about.formula, getattr(measure, "matrix", "hessian")
    if kind == "hessian":
        return formula
    formula = formula.partition("; for ")[0]  # what follows is true of the Hessian only
    for hessian, own in (("∂²L/∂θ_j²", "A_jj"), ("∂²L/∂θ_l²", "A_ll"), ("∇²L", "A")):
        formula = formula.replace(hessian, own)
    whose = "with λ_i the eigenvalues of A and" if "λ_i" in formula else "with"
    return f"{formula}, {whose} A = {KINDS[kind].removeprefix('G = ')}"


@dataclass(frozen=True)
class Card:
    """The definition that goes with a number.

    Attributes:
        loss: Name of the loss; always its mean over examples.
        parameters: Which parameters, in words.
        size: How many numbers they hold.
        examples: How many examples.
        batches: Number of batches (matters in mode "train").
        mode: "eval", "train" or "recomputed".
        dtype: Precision of the products.
        model_dtype: Precision of the model's parameters.
        products: Number of products with a matrix, gradients or passes spent.
        seconds: Wall-clock time.
        settings: The measure's own settings.
    """

    loss: str
    parameters: str
    size: int
    examples: int
    batches: int
    mode: str
    dtype: str
    model_dtype: str
    products: int
    seconds: float
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """A measured value with its error and its definition.

    If it is not complete, `stopped` says which limit was met.
    """

    name: str
    symbol: str
    value: Value
    stderr: Value
    exact: bool
    method: str
    card: Card
    dof: int | None = None
    complete: bool = True
    stopped: str = ""
    labels: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def interval(self, level: float = 0.95) -> tuple[Value, Value]:
        """Return a confidence interval (Student), or value ± bound if the error is a bound."""
        from scipy.stats import t

        wide = 1.0 if self.dof is None else float(t.ppf(0.5 + level / 2, self.dof))
        return self.value - wide * self.stderr, self.value + wide * self.stderr

    def __str__(self) -> str:
        where = f"{self.card.examples:,} examples, {self.card.mode} mode"
        return f"{self.symbol} = {self.text()} ({self.how()}, {where})"

    def how(self) -> str:
        """Return the method, and what ended it if it did not reach its tolerance."""
        if self.complete:
            return self.method
        return f"{self.method}, stopped early" + (f": {self.stopped}" if self.stopped else "")

    def text(self) -> str:
        """Return the value with its error, rounded to the digits that the error allows."""
        if isinstance(self.value, float):
            return _with_error(self.value, float(self.stderr), self.exact)
        if self.labels and len(self.labels) <= 4:
            return ", ".join(
                f"{label}: {value:.4g}"
                for label, value in zip(self.labels, self.value, strict=True)
            )
        low, high = float(np.min(self.value)), float(np.max(self.value))
        return f"{self.value.size:,} values from {low:.4g} to {high:.4g}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; large details are left out."""
        low, high = self.interval()
        return {
            "name": self.name,
            "value": _plain(self.value),
            "stderr": _plain(self.stderr),
            "low": _plain(low),
            "high": _plain(high),
            "exact": self.exact,
            "method": self.method,
            "complete": self.complete,
            "stopped": self.stopped or None,
            "labels": list(self.labels),
            "card": {**vars(self.card), "settings": dict(self.card.settings)},
            "details": {
                name: _plain(value)
                for name, value in self.details.items()
                if not isinstance(value, Tensor) and np.size(value) <= PRINTED
            },
        }


def _with_error(value: float, error: float, exact: bool) -> str:
    """Write a value to the digits that its error allows.

    >>> _with_error(21.3456, 0.0843, False), _with_error(2.0, 0.0, True)
    ('21.35 ± 0.08', '2')
    """
    if exact or error == 0 or math.isnan(error):
        return f"{value:.6g}"
    if math.isinf(error):
        return f"{value:.6g} ± ∞"
    digits = max(0, -math.floor(math.log10(error)))
    if digits > 6 or abs(value) >= 1e6:
        return f"{value:.6g} ± {error:.1g}"
    return f"{value:.{digits}f} ± {error:.1g}" if error < 1 else f"{value:.4g} ± {error:.2g}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return value
