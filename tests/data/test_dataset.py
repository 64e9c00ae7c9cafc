from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flatlab.data import Dataset
from flatlab.errors import UserError

GOOD = {
    "x_train": np.ones((5, 3)),
    "y_train": np.ones(5),
    "x_test": np.ones((4, 3)),
    "y_test": np.ones(4),
    "name": "ones",
    "seed": 0,
    "spec": {"name": "ones"},
    "relevant": (0, 2),
}


def test_a_good_data_set_has_its_sizes():
    data = Dataset(**GOOD)
    assert (data.n, data.d) == (5, 3)


def test_arrays_are_copies():
    x = np.ones((5, 3))
    data = Dataset(**{**GOOD, "x_train": x})
    x[0, 0] = 7
    assert data.x_train[0, 0] == 1


def test_other_dtypes_and_orders_become_contiguous_float64():
    x = np.asfortranarray(np.arange(15, dtype=np.int32).reshape(5, 3))
    data = Dataset(**{**GOOD, "x_train": x, "y_train": [True, False, True, False, True]})
    assert data.x_train.dtype == np.float64 and data.x_train.flags.c_contiguous
    np.testing.assert_array_equal(data.x_train, x)
    np.testing.assert_array_equal(data.y_train, [1, 0, 1, 0, 1])


def test_frozen_and_compared_by_identity():
    data = Dataset(**GOOD)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"
    assert data == data and data != Dataset(**GOOD)


def test_the_spec_is_a_copy():
    spec = {"name": "ones"}
    data = Dataset(**{**GOOD, "spec": spec})
    spec["name"] = "changed"
    assert data.spec == {"name": "ones"}


def holding(value, shape, index):
    array = np.ones(shape)
    array[index] = value
    return array


MISTAKES = [
    ({"x_train": np.ones(5)}, "x_train must be 2-D (n, d), got shape (5,)"),
    (
        {"x_train": np.ones((0, 3)), "y_train": []},
        "x_train must hold at least one example and one coordinate, got shape (0, 3)",
    ),
    (
        {"x_train": np.ones((5, 0))},
        "x_train must hold at least one example and one coordinate, got shape (5, 0)",
    ),
    (
        {"y_train": np.ones(4)},
        "y_train must have shape (5,), one label for each row of x_train, got shape (4,)",
    ),
    (
        {"y_train": np.ones((5, 1))},
        "y_train must have shape (5,), one label for each row of x_train, got shape (5, 1)",
    ),
    (
        {"x_test": np.ones((4, 2))},
        "x_test must be 2-D with the 3 columns of x_train, got shape (4, 2)",
    ),
    (
        {"x_test": np.ones(3)},
        "x_test must be 2-D with the 3 columns of x_train, got shape (3,)",
    ),
    (
        {"y_test": np.ones(5)},
        "y_test must have shape (4,), one label for each row of x_test, got shape (5,)",
    ),
    (
        {"x_train": holding(np.nan, (5, 3), (4, 1))},
        "x_train[4, 1] is nan: every value must be finite",
    ),
    ({"y_test": holding(-np.inf, 4, 2)}, "y_test[2] is -inf: every value must be finite"),
    ({"x_train": np.ones((5, 3)) * 1j}, "x_train must hold real numbers, got dtype complex128"),
    ({"y_train": list("abcde")}, "y_train must hold real numbers, got dtype <U1"),
    ({"y_train": [None] * 5}, "y_train must hold real numbers, got dtype object"),
    ({"spec": {"name": "ones", "R": None}}, "spec['R'] must be a plain value, got None"),
    ({"spec": {"name": "ones", "R": np.nan}}, "spec['R'] must be finite, got nan"),
    ({"relevant": (3,)}, "relevant must lie in 0..2, got 3"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_one_clear_line(change, message):
    with pytest.raises(UserError) as caught:
        Dataset(**{**GOOD, **change})
    assert str(caught.value) == message


def test_a_ragged_list_is_a_user_error_of_one_line():
    with pytest.raises(UserError, match=r"^x_train is not an array: .*inhomogeneous.*$"):
        Dataset(**{**GOOD, "x_train": [[1, 2], [3]]})
