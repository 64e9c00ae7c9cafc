"""The catalogue of experiments, and the settings to run one with.

A new experiment is one file in the folder of its source; the catalogue finds it.
"""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from ..errors import UserError, unknown
from ..specs import parse_value
from . import beyond, kaur2022, wen2023
from .contract import Experiment, Planned
from .outsiders import is_outside, outside
from .tuning import TUNED, tunable

# Wen, Li & Ma, Appendix B.1: "The training time for each experiment is around 12 hours per 1e5
# epochs", on GPUs ("8 NVIDIA 2080 GPUs"; we assume one GPU for each experiment).
HOURS_PER_EPOCH = {"wen2023": 12 / 100_000}


def _experiments(package: ModuleType) -> Iterator[Experiment]:
    """Yield the EXPERIMENT of every module: tables first, then figures by number."""
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.ispkg]
    for name in sorted(names, key=_place):
        if not name.startswith("_"):
            yield import_module(f"{package.__name__}.{name}").EXPERIMENT


def _place(name: str) -> tuple[bool, str, int]:
    """Return the key that sorts fig2 before fig10.

    >>> sorted(["fig10", "sensitivity", "fig2", "table1"], key=_place)
    ['table1', 'fig2', 'fig10', 'sensitivity']
    """
    word, number = re.fullmatch(r"(.*?)(\d*)", name).groups()  # type: ignore[union-attr]
    return not word.startswith("table"), word, int(number or 0)


CATALOGUE: dict[str, Experiment] = {
    experiment.id: experiment
    for package in (wen2023, kaur2022, beyond)
    for experiment in _experiments(package)
}


def find(ids: Sequence[str]) -> list[Experiment]:
    """Return the experiments that ids and sources name, each once.

    An id may also name an experiment of the user's own, as "mine.py:EXPERIMENT".
    """
    found: dict[str, Experiment] = {}
    for id in ids:
        if is_outside(id):
            own = outside(id)
            if own.id in CATALOGUE or own.id in found:
                raise UserError(f"{id} has the id {own.id!r}, which is taken: give it another one")
            found[own.id] = own
            continue
        of_it = {e.id: e for e in CATALOGUE.values() if id in (e.id, source_of(e.id))}
        if not of_it:
            sources = {source_of(name) for name in CATALOGUE}
            raise unknown("experiment or source", id, [*sources, *CATALOGUE])
        found |= of_it
    if not found:
        raise UserError("name an experiment or a source: `flatlab list` names them")
    return list(found.values())


def source_of(id: str) -> str:
    """Return the part of an id before the slash."""
    return id.partition("/")[0]


def settings_of(
    experiments: Sequence[Experiment],
    preset: str,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return id → settings: the preset's, which all these experiments have, with changes.

    A change applies to every experiment that has the setting.

    Raises:
        UserError: No experiment has a setting, or a value is not allowed.
    """
    if seeds is not None and "seeds" in (changes or {}):
        raise UserError("seeds is given 2 times (in changes and by itself): give it once")
    presets = {e.id: e.presets[preset] for e in experiments}
    fields = {id: [f.name for f in dataclasses.fields(s)] for id, s in presets.items()}
    values = {**({} if seeds is None else {"seeds": seeds}), **(changes or {})}
    for e in experiments if values.keys() & {*TUNED} else ():
        absent = {*TUNED} - tunable(e.plan(presets[e.id]))
        fields[e.id] = [name for name in fields[e.id] if name not in absent]
    known = {name for names in fields.values() for name in names}
    for name in values:
        if name == "seeds" and name not in known:
            ids = " and ".join(fields)
            raise UserError(f"{ids} has no seeds, since nothing is random there: leave --seeds out")
        if name not in known:
            raise unknown("setting", name, known)
    found = {}
    for e in experiments:
        own = {name: value for name, value in values.items() if name in fields[e.id]}
        found[e.id] = e.complete(dataclasses.replace(presets[e.id], **own))
    return found


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """Read `key=value` changes; values are written as in TOML.

    >>> parse_changes(["width=3", "dtype=float64"])
    {'width': 3, 'dtype': 'float64'}
    """
    changes = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, got {text!r}")
        changes[key] = parse_value(value)
    return changes


def seeds_of(settings: Any) -> int | None:
    """Return the number of seeds, or None if the settings have no such field."""
    found: int | None = getattr(settings, "seeds", None)
    return found


def with_seeds(settings: Any, seeds: int) -> Any:
    """Return the settings with another number of seeds; unchanged if they have no seeds."""
    if seeds_of(settings) is None:
        return settings
    return dataclasses.replace(settings, seeds=seeds)


def hours_per_epoch(experiment: Experiment) -> float | None:
    """Return the hours that an epoch took the authors, or None if they do not say."""
    return HOURS_PER_EPOCH.get(source_of(experiment.id))


def paper_runs(experiment: Experiment) -> list[Planned]:
    """Return the paper's own runs: one seed of the preset `paper`, without runs that are ours."""
    if "paper" not in experiment.presets:
        return []
    planned = experiment.plan(with_seeds(experiment.presets["paper"], 1))
    return [p for p in planned if isinstance(p, Planned) and not p.ours]


def paper_epochs(*experiments: Experiment) -> int:
    """Return the epochs of the paper's own runs; a configuration counts once."""
    runs = (p for experiment in experiments for p in paper_runs(experiment))
    return sum({p.config.digest(): p.config.epochs for p in runs}.values())
