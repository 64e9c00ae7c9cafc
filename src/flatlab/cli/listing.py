"""Tables for `flatlab list` and `flatlab show`."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from ..specs import spec_text, to_dict
from ..training.run import Run
from ..training.schedule import Phase

Rows = list[dict[str, Any]]


def _experiments() -> Rows:
    from ..experiments import CATALOGUE

    return [
        {"id": e.id, "source": f"{e.source}, {e.figure}", "claim": e.claim}
        | {"presets": ", ".join(e.presets)}
        for e in CATALOGUE.values()
    ]


def _data() -> Rows:
    from ..data.catalogue import descriptions

    return [{"name": name, "what": what} for name, what in descriptions().items()]


def _constructions() -> Rows:
    from ..theory.constructions import descriptions

    return [{"name": name, "what": what} for name, what in descriptions().items()]


def _specs(classes: Mapping[str, Any], fields: str) -> Rows:
    """Return the names of specs, the first line of each description, and its fields."""
    return [
        {
            "name": name,
            "what": (cls.__doc__ or "").splitlines()[0],
            fields: ", ".join(field.name for field in dataclasses.fields(cls)),
        }
        for name, cls in classes.items()
    ]


def _models() -> Rows:
    from ..models import MODELS

    return _specs(MODELS, "fields")


def _measures() -> Rows:
    from ..measures import CATALOGUE

    return [
        {"name": name, "what": m.about.title, "ReLU rescaling": m.about.relu, "cost": m.about.cost}
        for name, m in CATALOGUE.items()
    ]


def _optimizers() -> Rows:
    from ..training.optimizers import SPECS

    return _specs(SPECS, "options")


def _losses() -> Rows:
    from ..losses import LABELS, LOSSES

    return [
        {"name": name, "loss of one example": cls.formula, "labels": LABELS[cls.labels]}
        for name, cls in LOSSES.items()
    ]


def _claims() -> Rows:
    from ..claims import claims

    return [
        {"id": c.id, "kind": c.kind, "where": c.where}
        | {"says": textwrap.shorten(c.says, 120, placeholder=" …")}
        for c in claims().values()
    ]


LISTS: dict[str, Callable[[], Rows]] = {
    "experiments": _experiments,
    "data": _data,
    "models": _models,
    "losses": _losses,
    "measures": _measures,
    "optimizers": _optimizers,
    "algorithms": _optimizers,
    "claims": _claims,
    "constructions": _constructions,
}


def describe_run(run: Run) -> list[str]:
    """Return a run's summary as lines."""
    config = run.config
    return [
        f"{run.status} at epoch {int(run.columns['epoch'][-1])} of {config.epochs}, "
        f"{run.seconds:.1f} s, seed {config.seed}, {config.dtype}",
        f"arch: {config.arch.describe()}",
        f"data: {_data_text(config.data)}",
        f"loss: {spec_text(config.loss.name, to_dict(config.loss))}",
        *(f"phase {k}: {_phase(phase)}" for k, phase in enumerate(config.schedule, 1)),
        *(f"note: {note}" for note in run.notes),
        *([f"directory: {run.path}"] if run.path else []),
    ]


def _data_text(data: Mapping[str, Any]) -> str:
    """Write a data set as on the command line, without what is unset or off."""
    fields = {key: value for key, value in data.items() if value is not None and value is not False}
    return spec_text(fields.pop("name"), fields)


def _phase(phase: Phase) -> str:
    """Write a phase as on the command line: the optimizer's name, then all non-default settings."""
    fields = phase.to_dict()
    optimizer = dict(fields.pop("optimizer"))
    name, base = optimizer.pop("name"), dict(optimizer.pop("base", {}))
    base |= {"base": base.pop("name")} if base.get("name") == "adam" else {}
    base.pop("name", None)
    return spec_text(name, {**fields, **optimizer, **base})
