from __future__ import annotations

import sys

import numpy as np
import pytest

from flatlab.cli.from_flags import data_spec
from flatlab.data import images, make
from flatlab.errors import UserError

SHAPES = {"cifar10": (32, 32, 3), "fashion_mnist": (28, 28)}
SIZES = {"cifar10": 16, "fashion_mnist": 7}
DIGESTS = {
    "cifar10": "cbc6f3d368d3e4d873a326ace1f369455394ba84340274406d073b0ea6b839d6",
    "fashion_mnist": "5d0b416202fce7ba1bae777d32c7b6d16abd0ee5880cd20742291e68c1dd5a1a",
}
LABELS = np.arange(60, dtype=np.uint8)[::-1] % 10  # 9, 8, …, 0, six times


@pytest.fixture(params=SHAPES)
def name(request):
    return request.param


def stored(name, **changes):
    shape, draw = SHAPES[name], np.random.default_rng(0)
    made = {
        "x_train": draw.integers(0, 256, (60, *shape), dtype=np.uint8),
        "y_train": LABELS,
        "x_test": draw.integers(0, 256, (30, *shape), dtype=np.uint8),
        "y_test": LABELS[:30],
    }
    return {**made, **changes}


def save(folder, name, **changes):
    np.savez(folder / f"{name}_subset.npz", **stored(name, **changes))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in SHAPES:
        save(tmp_path, name)
    monkeypatch.setenv("FLATLAB_DATA", str(tmp_path))
    return tmp_path


def by_hand(name, rows, test_rows, size=None):
    """Return the training and test images with every step written out in float64."""
    arrays = stored(name)
    pair = []
    for key, chosen in (("x_train", rows), ("x_test", test_rows)):
        x = arrays[key][chosen].astype(float).reshape(len(chosen), *SHAPES[name][:2], -1)
        x = np.moveaxis(x, -1, 1)
        if size is not None:
            width = x.shape[-1] // size
            corners = [x[..., i::width, j::width] for i in range(width) for j in range(width)]
            x = np.mean(corners, axis=0)
        pair.append(x)
    train, test = pair
    mean, std = (f(train, axis=(0, 2, 3), keepdims=True) for f in (np.mean, np.std))
    return (train - mean) / std, (test - mean) / std


@pytest.mark.parametrize("pooled", [False, True])
def test_images_are_balanced_pooled_and_standardised(folder, name, pooled):
    size = SIZES[name] if pooled else None
    data = images(name, n=23, n_test=12, size=size)
    # Two of each class are the first 20 rows; the third of classes 2, 1 and 0 are rows 27 to 29.
    rows, test_rows = [*range(20), 27, 28, 29], [*range(10), 18, 19]
    train, test = by_hand(name, rows, test_rows, size)
    # Numbers below 4 in float32, and the mean and deviation of the oracle have rounding errors.
    np.testing.assert_allclose(data.x_train, train, rtol=0, atol=1e-6)
    np.testing.assert_allclose(data.x_test, test, rtol=0, atol=1e-6)
    assert data.y_train.tolist() == LABELS[rows].tolist()
    assert data.y_test.tolist() == LABELS[test_rows].tolist()
    side = size or SHAPES[name][0]
    assert data.shape == (3 if name == "cifar10" else 1, side, side)
    assert data.classes == data.outputs == 10 and data.x_train.dtype == np.float32


def test_everything_in_the_file_is_the_default(folder, name):
    data = images(name)
    assert (data.n, len(data.x_test)) == (60, 30)
    assert set(data.spec) == {"name", "sha256"}
    assert images(name, n=60, n_test=30).spec["sha256"] == data.spec["sha256"]


def test_a_set_need_not_be_balanced_as_a_whole(folder):
    save(folder, "cifar10", y_train=np.where(LABELS == 4, 3, LABELS).astype(np.uint8))
    assert np.bincount(images("cifar10").y_train)[3:5].tolist() == [12, 0]
    with pytest.raises(UserError, match="n must be <= 4 for classes of equal size, got 10"):
        images("cifar10", n=10)


def test_the_spec_names_what_was_given_and_never_the_folder(folder, name, monkeypatch):
    size = SIZES[name]
    data = images(name, n=20, n_test=10, size=size)
    assert list(data.spec) == ["name", "n", "n_test", "size", "sha256"]
    assert make(data.spec).spec == data.spec
    assert "size" not in images(name, size=SHAPES[name][0]).spec  # the original side is no pooling
    monkeypatch.delenv("FLATLAB_DATA")
    assert images(name, 20, 10, size, directory=folder).spec == data.spec
    assert images(name, 20, 10, size, data.spec["sha256"].upper(), folder).spec == data.spec


