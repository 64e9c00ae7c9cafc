"""Common parts of the generators: checked arguments, and assembling a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import whole_number
from ..randomness import generator
from ..specs import Plain
from . import _checks as check
from .dataset import Array, Dataset

Labelled = tuple[Array, Array]
Sampler = Callable[[np.random.Generator, int], Labelled]
"""(stream, how many) → (inputs, labels)."""


def assemble(
    name: str,
    arguments: dict[str, Plain],
    train: Labelled,
    sample: Sampler,
    relevant: tuple[int, ...],
) -> Dataset:
    """Join given training examples and n_test fresh draws of `sample`."""
    n_test, d, seed = (int(arguments[key]) for key in ("n_test", "d", "seed"))
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
