"""Common parts of the generators: two independent streams, and assembling a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import whole_number
from ..randomness import generator
from . import _checks as check
from .dataset import Array, Dataset, Plain

Examples = tuple[Array, Array]
Sample = Callable[[np.random.Generator, int], Examples]
"""(stream, how many) → (inputs, labels)."""


def independent(
    name: str, arguments: dict[str, Plain], sample: Sample, relevant: tuple[int, ...]
) -> Dataset:
    """Draw n training and n_test test examples from one law; `arguments` holds n, d, …."""
    n, d, seed = (whole_number(key, arguments[key], 0) for key in ("n", "d", "seed"))
    check.size("n", n, d)
    train = sample(generator(seed, f"data/{name}/train"), n)
    return assemble(name, arguments, train, sample, relevant)


def assemble(
    name: str,
    arguments: dict[str, Plain],
    train: Examples,
    sample: Sample,
    relevant: tuple[int, ...],
) -> Dataset:
    """Join given training examples and n_test fresh draws of `sample`."""
    n_test, d, seed = (whole_number(key, arguments[key], 0) for key in ("n_test", "d", "seed"))
    check.size("n_test", n_test, d)
    x_test, y_test = sample(generator(seed, f"data/{name}/test"), n_test)
    spec: dict[str, Plain] = {"name": name, **arguments}
    return Dataset(*train, x_test, y_test, name=name, seed=seed, spec=spec, relevant=relevant)


def common(d: object, n: object, seed: object, n_test: object, *, d_min: int) -> dict[str, Plain]:
    """Check the four arguments that nearly every generator has."""
    return {
        "d": whole_number("d", d, d_min),
        "n": whole_number("n", n, 1),
        "seed": whole_number("seed", seed, 0),
        "n_test": whole_number("n_test", n_test, 0),
    }


def directions(rng: np.random.Generator, n: int, d: int) -> Array:
    """Draw n points uniformly on the unit sphere of R^d: g/‖g‖ with g ~ N(0, I)."""
    normal = rng.normal(size=(n, d))
    unit: Array = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    return unit
