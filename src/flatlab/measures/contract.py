"""What a measure is and what it returns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from ..problem import Problem
from ..problem.examples import Vector as Vector
from ..problem.problem import KINDS
from .effort import Effort

Value = float | Vector

# Details with more numbers than this stay in Python: they are not written to JSON.
PRINTED = 10_000


@dataclass(frozen=True)
class About:
    """What one should know about a measure before believing it.

    `exact` says whether the number is exact, and what its error is if not. The last three say what
    a symmetry of networks does to it, "invariant" or "moves": the ReLU rescaling (W₁, W₂) →
    (α W₁, W₂/α), rescaling the weights before a BatchNorm, and renaming hidden neurons.
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

    The value is a number, or one for each label or grid point. It is `exact` up to rounding, or has
    a standard error of `dof` degrees of freedom, or, where `dof` is None, a bound on the error. It
    is `lower` if it is only a lower bound, the best that a search found, and not `complete` if a
    limit was met before the tolerance was.
    """

    value: Value
    stderr: Value = 0.0
    exact: bool = False
    method: str = ""
    dof: int | None = None
    complete: bool = True
    labels: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    lower: bool = False


class Measure(Protocol):
    """A frozen spec with a description and a way to read it off a problem."""

    about: ClassVar[About]

    def read(self, problem: Problem, effort: Effort) -> Measured:
        """Measure."""
        ...


@runtime_checkable
class Needs(Protocol):
    """A measure of something that the caller must give, such as reference parameters."""

    def require(self, problem: Problem) -> None:
        """Raise if it is missing; called before anything is measured."""
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

    The loss is the mean over all examples, of the `parameters` described in words, `size` numbers.
    The number of batches matters in mode "train". `dtype` is the precision of the products, which
    are products with a matrix, gradients or passes.
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
    lower: bool = False

    def interval(self, level: float = 0.95) -> tuple[Value, Value]:
        """Return a confidence interval (Student), or value ± bound if the error is a bound.

        A lower bound has no upper end: (value, ∞), or from below the value if that is a mean.
        """
        from scipy.stats import t

        wide = 1.0 if self.dof is None else float(t.ppf(0.5 + level / 2, self.dof))
        if self.lower:
            return self.value - (wide * self.stderr if self.dof else 0.0), self.value + math.inf
        return self.value - wide * self.stderr, self.value + wide * self.stderr

    def __repr__(self) -> str:
        return f"Reading({self.name}: {self})"

    def __str__(self) -> str:
        where = f"{self.card.examples:,} examples, {self.card.mode} mode"
        return f"{self.said()} ({self.how()}, {where})"

    def how(self) -> str:
        """Return the method, and what ended it if it did not reach its tolerance."""
        if self.complete:
            return self.method
        return f"{self.method}, stopped early" + (f": {self.stopped}" if self.stopped else "")

    def said(self) -> str:
        """Return symbol and value, such as "Tr = 2.0 ± 0.1" or "S_ρ ≥ 0.3"."""
        return f"{self.symbol} {'≥' if self.lower else '='} {self.text()}"

    def text(self) -> str:
        """Return the value with its error, rounded to the digits that the error allows."""
        if isinstance(self.value, float):
            return _with_error(self.value, float(self.stderr), self.exact or self.lower)
        if self.labels and len(self.labels) <= 4:
            return ", ".join(f"{label}: {said}" for label, said in self.parts())
        low, high = float(np.min(self.value)), float(np.max(self.value))
        worst = float(np.max(self.stderr))
        errors = f", each ± at most {worst:.1g}" if worst else ""
        return f"{self.value.size:,} values from {low:.4g} to {high:.4g}{errors}"

    def parts(self) -> list[tuple[str, str]]:
        """Return label and value of each entry, with its error."""
        columns = np.broadcast_arrays(self.value, self.stderr)
        parts = zip(self.labels, *columns, strict=True)
        return [(name, f"{value:.4g}" + (f" ± {e:.1g}" if e else "")) for name, value, e in parts]

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
            "lower_bound": self.lower,
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
