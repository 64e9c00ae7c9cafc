"""The contract of every data set in the catalogue, and every mistake its arguments can hold."""

from __future__ import annotations

import importlib
import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import tomli_w

from flatlab.data import CATALOGUE, Dataset, descriptions, identity, make
from flatlab.errors import UserError
from flatlab.randomness import generator

ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def absolute_difference(x):
    return np.abs(x[:, 0]) - np.abs(x[:, 1])


def product(x):
    return x[:, 0] * x[:, 1]


def angle(x):
    return np.arctan2(x[:, 1], x[:, 0])


@dataclass(frozen=True)
class Case:
    """A spec, what its labels are, and the norm every input has (None when it varies).

    A set that is not drawn has no seed: it is read from the folder that FLATLAB_DATA names.
    """

    spec: dict
    target: Callable | None
    norm: float | None
    relevant: tuple[int, ...] = (0, 1)
    drawn: bool = True

    def make(self, seed=0, **options) -> Dataset:
        return make({**self.spec, **({"seed": seed} if self.drawn else {}), **options})


CASES = {
    "xor": Case({"name": "xor", "d": 30, "n": 100}, product, np.sqrt(30)),
    "xor-distinct": Case({"name": "xor", "d": 8, "n": 200, "distinct": True}, product, np.sqrt(8)),
    "parity": Case(
        {"name": "parity", "d": 12, "n": 50, "k": 3},
        lambda x: x[:, 0] * x[:, 1] * x[:, 2],
        np.sqrt(12),
        (0, 1, 2),
    ),
    "complete": Case({"name": "complete", "d": 8, "s": 12}, product, np.sqrt(8)),
    "ball": Case({"name": "ball", "d": 10, "n": 100}, absolute_difference, None),
    "sphere": Case({"name": "sphere", "d": 7, "n": 60}, absolute_difference, np.sqrt(7)),
    "sphere-sign": Case(
        {"name": "sphere", "d": 7, "n": 60, "target": "sign_product"},
        lambda x: np.sign(product(x)),
        np.sqrt(7),
    ),
    "sphere-linear": Case(
        {"name": "sphere", "d": 7, "n": 60, "target": "linear"}, lambda x: x[:, 0], np.sqrt(7), (0,)
    ),
    "circle": Case({"name": "circle", "n": 40}, lambda x: np.cos(angle(x)), 1.0),
    "circle-deep": Case(
        {"name": "circle", "n": 40, "target": "triangle", "d": 6, "R": 2.5},
        lambda x: 1 - 2 * np.abs(angle(x)) / np.pi,
        2.5,
    ),
    "mixture-4": Case({"name": "gaussian_mixture", "d": 5, "n": 80}, None, None),
    "mixture-2": Case(
        {"name": "gaussian_mixture", "d": 5, "n": 80, "clusters": 2}, None, None, (0,)
    ),
    "cifar10": Case({"name": "cifar10", "n": 23}, None, None, (), drawn=False),
    "cifar10-16": Case({"name": "cifar10", "n": 20, "size": 16}, None, None, (), drawn=False),
    "fashion_mnist": Case({"name": "fashion_mnist", "n": 30}, None, None, (), drawn=False),
}
DRAWN = [name for name, case in CASES.items() if case.drawn]


@pytest.fixture(params=DRAWN)
def case(request):
    """Give every case whose data are drawn from a seed."""
    return CASES[request.param]


@pytest.fixture(params=CASES)
def entry(request):
    """Give every case."""
    found = CASES[request.param]
    if not found.drawn and not os.environ.get("FLATLAB_DATA"):
        pytest.skip("FLATLAB_DATA is not set: no folder to read images from")
    return found


def same(a: Dataset, b: Dataset) -> bool:
    return all(np.array_equal(getattr(a, key), getattr(b, key)) for key in ARRAYS)


def test_every_generator_has_a_case_and_a_description():
    assert {case.spec["name"] for case in CASES.values()} | {"file"} == set(CATALOGUE)
    for line in descriptions().values():
        assert 20 < len(line) < 100 and "\n" not in line


def test_shapes_and_metadata(case):
    data = make({**case.spec, "seed": 3, "n_test": 70})
    n = case.spec.get("n", 4 * case.spec.get("s", 0))
    assert (data.n, data.d) == (n, case.spec.get("d", 2))
    assert data.x_test.shape == (70, data.d) and data.y_test.shape == (70,)
    assert (data.name, data.seed, data.relevant) == (case.spec["name"], 3, case.relevant)
    assert make(case.spec).x_test.shape == (10_000, data.d)


def test_arrays_are_contiguous_and_read_only(entry):
    data = entry.make(n_test=5)
    for key in ARRAYS:
        array = getattr(data, key)
        integer, image = data.classes and key.startswith("y"), len(data.shape) > 1
        expected = np.int64 if integer else np.float32 if image else np.float64
        assert array.dtype == expected and array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_same_spec_gives_the_same_bits(entry):
    assert same(entry.make(seed=7), entry.make(seed=7))


