"""The catalogue: every data set by name, made from its spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UserError, nearest, shown, unknown
from .arrays import load
from .continuous import ball, circle, gaussian_mixture, sphere
from .cube import complete, parity, xor
from .dataset import Dataset
from .images import cifar10, fashion_mnist
from .sets import CLASSES, SETS

CATALOGUE: dict[str, Callable[..., Dataset]] = {
    "xor": xor,
    "parity": parity,
    "complete": complete,
    "ball": ball,
    "sphere": sphere,
    "circle": circle,
    "gaussian_mixture": gaussian_mixture,
    "cifar10": cifar10,
    "fashion_mnist": fashion_mnist,
    "file": load,
}


def descriptions() -> dict[str, str]:
    """Return name → the first line of the generator's docstring.

    >>> descriptions()["xor"]
    'Uniform on the cube {±1}^d, y = x1·x2'
    """
    return {
        name: (inspect.getdoc(make) or "").partition("\n")[0].rstrip(".")
        for name, make in CATALOGUE.items()
    }


def make(spec: Mapping[str, Any]) -> Dataset:
    """Make a data set from its spec: a "name" in `CATALOGUE` and the generator's arguments.

    >>> make({"name": "xor", "d": 5, "n": 20, "seed": 1}).x_train.shape
    (20, 5)
    """
    if not isinstance(spec, Mapping):
        raise UserError(f"a data set must be a table of fields, got {spec!r}")
    if "name" not in spec:
        raise UserError(f"a data set needs a name: {nearest('', CATALOGUE)}")
    name, arguments = spec["name"], {key: value for key, value in spec.items() if key != "name"}
    if not isinstance(name, str):
        raise UserError(f"the name of a data set must be a string, got {name!r}")
    if name == "arrays":
        raise UserError(
            "a data set of arrays in memory cannot be made again from its spec: "
            "save them with numpy.savez and use name='file'"
        )
    if name not in CATALOGUE:
        raise unknown("data set", name, CATALOGUE)
    parameters = inspect.signature(CATALOGUE[name]).parameters
    for key in arguments:
        if key not in parameters:
            raise UserError(f"{name} has no argument {key!r}: {nearest(str(key), parameters)}")
    missing = [
        key
        for key, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and key not in arguments
    ]
    if missing:
        raise UserError(f"{name} needs {', '.join(missing)}; it takes {', '.join(parameters)}")
    return CATALOGUE[name](**arguments)


def shape_of(spec: Mapping[str, Any]) -> tuple[tuple[int, ...], int] | None:
    """Return the shape of an input and how many outputs it needs; None if only the data can tell.

    >>> shape_of({"name": "cifar10", "n": 100, "size": 16}), shape_of({"name": "circle", "n": 9})
    (((3, 16, 16), 10), ((2,), 1))
    """
    name = spec.get("name")
    if name in SETS:
        side = spec.get("size", SETS[name].side)
        return (SETS[name].channels, side, side), CLASSES
    if name not in CATALOGUE or name == "file":
        return None
    d = spec.get("d", inspect.signature(CATALOGUE[name]).parameters["d"].default)
    return ((d,), 1) if isinstance(d, int) else None


def identity(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a spec that decides the data, to hash or to compare.

    A file with a digest is identified by its content. Its path only says where to look, and differs
    between machines.

    >>> identity({"name": "file", "path": "/home/me/points.npz", "sha256": "c0ffee"})
    {'name': 'file', 'sha256': 'c0ffee'}
    """
    if not isinstance(spec, Mapping):
        raise UserError(f"spec must be a mapping, as dataset.spec is, got {shown(spec)}")
    known = spec.get("name") == "file" and "sha256" in spec
    return {key: value for key, value in spec.items() if not (known and key == "path")}
