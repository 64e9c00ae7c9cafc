from __future__ import annotations

import os
import zipfile

import numpy as np
import pytest
import torch

import flatlab as fl
from flatlab.data import from_arrays, identity, load, make, xor
from flatlab.data.arrays import as_dataset
from flatlab.errors import UserError

KEYS = ("x_train", "y_train", "x_test", "y_test")
NEEDS = "an .npz with x_train, y_train, x_test, y_test is needed"

POINTS_OR_IMAGES = "x_train must have shape (n, d), or (n, channels, height, width) for images"


def arrays(**changes):
    rng = np.random.default_rng(0)
    made = {
        "x_train": rng.normal(size=(6, 3)),
        "y_train": rng.normal(size=6),
        "x_test": rng.normal(size=(4, 3)),
        "y_test": rng.normal(size=4),
    }
    return {**made, **changes}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays())
    return path


def test_from_arrays_keeps_the_values():
    given = arrays()
    data = from_arrays(**given, name="mine")
    for key in KEYS:
        np.testing.assert_array_equal(getattr(data, key), given[key])
    assert data.name == data.spec["label"] == "mine" and data.spec["name"] == "arrays"
    assert data.relevant == () and len(data.spec["sha256"]) == 64


def test_without_test_arrays_the_test_set_is_empty():
    data = from_arrays([[1, 2], [3, 4]], [0, 1])
    assert data.x_test.shape == (0, 2) and data.y_test.shape == (0,)


def test_the_digest_is_of_the_content():
    digest = from_arrays(**arrays(), name="a").spec["sha256"]
    assert digest == from_arrays(**arrays(), name="b").spec["sha256"]
    fortran = arrays(x_train=np.asfortranarray(arrays()["x_train"]))
    assert digest == from_arrays(**fortran).spec["sha256"]
    for key in KEYS:
        changed = arrays()
        changed[key] = changed[key].copy()
        changed[key].flat[0] = np.nextafter(changed[key].flat[0], 10)
        assert digest != from_arrays(**changed).spec["sha256"], key


def test_runs_on_points_keep_their_names():
    """These digests were made before a data set could be anything but float64 points."""
    x, y = np.arange(6.0).reshape(3, 2), [1, -1, 1]
    for given, digest in (
        ((x, y), "6e6250b0cc99a62f2b1377b6b7994f9afe6fae77fd4bfb34f1c704aafcd54186"),
        (
            (x.astype(np.float32), y, np.ones((1, 2)), [2]),
            "a132f86afea96a42a1e47379e0d4568a1c16b4ef3c2fa716c41aee7e9764ba35",
        ),
    ):
        assert from_arrays(*given).spec["sha256"] == digest


def photos(dtype, **changes):
    x = np.arange(6 * 12).reshape(6, 3, 2, 2).astype(dtype)
    made = {"x_train": x, "y_train": [0, 1, 2] * 2, "x_test": x[:4], "y_test": [0, 1, 2, 0]}
    return {**made, **changes}


def test_the_digest_knows_types_classes_and_shapes():
    flat = {key: photos("uint8")[key].reshape(-1, 12) for key in ("x_train", "x_test")}
    sets = [
        *(photos(dtype) for dtype in ("uint8", "float32", "float64")),
        *(photos("uint8", classes=classes) for classes in (3, 4)),
        photos("uint8", **flat),
    ]
    assert len({from_arrays(**given).spec["sha256"] for given in sets}) == len(sets)
    swapped = photos(">f4")
    assert from_arrays(**swapped).spec["sha256"] == from_arrays(**photos("f4")).spec["sha256"]


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("classes", [None, 3])
def test_images_with_and_without_classes_survive_a_file(tmp_path, dtype, classes):
    given = photos(dtype) if classes is None else photos(dtype, classes=classes)
    np.savez(tmp_path / "photos.npz", **given)
    data = make({"name": "file", "path": str(tmp_path / "photos.npz")})
    assert (data.x_train.dtype, data.shape, data.classes) == (dtype, (3, 2, 2), classes)
    assert data.y_train.dtype == (np.float64 if classes is None else np.int64)
    assert make(data.spec).spec == data.spec
    own = fl.data.arrays(**given)
    assert own.spec["sha256"] == data.spec["sha256"]
    assert all(np.array_equal(getattr(data, key), getattr(own, key)) for key in KEYS)


def test_without_test_images_the_test_set_is_empty_and_of_the_same_type():
    given = photos("uint8", classes=3, x_test=None, y_test=None)
    data = fl.data.arrays(**given)
    assert data.x_test.shape == (0, 3, 2, 2) and data.x_test.dtype == np.uint8
    assert data.y_test.shape == (0,) and data.y_test.dtype == np.int64
    several = fl.data.arrays(np.ones((3, 2)), np.ones((3, 4)))
    assert several.y_test.shape == (0, 4)


