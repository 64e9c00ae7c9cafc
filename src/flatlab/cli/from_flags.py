"""One run from command-line flags and a TOML file.

A flag writes a spec as `name:key=value,key=value`; the keys are the fields of the spec.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..data import Dataset
from ..data.catalogue import make
from ..errors import UserError
from ..experiments.running import parse_value
from ..training.config import RunConfig
from ..training.run import load_run, start_table

# How the name before the colon is stored in each table.
_NAME_KEYS = {"arch": "kind", "data": "name", "loss": "name", "schedule": "algorithm"}


def parse_spec(text: str, name_key: str) -> dict[str, Any]:
    """Read `name:key=value,...` into a table.

    >>> parse_spec("sam:lr=0.01,epochs=20", "algorithm")
    {'algorithm': 'sam', 'lr': 0.01, 'epochs': 20}
    """
    name, _, rest = text.partition(":")
    table: dict[str, Any] = {name_key: name}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"expected key=value in {text!r}, got {part!r}")
        head, dot, tail = key.partition(".")  # init.gamma_scale=1 goes into a nested table
        target, field = (table.setdefault(head, {}), tail) if dot else (table, key)
        if not isinstance(target, dict) or field in target:
            raise UserError(f"{head} is given twice in {text!r}: give it once")
        target[field] = parse_value(value)
    return table


def data_spec(text: str) -> dict[str, Any]:
    """Read a data set's flag: `name:key=value,…` or the path of an .npz file.

    >>> data_spec("points.npz")
    {'name': 'file', 'path': 'points.npz'}
    """
    if text.endswith(".npz") and not text.startswith("file:"):
        return {"name": "file", "path": text}
    return parse_spec(text, "name")


def config_from_flags(file: Path | None, flags: Mapping[str, Any]) -> tuple[RunConfig, Dataset]:
    """Return the configuration and its data set; flags that are not None win over the file."""
    fields = _read(file) if file else {}
    if flags.get("start") is not None:
        fields = {**_of_run(flags["start"]), **fields}
    for name, value in flags.items():
        if value is None:
            continue
        if name == "schedule":
            fields[name] = [parse_spec(text, _NAME_KEYS[name]) for text in value]
        elif name == "start":
            fields[name] = start_table(value)
        elif name == "data":
            fields[name] = data_spec(value)
        else:
            fields[name] = parse_spec(value, _NAME_KEYS[name]) if name in _NAME_KEYS else value
    for name, example in (
        ("arch", "two_layer:width=500"),
        ("data", "xor:d=30,n=100"),
        ("schedule", "sam:lr=0.01,rho=0.05,batch_size=1,epochs=2000"),
    ):
        if name not in fields:
            flag = {"schedule": "phase"}.get(name, name)
            raise UserError(f"a run needs --{flag}, e.g. --{flag} {example}, or a TOML file")
    config = RunConfig.from_dict(fields)
    data = make(config.data)
    return RunConfig.from_dict({**config.to_dict(), "data": data.spec}), data


def _of_run(path: Path) -> dict[str, Any]:
    """Return what a run that starts from another takes over unless it says otherwise."""
    config = load_run(path).config.to_dict()
    return {name: config[name] for name in ("arch", "data", "loss", "dtype")}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is not a text file") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file} is not valid TOML: {error}") from None
