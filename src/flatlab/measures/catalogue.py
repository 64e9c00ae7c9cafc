"""All measures by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import UserError, unknown
from .adaptive import AdaptiveAverageSharpness, AdaptiveLinfSharpness, AdaptiveSharpness
from .alignment import Alignment
from .average_sharpness import AverageSharpness
from .bounds import FlatnessBound, McAllester
from .contract import Measure
from .diagonal import Diagonal
from .eigenvalues import LambdaMax, LambdaMin, LayerLambdaMax, TopK
from .frobenius import Frobenius
from .input_gradient import InputGradient
from .keskar import Keskar
from .margin import Margin
from .nonuniformity import NonUniformity
from .norms import Distance, FisherRao, ParameterNorm
from .path_norm import PathNorm
from .sam_sharpness import OneStepSharpness, SamSharpness
from .spectrum import Spectrum
from .trace import LayerTrace, Trace
from .weighted_norm import WeightedNorm

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
    "pac_bayes_flatness": FlatnessBound(),
    "mcallester": McAllester(),
}

DEFAULT = ("trace", "lambda_max", "sam_sharpness", "average_sharpness", "parameter_norm")


def named(text: str) -> Measure:
    """Return a measure by name, with options after a colon.

    >>> named("lambda_max:tolerance=0.01").tolerance
    0.01
    """
    name, _, rest = text.partition(":")
    if name not in CATALOGUE:
        raise unknown("measure", name, CATALOGUE)
    known: Any = CATALOGUE[name]
    options = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"expected key=value in {text!r}, got {part!r}")
        options[key] = _value(value)
    fields = {f.name: getattr(known, f.name) for f in dataclasses.fields(known)}
    return type(known)(**{**fields, **options})  # type: ignore[no-any-return]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
