"""All measures by name, and what a caller may write for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import UserError, unknown
from ..specs import parse_spec, spec_text
from .adaptive import AdaptiveAverageSharpness, AdaptiveLinfSharpness, AdaptiveSharpness
from .average_sharpness import AverageSharpness
from .batch_sharpness import BatchSharpness
from .bounds import FlatnessBound, McAllester
from .contract import Measure, settings_of
from .eigenvalues import LambdaMax, LambdaMin, LayerLambdaMax, TopK
from .function import InputGradient, Margin
from .keskar import Keskar
from .noise import Alignment, NonUniformity
from .norms import Distance, FisherRao, ParameterNorm, PathNorm, WeightedNorm
from .preconditioned import PreconditionedLambdaMax
from .sam_sharpness import OneStepSharpness, SamSharpness
from .second_moment_radius import SecondMomentRadius
from .spectrum import Spectrum
from .trace import Diagonal, Frobenius, LayerTrace, Trace

_CURVATURE: dict[str, type[Any]] = {
    "trace": Trace,
    "lambda_max": LambdaMax,
    "top_k": TopK,
    "frobenius": Frobenius,
    "spectrum": Spectrum,
    "diagonal": Diagonal,
    "layer_trace": LayerTrace,
    "layer_lambda_max": LayerLambdaMax,
}

CATALOGUE: dict[str, Measure] = {
    **{name: kind() for name, kind in _CURVATURE.items()},
    "lambda_min": LambdaMin(),
    **{
        f"{matrix}_{name}": kind(matrix=matrix)
        for matrix in ("ggn", "fisher", "gram")
        for name, kind in _CURVATURE.items()
    },
    "sam_sharpness": OneStepSharpness(),
    "sam_sharpness_steps": SamSharpness(),
    "average_sharpness": AverageSharpness(),
    "keskar": Keskar(),
    "keskar_subspace": Keskar(dimension=100),
    "adaptive_sharpness": AdaptiveSharpness(),
    "adaptive_sharpness_inf": AdaptiveLinfSharpness(),
    "adaptive_average": AdaptiveAverageSharpness(),
    "parameter_norm": ParameterNorm(),
    "distance": Distance(),
    "weighted_norm": WeightedNorm(),
    "path_norm": PathNorm(),
    "fisher_rao": FisherRao(),
    "input_gradient": InputGradient(),
    "margin": Margin(),
    "nonuniformity": NonUniformity(),
    "alignment": Alignment(),
    "second_moment_radius": SecondMomentRadius(),
    "batch_sharpness": BatchSharpness(),
    "preconditioned_lambda_max": PreconditionedLambdaMax(),
    "pac_bayes_flatness": FlatnessBound(),
    "mcallester": McAllester(),
}

DEFAULT = ("trace", "lambda_max", "sam_sharpness", "average_sharpness", "parameter_norm")


Chosen = str | Measure | Iterable[str | Measure] | Mapping[str, str | Measure] | None


def named(text: str) -> Measure:
    """Return a measure by name, with options after a colon.

    >>> named("lambda_max:tolerance=0.01").tolerance
    0.01
    """
    if not isinstance(text, str):
        raise UserError(f"a measure is named by a string such as 'trace', got {text!r}")
    name, options = parse_spec(text)
    if name not in CATALOGUE:
        raise unknown("measure", name, CATALOGUE)
    known = CATALOGUE[name]
    words = {"True": True, "False": False}  # as `name_of` writes them
    given = {k: words.get(v, v) if isinstance(v, str) else v for k, v in options.items()}
    own, asked = getattr(known, "matrix", "hessian"), given.get("matrix")
    if own != "hessian" and asked not in (None, own):
        plain = name.removeprefix(f"{own}_")
        raise UserError(
            f"{name} is of the matrix {own!r}, got matrix={asked}: write {plain}:matrix={asked}"
        )
    kind: Any = type(known)
    return kind(**{**settings_of(known), **given})  # type: ignore[no-any-return]


def choose(measures: Chosen) -> dict[str, Measure]:
    """Return measures by name from what a caller may write."""
    if measures is None:
        measures = DEFAULT
    if isinstance(measures, Mapping):
        pairs = [(_key(name), _made(item)) for name, item in measures.items()]
    else:
        alone = isinstance(measures, str) or not isinstance(measures, Iterable)
        listed: Any = [measures] if alone else measures
        pairs = [pair for item in listed for pair in _pairs(item)]
    found: dict[str, Measure] = {}
    for name, made in pairs:
        if found.setdefault(name, made) != made:
            raise UserError(
                f"two different measures are called {name!r}: pass a mapping from names of your "
                "own to measures"
            )
    if not found:
        raise UserError("measures is empty: name at least one, or pass None for the usual ones")
    return found


def names_in(text: str) -> list[str]:
    """Split names at commas; a part that starts with key= is an option of the name before it.

    >>> names_in("trace,top_k:k=2,tolerance=1e-4,margin")
    ['trace', 'top_k:k=2,tolerance=1e-4', 'margin']
    """
    found: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if found and "=" in part.partition(":")[0]:
            joint = "," if ":" in found[-1] else ":"
            found[-1] = f"{found[-1]}{joint}{part}"
        else:
            found.append(part)
    return found


def _pairs(item: Any) -> Iterator[tuple[str, Measure]]:
    if not isinstance(item, str):
        made = _made(item)
        yield name_of(made), made
        return
    for name in names_in(item):
        if name == "all":
            yield from CATALOGUE.items()
        else:
            yield name, named(name)


def _key(name: Any) -> str:
    if not isinstance(name, str):
        raise UserError(f"a mapping of measures needs names, got {name!r}: write it as a string")
    return name


def _made(item: Any) -> Measure:
    if isinstance(item, str):
        return named(item)
    if isinstance(item, type):
        raise UserError(f"{item.__name__} is a class: write {item.__name__}(), or a name")
    if not hasattr(item, "read") or not hasattr(item, "about"):
        raise UserError(f"a measure must be a name or a measure, got {item!r}")
    made: Measure = item
    return made


def name_of(measure: Measure) -> str:
    """Return the text that `named` would read, or the class name for a measure of the user's own.

    >>> name_of(LambdaMax(tolerance=1e-4)), name_of(LambdaMax(matrix="ggn"))
    ('lambda_max:tolerance=0.0001', 'ggn_lambda_max')
    """
    kind: Any = type(measure)
    kin = [(name, settings_of(known)) for name, known in CATALOGUE.items() if type(known) is kind]
    if not kin and dataclasses.is_dataclass(kind):
        kin = [(type(measure).__name__, {f.name: f.default for f in dataclasses.fields(kind)})]
    elif not kin:
        return type(measure).__name__
    own = settings_of(measure)
    name, options = min(
        ((name, {k: v for k, v in own.items() if usual[k] != v}) for name, usual in kin),
        key=lambda pair: len(pair[1]),
    )
    return spec_text(name, options)