def test_a_file_is_the_same_wherever_it_is(file, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    moved = file.rename(tmp_path / "elsewhere" / "mine.npz")
    there = load(moved).spec
    moved.rename(file)
    here = load(file).spec
    assert here != there and identity(here) == identity(there)
    assert identity(here) == {"name": "file", "sha256": here["sha256"]}


def test_without_a_digest_the_path_is_all_that_is_known():
    for spec in ({"name": "file", "path": "a.npz"}, {"name": "xor", "d": 3}):
        assert identity(spec) == spec and identity(spec) is not spec


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None}, "give both x_test and y_test or neither, got only y_test"),
        ({"y_test": None}, "give both x_test and y_test or neither, got only x_test"),
        ({"x_train": [1.0, 2.0]}, f"{POINTS_OR_IMAGES}, got shape (2,)"),
        (
            {"x_train": [1.0], "x_test": None, "y_test": None},
            f"{POINTS_OR_IMAGES}, got shape (1,)",
        ),
        ({"x_train": [{}] * 6}, "x_train must hold real numbers, got dtype object"),
        (
            {"x_train": [{}] * 6, "x_test": None, "y_test": None},
            "x_train must hold real numbers, got dtype object",
        ),
        ({"classes": "3"}, "classes must be a whole number, got '3'"),
        ({"y_train": ["a"] * 6}, "y_train must hold real numbers, got dtype <U1"),
        ({"y_train": [np.nan] * 6}, "y_train[0] is nan: every value must be finite"),
        ({"name": 3}, "name must be a string, got 3"),
    ],
)
def test_from_arrays_refuses(changes, message):
    with pytest.raises(UserError) as caught:
        from_arrays(**arrays(**changes))
    assert str(caught.value) == message


def test_load_reads_what_savez_wrote(file):
    data, given = load(file), arrays()
    for key in KEYS:
        np.testing.assert_array_equal(getattr(data, key), given[key])
    assert data.name == "mine"
    assert data.spec["path"] == str(file) and data.spec["name"] == "file"
    assert data.spec["sha256"] == from_arrays(**given).spec["sha256"]


def test_a_generated_data_set_survives_a_file(tmp_path):
    data = xor(d=5, n=9, n_test=20)
    np.savez_compressed(tmp_path / "xor.npz", **{key: getattr(data, key) for key in KEYS})
    again = load(tmp_path / "xor.npz")
    assert all(np.array_equal(getattr(data, key), getattr(again, key)) for key in KEYS)


