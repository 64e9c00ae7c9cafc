"""What a spec is: a frozen, strictly validated dataclass whose mistakes read as one line.

Specs describe architectures, losses, phases and runs. They are plain values: equal when their
fields are equal, written to TOML, hashed to name a run directory.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.fields import FieldInfo

from .errors import UserError, nearest, whole

T = TypeVar("T")
Plain = bool | int | float | str


@dataclass_transform(frozen_default=True)
def spec(cls: type[T]) -> type[T]:
    """Make a frozen, strictly typed dataclass that raises `UserError` on bad values."""
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    made: Any = pydantic_dataclass(frozen=True, config=config)(cls)
    validate = made.__init__

    fields = [field for field in dataclasses.fields(made) if not field.kw_only]

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        counted = _counted(made)
        named = [field.name in counted for field in fields]
        named += [False] * (len(args) - len(named))
        args = tuple(_taken(*pair) for pair in zip(args, named, strict=False))
        kwargs = {name: _taken(value, name in counted) for name, value in kwargs.items()}
        try:
            validate(self, *args, **kwargs)
        except ValidationError as error:
            raise UserError(_one_line(made, error)) from None

    made.__init__ = __init__
    return made  # type: ignore[no-any-return]


@functools.cache
def _counted(cls: type) -> frozenset[str]:
    """Return the fields of a spec that are whole numbers, or lists of them."""
    found = set()
    for name, hint in get_type_hints(cls).items():
        parts = [hint]
        for part in parts:  # grows: the parts of unions, tuples and annotated types
            parts += get_args(part)
        if int in parts and float not in parts:
            found.add(name)
    return frozenset(found)


def _taken(value: Any, counted: bool) -> Any:
    """Return numbers of numpy as Python's, and whole floats as ints where a field counts."""
    if getattr(value, "ndim", 0) and hasattr(value, "tolist"):  # of numpy or torch
        value = value.tolist()
    if type(value) in (list, tuple):
        return type(value)(_taken(item, counted) for item in value)
    if type(value) is dict:
        return {name: _taken(item, counted) for name, item in value.items()}
    if counted:
        return whole(value)
    scalar = getattr(value, "ndim", None) == 0 and hasattr(value, "item")
    return value.item() if scalar else value


def to_dict(value: Any, leave: str | None = None) -> dict[str, Any]:
    """Return a spec as nested plain values, without the field `leave` and fields at their defaults.

    So a new field with a default changes no stored configuration and renames no run.
    """
    found = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if field.name != leave and item != _default(field):
            found[field.name] = _plain(item)
    return found


def _default(field: dataclasses.Field[Any]) -> Any:
    default = field.default
    if isinstance(default, FieldInfo):  # pydantic's Field(default_factory=…)
        factory: Any = default.default_factory
        return factory() if factory else default.default
    factory = field.default_factory
    return default if factory is dataclasses.MISSING else factory()


def _plain(item: Any) -> Any:
    if dataclasses.is_dataclass(item):
        return to_dict(item)
    if isinstance(item, Mapping):
        return {name: _plain(part) for name, part in item.items() if part is not None}
    return [_plain(part) for part in item] if isinstance(item, list | tuple) else item


def from_dict(cls: type[T], fields: Mapping[str, Any]) -> T:
    """Build a spec from plain values; unknown keys and wrong types raise `UserError`."""
    if not isinstance(fields, Mapping):
        raise UserError(f"{cls.__name__} must be a table of fields, got {fields!r}")
    kinds = get_type_hints(cls)
    values = dict(fields)
    for name, value in fields.items():
        if isinstance(value, Mapping) and dataclasses.is_dataclass(kinds.get(name)):
            values[name] = from_dict(kinds[name], value)
        elif isinstance(value, list) and get_origin(kinds.get(name)) is tuple:  # TOML has lists
            values[name] = tuple(value)
    return cls(**values)


def parse_value(text: str) -> Any:
    """Read a value as TOML does; a bare word is a string.

    >>> [parse_value(text) for text in ("3", "0.5", "true", "batch", "1e-3", "[1, 2]")]
    [3, 0.5, True, 'batch', 0.001, [1, 2]]
    """
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, thousands of digits, or deep nesting
        return text
    return table["value"] if len(table) == 1 else text  # a line break could smuggle in more