def test_different_across_seeds(case):
    first, other = (case.make(seed=seed) for seed in (7, 8))
    assert not np.array_equal(first.x_train, other.x_train)
    assert not np.array_equal(first.x_test, other.x_test)


def test_train_and_test_are_separate_streams(case):
    size = "s" if "s" in case.spec else "n"
    data = make(case.spec)
    fewer_tests = make({**case.spec, "n_test": 1})
    smaller_train = make({**case.spec, size: case.spec[size] - 1})
    assert np.array_equal(data.x_train, fewer_tests.x_train)
    assert np.array_equal(data.x_test, smaller_train.x_test)
    assert not np.array_equal(data.x_train, data.x_test[: data.n])


def test_every_stream_is_named_after_its_data_set(case, monkeypatch):
    used = set()

    def recording(seed, purpose, index=0):
        used.add((seed, purpose))
        return generator(seed, purpose, index)

    for module in ("_sampling", "continuous", "cube"):
        imported = importlib.import_module(f"flatlab.data.{module}")
        monkeypatch.setattr(imported, "generator", recording)
    make({**case.spec, "seed": 4})
    name = case.spec["name"]
    assert used == {(4, f"data/{name}/train"), (4, f"data/{name}/test")}


def test_spec_makes_the_same_data_set_again_through_json_and_toml(entry):
    data = entry.make(seed=5, n_test=50)
    assert None not in data.spec.values()
    for spec in (
        data.spec,
        json.loads(json.dumps(data.spec)),
        tomllib.loads(tomli_w.dumps(data.spec)),
    ):
        again = make(spec)
        assert same(data, again) and again.spec == data.spec
        assert (again.name, again.seed, again.relevant) == (data.name, data.seed, data.relevant)


def test_spec_holds_plain_values_when_numpy_integers_are_given(entry):
    spec = {key: np.int64(v) if isinstance(v, int) and not isinstance(v, bool) else v
            for key, v in entry.spec.items()}  # fmt: skip
    data = make({**spec, "n_test": np.int8(100)})
    assert {type(value) for value in data.spec.values()} <= {int, float, bool, str}
    assert same(data, entry.make(n_test=100))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.target])
def test_labels_are_the_target(name):
    case = CASES[name]
    data = make(case.spec)
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        # atan2 then cos loses a few units in the last place of a number at most 1.
        np.testing.assert_allclose(y, case.target(x), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.norm])
def test_norms_are_as_promised(name):
    case = CASES[name]
    data = make(case.spec)
    for x in (data.x_train, data.x_test):
        np.testing.assert_allclose(np.linalg.norm(x, axis=1), case.norm, rtol=1e-14)


def test_an_empty_test_set_is_allowed(entry):
    data = entry.make(n_test=0)
    assert data.x_test.shape == (0, *data.shape) and data.y_test.shape == (0,)


XOR_ARGUMENTS = "d, distinct, exact_test, n, n_test, seed"
NAMES = (
    "ball, cifar10, circle, complete, fashion_mnist, file, gaussian_mixture, parity, sphere, xor"
)