def test_a_relative_path_becomes_absolute(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert load("mine.npz").spec["path"] == str(file)


def test_the_spec_of_a_file_makes_it_again(file):
    data = load(file)
    again = make(data.spec)
    assert again.spec == data.spec
    assert all(np.array_equal(getattr(data, key), getattr(again, key)) for key in KEYS)
    assert make({"name": "file", "path": str(file)}).spec == data.spec


def test_the_digest_survives_compression_and_notices_a_change(file):
    spec = load(file).spec
    np.savez_compressed(file, **arrays())
    assert make(spec).spec == spec
    np.savez(file, **arrays(y_train=np.zeros(6)))
    now = load(file).spec["sha256"]
    with pytest.raises(UserError) as caught:
        make(spec)
    assert str(caught.value) == (
        f"{file}: content changed, sha256 is {now[:12]}… and {spec['sha256'][:12]}… was expected: "
        "restore the file, or drop sha256 to accept it"
    )


def write_text(path):
    path.write_text("x,y\n1,2\n")


def write_nothing(path):
    path.write_bytes(b"")


def write_npy(path):
    with path.open("wb") as stream:
        np.save(stream, np.ones(3))


def write_other_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")


def save(**changes):
    def write(path):
        made = {key: value for key, value in arrays(**changes).items() if value is not None}
        np.savez(path, **made)

    return write


def write_bytes_members(path):
    with zipfile.ZipFile(path, "w") as archive:
        for key in KEYS:
            archive.writestr(f"{key}", "hello")


BAD_FILES = [
    (lambda path: None, "no such file"),
    (write_text, f"not an .npz file: {NEEDS}"),
    (write_nothing, f"not an .npz file: {NEEDS}"),
    (write_npy, f"not an .npz file: {NEEDS}"),
    (write_other_zip, f"lacks x_train, y_train, x_test, y_test: {NEEDS}"),
    (save(y_test=None), f"lacks y_test: {NEEDS}"),
    (
        save(y_train=np.array([None] * 6)),
        "cannot be read (Object arrays cannot be loaded when allow_pickle=False): "
        f"{NEEDS}, all of plain numbers",
    ),
    (save(x_train=np.ones((6, 3)) * 1j), "x_train must hold real numbers, got dtype complex128"),
    (save(y_train=np.array(["a"] * 6)), "y_train must hold real numbers, got dtype <U1"),
    (save(classes=[3, 3]), "classes must be a whole number, got [3, 3]"),
    (save(classes=2.5), "classes must be a whole number, got 2.5"),
    (
        save(classes=3),
        "y_train[0] is 0.4116305363741328: with classes=3 "
        "every label must be a whole number from 0 to 2",
    ),
    (write_bytes_members, "x_train must hold real numbers, got dtype |S5"),
    (
        save(x_train=np.full((6, 3), np.inf)),
        "x_train[0, 0] is inf: every value must be finite",
    ),
    (
        save(y_test=np.ones(3)),
        "y_test must have shape (4,), one label for each row of x_test, got shape (3,)",
    ),
]


@pytest.mark.parametrize(("write", "message"), BAD_FILES, ids=[line for _, line in BAD_FILES])
def test_a_bad_file_is_one_clear_line(tmp_path, write, message):
    path = tmp_path / "bad.npz"
    write(path)
    with pytest.raises(UserError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: {message}"


def test_a_directory_a_truncated_and_a_damaged_file_are_user_errors(file, tmp_path):
    with pytest.raises(UserError, match=r"cannot be read \(.*directory"):
        load(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"not an \.npz file"):
        load(file)
    damaged = bytearray(content)
    damaged[200] ^= 0xFF  # inside the first array's data: the archive's CRC notices
    file.write_bytes(damaged)
    with pytest.raises(UserError, match=r"cannot be read \(Bad CRC-32"):
        load(file)
    with pytest.raises(UserError, match="null character"):
        load("a\0b.npz")


def test_a_file_that_has_moved_is_found_by_its_name_and_content(tmp_path, monkeypatch):
    """As the file of a run on another machine; a path that a user types is taken as it is."""
    x, y = np.eye(3), np.ones(3)
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    np.savez(old / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    first = load(old / "mine.npz")
    os.rename(old / "mine.npz", new / "mine.npz")
    monkeypatch.delenv("FLATLAB_DATA", raising=False)
    with pytest.raises(UserError, match=r"no such file, and FLATLAB_DATA is not set: set FLATLAB_"):
        make(first.spec)
    monkeypatch.setenv("FLATLAB_DATA", str(old))
    said = rf"{old}/mine.npz: no such file, nor {old}/mine.npz: set FLATLAB_DATA to the folder that"
    with pytest.raises(UserError, match=said):
        make(first.spec)
    monkeypatch.setenv("FLATLAB_DATA", str(new))
    assert make(first.spec).spec == {**first.spec, "path": str(new / "mine.npz")}
    with pytest.raises(UserError, match=r"no such file$"):
        load(old / "mine.npz")
    np.savez(new / "mine.npz", x_train=x, y_train=-y, x_test=x, y_test=y)
    with pytest.raises(UserError, match=rf"{new}/mine.npz: content changed"):
        make(first.spec)


def tensors():
    whole = torch.tensor([[1.0, 2.0], [0.5, -1.0]])
    return {
        "bfloat16": whole.bfloat16(),
        "sparse": whole.to_sparse(),
        "csr": whole.to_sparse_csr(),
        "neg": torch.complex(whole, -whole).conj().imag,
        "grad": whole.clone().requires_grad_(),
    }


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("kind", ["bfloat16", "sparse", "csr", "neg", "grad"])
def test_tensors_of_every_kind_are_their_values(kind):
    x = tensors()[kind]
    for data in (as_dataset((x, [0, 1])), from_arrays(x, [0, 1])):
        assert data.x_train.tolist() == [[1.0, 2.0], [0.5, -1.0]]


@pytest.mark.parametrize(
    "x, y, classes, message",
    [
        (torch.ones(2, 2, device="meta"), [0, 1], False, "x_train is a tensor on the device 'met"),
        (torch.ones(2, 2) * 1j, [0, 1], False, "x_train must hold real numbers, got dtype complex"),
        ((torch.ones(2, 2) * 1j).conj(), [0, 1], False, "x_train must hold real numbers, got dt"),
        (np.ma.masked_less(np.eye(2), 1), [0, 1], False, r"x_train\[0, 1\] is masked: fill masked"),
        (np.eye(2), np.ma.masked_equal([0, 1], 1), True, r"y_train\[1\] is masked: fill masked"),
        (np.eye(2), [0, 9e9], True, "labels must be classes from 0 to .*, and these reach 9e.09"),
        (np.eye(2), None, True, "y_train must hold real numbers, got dtype object"),
    ],
)
def test_values_that_are_not_there_are_refused_in_one_line(x, y, classes, message):
    with pytest.raises(UserError, match=f"^{message}") as caught:
        as_dataset((x, y), classes)
    assert "\n" not in str(caught.value)


def test_a_mask_that_hides_nothing_is_taken():
    assert as_dataset((np.ma.array(np.eye(2)), [0, 1])).n == 2
