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


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", ">f4"])
def test_images_keep_their_type(dtype):
    x = np.asfortranarray(np.arange(60).reshape(5, 3, 2, 2), dtype)
    data = Dataset(**{**GOOD, "x_train": x, "x_test": x[:4]})
    assert data.x_train.dtype == data.x_test.dtype == np.dtype(dtype).newbyteorder("=")
    assert data.x_train.flags.c_contiguous and not data.x_train.flags.writeable
    np.testing.assert_array_equal(data.x_train, x)
    assert (data.n, data.shape, data.d, data.outputs) == (5, (3, 2, 2), 12, 1)


@pytest.mark.parametrize(
    ("train", "test", "both"),
    [
        ("uint8", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("int16", "uint8", "float64"),
        ("bool", "bool", "float64"),
    ],
)
def test_both_parts_get_the_type_that_holds_both(train, test, both):
    shape = (4, 2, 2, 2)
    data = Dataset(
        np.ones(shape, train), np.ones(4), np.ones(shape, test), np.ones(4), "ones", 0, {}
    )
    assert data.x_train.dtype == data.x_test.dtype == both


def test_points_are_float64_and_so_are_their_squares():
    x = np.full((5, 3), 200, np.uint8)
    data = Dataset(**{**GOOD, "x_train": x, "x_test": x[:4].astype(np.float32)})
    assert data.x_train.dtype == data.x_test.dtype == np.float64
    assert (data.x_train**2).max() == 40_000


@pytest.mark.parametrize("given", [[0, 2, 1, 2, 0], [0.0, 2.0, 1.0, 2.0, 0.0]])
def test_classes_are_integers(given):
    data = Dataset(**{**GOOD, "y_train": given, "classes": np.int8(3)})
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    assert data.y_train.tolist() == given
    assert data.outputs == data.classes == 3 and type(data.classes) is int


def test_several_targets_for_each_example():
    data = Dataset(**{**GOOD, "y_train": np.ones((5, 4), int), "y_test": np.ones((4, 4))})
    assert data.outputs == 4 and data.y_train.dtype == np.float64


def test_a_part_of_a_data_set_is_not_copied_again():
    data = Dataset(**GOOD)
    assert dataclasses.replace(data, name="other").x_train is data.x_train


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
    (
        {"x_train": np.ones(5)},
        "x_train must have shape (n, d), or (n, channels, height, width) for images, "
        "got shape (5,)",
    ),
    (
        {"x_train": 1.0},
        "x_train must have shape (n, d), or (n, channels, height, width) for images, got shape ()",
    ),
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
        "y_train must have shape (5,) or (5, k) with k >= 2, one label for each row of x_train, "
        "got shape (4,)",
    ),
    (
        {"y_train": np.ones((5, 1))},
        "y_train must have shape (5,) or (5, k) with k >= 2, one label for each row of x_train, "
        "got shape (5, 1)",
    ),
    (
        {"y_train": 1.0},
        "y_train must have shape (5,) or (5, k) with k >= 2, one label for each row of x_train, "
        "got shape ()",
    ),
    (
        {"y_train": np.ones((5, 2))},
        "y_test must have shape (4, 2), one label for each row of x_test, got shape (4,)",
    ),
    (
        {"y_train": np.ones((5, 2)), "classes": 3},
        "y_train must have shape (5,), one label for each row of x_train, got shape (5, 2)",
    ),
    ({"classes": 1}, "classes must be >= 2, got 1"),
    ({"classes": 2.5}, "classes must be a whole number, got 2.5"),
    (
        {"y_train": [0, 1, 2, 3, 1], "classes": 3},
        "y_train[3] is 3: with classes=3 every label must be a whole number from 0 to 2",
    ),
    (
        {"y_test": [0, -1, 2, 1], "classes": 3},
        "y_test[1] is -1: with classes=3 every label must be a whole number from 0 to 2",
    ),
    (
        {"y_train": holding(0.5, 5, 2), "classes": 3},
        "y_train[2] is 0.5: with classes=3 every label must be a whole number from 0 to 2",
    ),
    (
        {"y_train": holding(np.nan, 5, 2), "classes": 3},
        "y_train[2] is nan: every value must be finite",
    ),
    (
        {"x_test": np.ones((4, 2))},
        "x_test must have shape (n_test, 3) like x_train, got shape (4, 2)",
    ),
    (
        {"x_test": np.ones(3)},
        "x_test must have shape (n_test, 3) like x_train, got shape (3,)",
    ),
    ({"x_test": 1.0}, "x_test must have shape (n_test, 3) like x_train, got shape ()"),
    (
        {"x_train": np.ones((5, 3, 8, 8), np.uint8), "x_test": np.ones((4, 3, 8, 9), np.uint8)},
        "x_test must have shape (n_test, 3, 8, 8) like x_train, got shape (4, 3, 8, 9)",
    ),
    (
        {
            "x_train": holding(np.nan, (5, 1, 2, 2), (4, 0, 1, 0)).astype(np.float32),
            "x_test": np.ones((4, 1, 2, 2)),
        },
        "x_train[4, 0, 1, 0] is nan: every value must be finite",
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


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (
            {"x_train": np.ones((5, 1, 2, 2)), "x_test": np.ones((4, 1, 2, 2))},
            "inputs of shape (5, 1, 2, 2) and labels of shape (5,)",
        ),
        ({"classes": 2}, "inputs of shape (5, 3) and labels of 2 classes"),
        (
            {"y_train": np.ones((5, 2)), "y_test": np.ones((4, 2))},
            "inputs of shape (5, 3) and labels of shape (5, 2)",
        ),
    ],
)
def test_a_caller_that_needs_points_with_real_labels_says_so(change, got):
    Dataset(**GOOD).require_points("trace")
    with pytest.raises(UserError) as caught:
        Dataset(**{**GOOD, **change}).require_points("trace")
    assert str(caught.value) == (
        f"trace needs inputs of shape (n, d) and real labels of shape (n,), got {got}"
    )