MISTAKES = [
    (3, "a data set must be a table of fields, got 3"),
    ({"d": 3}, f"a data set needs a name: allowed: {NAMES}"),
    ({"name": 3}, "the name of a data set must be a string, got 3"),
    ({"name": "xorr"}, f"unknown data set 'xorr': did you mean 'xor'? Allowed: {NAMES}"),
    (
        {"name": "arrays", "sha256": "0"},
        "a data set of arrays in memory cannot be made again from its spec: "
        "save them with numpy.savez and use name='file'",
    ),
    (
        {"name": "xor", "distnct": True},
        f"xor has no argument 'distnct': did you mean 'distinct'? Allowed: {XOR_ARGUMENTS}",
    ),
    ({"name": "xor", 3: 3}, f"xor has no argument 3: allowed: {XOR_ARGUMENTS}"),
    (
        {"name": "parity", "d": 3},
        "parity needs n, k; it takes d, n, k, seed, n_test, distinct, exact_test",
    ),
    ({"name": "file"}, "file needs path; it takes path, sha256"),
    ({"name": "xor", "d": "a"}, "d must be a whole number, got 'a'"),
    ({"name": "xor", "d": 2.5}, "d must be a whole number, got 2.5"),
    ({"name": "xor", "d": True}, "d must be a whole number, got True"),
    ({"name": "xor", "d": None}, "d must be a whole number, got None"),
    ({"name": "xor", "d": 1}, "d must be >= 2, got 1"),
    ({"name": "xor", "n": 0}, "n must be >= 1, got 0"),
    ({"name": "xor", "n": "10"}, "n must be a whole number, got '10'"),
    ({"name": "xor", "seed": -1}, "seed must be >= 0, got -1"),
    ({"name": "xor", "seed": 0.5}, "seed must be a whole number, got 0.5"),
    ({"name": "xor", "n_test": -1}, "n_test must be >= 0, got -1"),
    ({"name": "xor", "distinct": 1}, "distinct must be true or false, got 1"),
    ({"name": "xor", "exact_test": "yes"}, "exact_test must be true or false, got 'yes'"),
    (
        {"name": "xor", "d": 3, "n": 9, "distinct": True},
        "n must be <= 2^d for distinct points, got n=9, 2^d=8",
    ),
    (
        {"name": "xor", "d": 21, "exact_test": True},
        "exact_test needs d <= 20 to enumerate 2^d points, got d=21",
    ),
    (
        {"name": "xor", "n": 10**9},
        "n * d must be <= 2^31 values (16 GiB), got n=1000000000 and d=30",
    ),
    (
        {"name": "ball", "n_test": 10**9},
        "n_test * d must be <= 2^31 values (16 GiB), got n_test=1000000000 and d=10",
    ),
    ({"name": "parity", "d": 3, "n": 4, "k": 0}, "k must be >= 1, got 0"),
    ({"name": "parity", "d": 3, "n": 4, "k": 4}, "k must be <= d, got k=4, d=3"),
    ({"name": "parity", "d": 0, "n": 4, "k": 1}, "d must be >= 1, got 0"),
    ({"name": "ball", "d": 1}, "d must be >= 2, got 1"),
    ({"name": "sphere", "d": 1, "n": 3}, "d must be >= 2, got 1"),
    ({"name": "sphere", "d": 0, "n": 3, "target": "linear"}, "d must be >= 1, got 0"),
    ({"name": "sphere", "d": 3, "n": 3, "target": 1}, "target must be a name, got 1"),
    (
        {"name": "sphere", "d": 3, "n": 3, "target": "liner"},
        "unknown target 'liner': did you mean 'linear'? "
        "Allowed: abs_difference, linear, sign_product",
    ),
    ({"name": "circle", "n": 3, "d": 1}, "d must be >= 2, got 1"),
    (
        {"name": "circle", "n": 3, "target": "cosin"},
        "unknown target 'cosin': did you mean 'cosine'? Allowed: cosine, triangle",
    ),
    (
        {"name": "circle", "n": 3, "R": 2},
        "R must be 1 when d=2 (there is only the unit circle), got R=2",
    ),
    (
        {"name": "circle", "n": 3, "d": 3, "R": 1.0},
        "R must be > 1 when d > 2 (the other coordinates have norm √(R²−1)), got R=1",
    ),
    ({"name": "circle", "n": 3, "d": 3, "R": -1}, "R must be > 0, got -1"),
    ({"name": "circle", "n": 3, "d": 3, "R": "2"}, "R must be a number, got '2'"),
    ({"name": "circle", "n": 3, "d": 3, "R": float("nan")}, "R must be finite, got nan"),
    ({"name": "circle", "n": 3, "d": 3, "R": 10**400}, "R must be finite, got inf"),
    ({"name": "complete", "d": 2, "s": 3}, "d must be >= 3, got 2"),
    (
        {"name": "complete", "d": 6, "s": 4},
        "s must be >= d-1 = 5 (the differences of s points have rank at most s-1, "
        "and rank d-2 is needed), got s=4",
    ),
    (
        {"name": "complete", "d": 4, "s": 5},
        "s must be <= 2^(d-2) for distinct points, got s=5, 2^(d-2)=4",
    ),
    ({"name": "gaussian_mixture", "d": 1, "n": 3}, "d must be >= 2, got 1"),
    (
        {"name": "gaussian_mixture", "d": 2, "n": 3, "clusters": 3},
        "clusters must be 2 or 4, got 3",
    ),
    (
        {"name": "gaussian_mixture", "d": 2, "n": 3, "separation": 0},
        "separation must be > 0, got 0",
    ),
    (
        {"name": "gaussian_mixture", "d": 2, "n": 3, "separation": True},
        "separation must be a number, got True",
    ),
    ({"name": "cifar10", "n": 9}, "n must be >= 10, got 9"),
    ({"name": "cifar10", "n": 1e3 + 0.5}, "n must be a whole number, got 1000.5"),
    ({"name": "cifar10", "n_test": -1}, "n_test must be >= 0, got -1"),
    ({"name": "cifar10", "size": 12}, "size must be one of 32, 16, 8, got 12"),
    ({"name": "fashion_mnist", "size": 16}, "size must be one of 28, 14, 7, got 16"),
    (
        {"name": "cifar10", "sha256": 3},
        "sha256 must be a string of hexadecimal digits, got 3",
    ),
    (
        {"name": "cifar10", "directory": "images"},
        "cifar10 has no argument 'directory': allowed: n, n_test, sha256, size",
    ),
    ({"name": "file", "path": 3}, "path must be a path, got 3"),
    (
        {"name": "file", "path": "a.npz", "sha256": 3},
        "sha256 must be a string of hexadecimal digits, got 3",
    ),
]


@pytest.mark.parametrize(("spec", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_one_clear_line(spec, message):
    with pytest.raises(UserError) as caught:
        make(spec)
    assert str(caught.value) == message


def test_the_identity_of_what_is_no_spec():
    with pytest.raises(UserError, match=r"spec must be a mapping, as dataset\.spec is, got 3"):
        identity(3)
