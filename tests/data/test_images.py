import numpy as np
import pytest

from flatlab.data import images
from flatlab.errors import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    for name, shape in (("cifar10", (6, 32, 32, 3)), ("fashion_mnist", (6, 28, 28))):
        arrays = {
            f"{part}_{split}": value
            for split in ("train", "test")
            for part, value in (
                ("x", draw.integers(0, 256, shape, dtype=np.uint8)),
                ("y", np.arange(6, dtype=np.uint8)),
            )
        }
        np.savez(tmp_path / f"{name}_subset.npz", **arrays)
    monkeypatch.setenv("FLATLAB_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "shape"), [("cifar10", (3, 32, 32)), ("fashion_mnist", (1, 28, 28))]
)
def test_channels_come_first_and_pixels_lie_between_0_and_1(folder, name, shape):
    x, y = images(name, n=4, split="test")
    assert (x.shape, x.dtype, y.dtype) == ((4, *shape), np.float32, np.int64)
    stored = np.load(folder / f"{name}_subset.npz")["x_test"].reshape(6, *shape[1:], -1)
    assert x[2, -1, 5, 7] == np.float32(stored[2, 5, 7, -1]) / np.float32(255)
    assert y.tolist() == [0, 1, 2, 3]
    assert len(images(name, directory=folder)[0]) == 6


def test_mistakes(folder, monkeypatch):
    for call, says in (
        (lambda: images("mnist"), "unknown image set 'mnist'"),
        (lambda: images("cifar10", split="tset"), "unknown split"),
        (lambda: images("cifar10", n=7), "got 7 .it has 6."),
        (lambda: images("cifar10", n=0), "n must be between 1"),
        (lambda: images("cifar10", directory=folder / "no"), "does not exist"),
    ):
        with pytest.raises(UserError, match=says):
            call()
    monkeypatch.delenv("FLATLAB_DATA")
    with pytest.raises(UserError, match="set FLATLAB_DATA"):
        images("cifar10")
