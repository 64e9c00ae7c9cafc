"""One run from command-line flags and a TOML file.

A flag writes a spec as `name:key=value,key=value`; the keys are the fields of the spec.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..data import Dataset
from ..data.catalogue import make
from ..errors import UserError, require_file, require_path
from ..specs import parse_spec
from ..training.config import RunConfig
from ..training.run import load_run, start_table


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
    own = [key for key in options if key in ("mode", "examples", "label", "batch_size")]
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


def log_of(text: str) -> dict[str, Any]:
    """Read the options of a log grid.

    >>> log_of("per_decade=0,regular=20")
    {'per_decade': 0, 'regular': 20}
    """
    if "=" not in text:
        raise UserError(f"--log takes options, e.g. per_decade=0,regular=20, got {text!r}")
    return parse_spec(f":{text}")[1]


# Flag → how its text becomes the value of a configuration; other flags are values already.
_READERS: dict[str, Callable[[Any], Any]] = {
    "arch": lambda text: table_of(text, "kind"),
    "data": data_spec,
    "loss": lambda text: table_of(text, "name"),
    "schedule": lambda texts: [table_of(text, "optimizer") for text in texts],
    "measures": lambda texts: [tracked_of(text) for text in texts],
    "log": log_of,
    "start": start_table,
}


def config_from_flags(file: Path | None, flags: Mapping[str, Any]) -> tuple[RunConfig, Dataset]:
    """Return the configuration and its data set; flags that are not None override the file."""
    fields = _read(file) if file else {}
    if flags.get("start") is not None:
        run = load_run(flags["start"]).config.to_dict()
        fields = {name: run[name] for name in ("arch", "data", "loss", "dtype")} | fields
    for name, value in flags.items():
        if value is not None:
            fields[name] = _READERS[name](value) if name in _READERS else value
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


def _read(file: Path) -> dict[str, Any]:
    require_path("FILE.toml", file, "a TOML file")
    require_file(file)
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is not a text file") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file} is not valid TOML: {error}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep nesting
        raise UserError(f"{file} cannot be read: {error}") from None