def test_the_flag_of_the_command_line(folder):
    data = make(data_spec("cifar10:n=20,n_test=10,size=8"))
    assert data.x_train.shape == (20, 3, 8, 8) and len(data.x_test) == 10


def test_changed_pixels_are_noticed(folder, name):
    spec = images(name, n=20).spec
    x = stored(name)["x_train"]
    x[0, 0, 0] ^= 1
    save(folder, name, x_train=x)
    now = images(name, n=20).spec["sha256"]
    with pytest.raises(UserError) as caught:
        make(spec)
    assert str(caught.value) == (
        f"{name} in {folder}: content changed, sha256 is {now[:12]}… and {spec['sha256'][:12]}… "
        "was expected: restore the file, or drop sha256 to accept it"
    )


def test_a_constant_channel_is_only_shifted(folder):
    save(folder, "fashion_mnist", x_train=np.full((60, 28, 28), 7, np.uint8))
    data = images("fashion_mnist")
    assert not data.x_train.any()
    pixels = stored("fashion_mnist")["x_test"].astype(float)
    np.testing.assert_array_equal(data.x_test[:, 0], pixels - 7)


MISTAKES = [
    (
        lambda folder: images("mnist"),
        "unknown image set 'mnist': did you mean 'fashion_mnist'? Allowed: cifar10, fashion_mnist",
    ),
    (lambda folder: images(3), "image set must be a name, got 3"),
    (
        lambda folder: images("cifar10", n=61),
        "n must be <= 60 for classes of equal size, got 61: {folder}/cifar10_subset.npz is a part "
        "of the set; `flatlab data get cifar10 --to {folder}` downloads all 50,000 training and "
        "10,000 test images",
    ),
    (
        lambda folder: images("fashion_mnist", n_test=31),
        "n_test must be <= 30 for classes of equal size, got 31: {folder}/fashion_mnist_subset.npz "
        "is a part of the set; `flatlab data get fashion_mnist --to {folder}` downloads all 60,000 "
        "training and 10,000 test images",
    ),
    (
        lambda folder: images("cifar10", directory=folder / "no"),
        "the data folder {folder}/no does not exist: name one that holds data sets",
    ),
]
BAD_FILES = [
    ({"x_train": np.zeros((60, 32, 32, 3))}, "x_train must hold uint8, got dtype float64"),
    (
        {"x_test": np.zeros((30, 32, 32, 4), np.uint8)},
        "x_test must have shape (30, 32, 32, 3), got shape (30, 32, 32, 4)",
    ),
    (
        {"y_train": LABELS[:59]},
        "x_train must have shape (59, 32, 32, 3), got shape (60, 32, 32, 3)",
    ),
    ({"y_train": LABELS[:, None]}, "y_train must have shape (n,), got shape (60, 1)"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[line for _, line in MISTAKES])
def test_a_mistake_is_one_clear_line(folder, call, message):
    with pytest.raises(UserError) as caught:
        call(folder)
    assert str(caught.value) == message.format(folder=folder)


@pytest.mark.parametrize(("changes", "message"), BAD_FILES, ids=[line for _, line in BAD_FILES])
def test_a_bad_file_is_one_clear_line(folder, changes, message):
    save(folder, "cifar10", **changes)
    with pytest.raises(UserError) as caught:
        images("cifar10")
    assert str(caught.value) == f"{folder}/cifar10_subset.npz: {message}"


def test_a_label_beyond_the_classes_and_a_damaged_file_are_refused(folder):
    save(folder, "cifar10", y_train=np.where(np.arange(60) == 50, 10, LABELS).astype(np.uint8))
    said = r"cifar10_subset\.npz: y_train: label 50 is 10: every label must be from 0 to 9"
    with pytest.raises(UserError, match=said):
        images("cifar10")
    (folder / "cifar10_subset.npz").write_bytes(b"")
    with pytest.raises(UserError, match=r"cifar10_subset\.npz: not an \.npz file"):
        images("cifar10")


def test_blocks_do_not_change_the_bits(folder, monkeypatch):
    expected = images("cifar10")
    monkeypatch.setattr(sys.modules["flatlab.data.images"], "BLOCK", 7)
    found = images("cifar10")
    assert found.x_train.tobytes() == expected.x_train.tobytes()
    assert found.x_test.tobytes() == expected.x_test.tobytes()


def test_runs_on_images_keep_their_names(folder):
    """These digests were made when the subsets were the only form."""
    assert images("cifar10", n=20, n_test=10).spec["sha256"] == DIGESTS["cifar10"]
    assert images("fashion_mnist").spec["sha256"] == DIGESTS["fashion_mnist"]