def parse_spec(text: str) -> tuple[str, dict[str, Any]]:
    """Read `name:key=value,…` into the name and a table; `key.inner=value` is a nested table.

    >>> parse_spec("mlp:widths=[10, 10],init.law=normal")
    ('mlp', {'widths': [10, 10], 'init': {'law': 'normal'}})
    """
    name, _, rest = text.partition(":")
    table: dict[str, Any] = {}
    for part in filter(None, split_options(rest)):
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"expected key=value in {text!r}, got {part!r}")
        head, dot, tail = key.partition(".")
        target, field = (table.setdefault(head, {}), tail) if dot else (table, key)
        if not isinstance(target, dict) or field in target:
            raise UserError(f"{head} is given twice in {text!r}: give it once")
        target[field] = parse_value(value)
    return name, table


def spec_text(name: str, fields: Mapping[str, Any]) -> str:
    """Write a name and plain fields as `parse_spec` reads them.

    >>> spec_text("mlp", {"widths": [100, 100], "init": {"law": "normal"}})
    'mlp:widths=[100, 100],init.law=normal'
    """
    parts: list[str] = []
    for key, value in fields.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        parts += [f"{key}.{k}={_text(v)}" for k, v in inner] or [f"{key}={_text(value)}"]
    return f"{name}:{','.join(parts)}" if parts else name


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def split_options(text: str) -> list[str]:
    """Split at commas that are not inside brackets.

    >>> split_options("a=[1,2],b=3")
    ['a=[1,2]', 'b=3']
    """
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def digest(fields: Mapping[str, Any]) -> str:
    """Hash plain values canonically: key order does not matter, every bit of a float does.

    >>> digest({"a": 1, "b": 0.1}) == digest({"b": 0.1, "a": 1})
    True
    """
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _one_line(cls: Any, error: ValidationError) -> str:
    errors = error.errors()
    # A misspelt field is also reported as missing: report the misspelling.
    misspelt = (e for e in errors if e["type"] == "unexpected_keyword_argument")
    first = next(misspelt, errors[0])
    allowed = [field.name for field in dataclasses.fields(cls)]
    where = first["loc"][0] if first["loc"] else cls.__name__
    if where == len(allowed) == 0:  # pydantic counts positional arguments from 0
        return f"{cls.__name__} has no fields, got {first['input']!r}: drop it"
    if where == len(allowed):
        fields = "field" if len(allowed) == 1 else "fields"
        return f"{cls.__name__} takes {len(allowed)} {fields}: {', '.join(allowed)}"
    name = allowed[where] if isinstance(where, int) else where  # a positional argument
    given, context = first.get("input"), first.get("ctx", {})
    if get_origin(get_type_hints(cls).get(name)) is dict:
        return _wrong_table(name, first["loc"][1:], given)
    match first["type"]:
        case "unexpected_keyword_argument":
            if not allowed:
                return f"{cls.__name__} has no fields, got {name!r}: drop it"
            return f"{cls.__name__} has no field {name!r}: {nearest(name, allowed)}"
        case "missing" | "missing_argument":
            return f"{cls.__name__} needs {name}"
        case "greater_than":
            default = next(field.default for field in dataclasses.fields(cls) if field.name == name)
            none = " or left out" if default is None else ""
            return f"{name} must be > {context['gt']:g}{none}, got {given!r}"
        case "greater_than_equal":
            return f"{name} must be >= {context['ge']:g}, got {given!r}"
        case "less_than":
            return f"{name} must be < {context['lt']:g}, got {given!r}"
        case "less_than_equal":
            return f"{name} must be <= {context['le']:g}, got {given!r}"
        case "literal_error":
            return f"{name} must be {context['expected']}, got {given!r}"
        case "tuple_type":
            return f"{name} must be a list such as [1, 2], got {given!r}"
        case "too_short":
            return f"{name} must have at least {context['min_length']} entry, got {given!r}"
        case "value_error":
            return str(context["error"])
        case "dataclass_type" | "dataclass_exact_type":
            return f"{name} must be a table of fields ({context['class_name']}), got {given!r}"
        case _:
            return f"{name}: {first['msg'].lower()}, got {given!r}"


def _wrong_table(name: str, within: tuple[Any, ...], given: Any) -> str:
    """Say what is wrong with a table of plain values, or with its entry `within[0]`."""
    if not within:
        return f"{name} must be a dict of names and plain values, got {given!r}"
    if within[-1] == "[key]":
        return f"the names in {name} must be strings, got {given!r}"
    return (
        f"{name}: {within[0]} must be True, False, a whole number, a finite number or a string, "
        f"got {given!r}"
    )
