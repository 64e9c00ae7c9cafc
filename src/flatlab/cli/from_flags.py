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
from ..specs import parse_spec
from ..training.config import RunConfig
from ..training.run import load_run, start_table

# Flag → the key that stores the name before the colon.
_NAME_KEYS = {"arch": "kind", "data": "name", "loss": "name", "schedule": "optimizer"}


def table_of(text: str, name_key: str) -> dict[str, Any]:
    """Read `name:key=value,…` into a table that includes the name.

    >>> table_of("sam:lr=0.01,epochs=20", "optimizer")
    {'optimizer': 'sam', 'lr': 0.01, 'epochs': 20}
    """
    name, options = parse_spec(text)
    if name_key in options:
        raise UserError(f"{name_key} is given twice in {text!r}: give it once")
    return {name_key: name, **options}


def tracked_of(text: str) -> dict[str, Any]:
    """Read `measure:key=value,…` into the table of a tracked measure.

    >>> tracked_of("lambda_max:tolerance=0.01,examples=500")
    {'measure': 'lambda_max:tolerance=0.01', 'examples': 500}
    """
    name, options = parse_spec(text)
    own = [key for key in options if key in ("mode", "examples", "label")]
    fields = {key: options.pop(key) for key in own}
    listed = ",".join(f"{key}={value}" for key, value in options.items())
    return {"measure": f"{name}:{listed}" if listed else name, **fields}


def data_spec(text: str) -> dict[str, Any]:
    """Read a data set's flag: `name:key=value,…` or the path of an .npz file.

    >>> data_spec("points.npz")
    {'name': 'file', 'path': 'points.npz'}
    """
    if text.endswith(".npz") and not text.startswith("file:"):
        return {"name": "file", "path": text}
    return table_of(text, "name")


def config_from_flags(file: Path | None, flags: Mapping[str, Any]) -> tuple[RunConfig, Dataset]:
    """Return the configuration and its data set; flags that are not None override the file."""
    fields = _read(file) if file else {}
    if flags.get("start") is not None:
        fields = {**_of_run(flags["start"]), **fields}
    for name, value in flags.items():
        if value is None:
            continue
        if name == "schedule":
            fields[name] = [table_of(text, _NAME_KEYS[name]) for text in value]
        elif name == "measures":
            fields[name] = [tracked_of(text) for text in value]
        elif name == "log":
            fields[name] = parse_spec(f":{value}")[1]
        elif name == "start":
            fields[name] = start_table(value)
        elif name == "data":
            fields[name] = data_spec(value)
        else:
            fields[name] = table_of(value, _NAME_KEYS[name]) if name in _NAME_KEYS else value
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
    """Return the defaults that a run takes over from the run it starts from."""
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
