"""Every form of an image set gives the same images; what is not whole is one clear line."""

from __future__ import annotations

import gzip
import os
import re

import numpy as np
import pytest

import images_for_tests as given
from flatlab.data import checking, images, make, places, sources
from flatlab.data.forms import FORMS
from flatlab.data.sets import SETS
from flatlab.errors import UserError

WRITERS = {
    "binary": ("cifar10", given.binary),
    "pickles": ("cifar10", given.pickles),
    "pickles of Python 2": (
        "cifar10",
        lambda folder: given.pickles(folder, given.python2_pickle),
    ),
    "PNG strips": ("cifar10", given.strips),
    "idx": ("fashion_mnist", given.plain_idx),
    "idx, compressed": ("fashion_mnist", given.zipped_idx),
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    given.tiny_sets(monkeypatch)
    monkeypatch.delenv("FLATLAB_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_every_form_has_a_case():
    forms = {form.name for group in FORMS.values() for form in group}
    assert forms <= {*WRITERS} and FORMS.keys() == SETS.keys()


@pytest.mark.parametrize("form", WRITERS)
def test_every_form_gives_the_published_images(tmp_path, form):
    name, write = WRITERS[form]
    write(tmp_path)
    (source,) = sources.find(SETS[name], [tmp_path])
    x, y, x_test, y_test = source.read()
    if name == "cifar10":
        flat = np.concatenate([pixels for _, pixels in given.BATCHES.values()])
        expected = flat.reshape(-1, 3, 32, 32)
    else:
        expected = np.concatenate(
            [
                np.frombuffer(given.FASHION[f"{split}-images-idx3-ubyte"], np.uint8, offset=16)
                for split in ("train", "t10k")
            ]
        ).reshape(-1, 1, 28, 28)
    np.testing.assert_array_equal(np.concatenate([x, x_test]), expected)
    assert y.tolist() == [*range(10)] * (len(x) // 10) and y_test.tolist() == [*range(10)] * 2
    found = checking.checked(source)
    assert found.whole and (found.train, found.test) == (len(x), len(x_test))
    assert found.form in form and {file["sha256"] for file in found.files} == {
        file.sha256 for file in SETS[name].files
    }


@pytest.mark.parametrize("name", given.CONTENT)
def test_the_digest_is_of_the_images_and_not_of_the_form(tmp_path, name):
    specs = set()
    for k, (form, write) in enumerate(WRITERS.values()):
        if form == name:
            (tmp_path / str(k)).mkdir()
            write(tmp_path / str(k))
            specs.add(images(name, 20, 10, directory=tmp_path / str(k)).spec["sha256"])
    given.subset(tmp_path / "subset", name)
    specs.add(images(name, 20, 10, directory=tmp_path / "subset").spec["sha256"])
    assert len(specs) == 1


def test_the_whole_set_is_preferred_and_a_subset_is_found_by_its_digest(tmp_path):
    given.subset(tmp_path, "cifar10")
    spec = images("cifar10", directory=tmp_path).spec
    given.binary(tmp_path)
    assert images("cifar10", directory=tmp_path).n == 100
    again = images("cifar10", sha256=spec["sha256"], directory=tmp_path)
    assert again.n == 20 and again.spec == spec
    with pytest.raises(
        UserError, match=r"cifar-10-batches-bin: content changed, sha256 is .* and 0"
    ):
        images("cifar10", sha256="0" * 64, directory=tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").unlink()
    assert images("cifar10", sha256=spec["sha256"], directory=tmp_path).n == 20


def test_a_complete_form_is_read_before_an_incomplete_one(tmp_path):
    given.pickles(tmp_path)
    (given.binary(tmp_path) / "test_batch.bin").unlink()
    assert [source.title for source in sources.find(SETS["cifar10"], [tmp_path])] == [
        "pickles",
        "binary",
    ]
    assert images("cifar10", directory=tmp_path).n == 100


# Where data are looked for


def test_the_variable_comes_before_the_cache(tmp_path, monkeypatch):
    given.binary(places.cache())
    assert places.cache() == tmp_path / "cache" / "flatlab"
    assert make({"name": "cifar10"}).n == 100
    monkeypatch.setenv("FLATLAB_DATA", str(given.subset(tmp_path / "mine", "cifar10")))
    assert make({"name": "cifar10"}).n == 20
    assert (
        make(
            {
                "name": "cifar10",
                "sha256": images("cifar10", directory=places.cache()).spec["sha256"],
            }
        ).n
        == 100
    )
    monkeypatch.setenv("FLATLAB_DATA", str(tmp_path))
    assert make({"name": "cifar10"}).n == 100  # nothing is there, so the cache is used


def test_the_cache_is_at_home_unless_xdg_says_otherwise(monkeypatch):
    for value in (None, "", "relative/path"):
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        if value is not None:
            monkeypatch.setenv("XDG_CACHE_HOME", value)
        monkeypatch.setenv("HOME", "/home/me")
        assert str(places.cache()) == "/home/me/.cache/flatlab" == str(places.home())


def test_without_a_home_the_variable_is_enough(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(UserError, match="this user has no home folder for a cache: set FLATLAB_D"):
        make({"name": "cifar10"})
    monkeypatch.setenv("FLATLAB_DATA", str(tmp_path))
    given.binary(tmp_path)
    assert make({"name": "cifar10"}).n == 100


def test_a_set_that_is_not_there_names_the_command(tmp_path, monkeypatch):
    def line():
        with pytest.raises(UserError) as caught:
            make({"name": "cifar10", "n": 10})
        return str(caught.value)

    get = "`flatlab data get cifar10` downloads it; or set FLATLAB_DATA to the folder that holds it"
    cache = tmp_path / "cache" / "flatlab"
    assert line() == f"cifar10 is not in {cache}: {get}"
    monkeypatch.setenv("FLATLAB_DATA", str(tmp_path))
    assert line() == f"cifar10 is not in {tmp_path} or {cache}: {get}"
    for path, problem in ((tmp_path / "no", "does not exist"), (__file__, "is not a folder")):
        monkeypatch.setenv("FLATLAB_DATA", str(path))
        assert line() == (
            f"the data folder {path}, which --data-dir or FLATLAB_DATA names, {problem}: "
            "name one that holds data sets"
        )


# Damage


def change(path, at=None, to=None, cut=None, more=b""):
    data = bytearray(path.read_bytes())
    if at is not None:
        data[at] = to
    path.write_bytes(bytes(data[:cut]) + more)


BIN, IDX, GZ = "data_batch_3.bin", "train-labels-idx1-ubyte", "train-labels-idx1-ubyte.gz"
PY = "data_batch_3"


def repickled(**changes):
    labels, pixels = given.BATCHES["data_batch_3"]
    both = {"labels": labels, "pixels": pixels} | changes
    return lambda path: path.write_bytes(given.pickled(**both))


LABELS, PIXELS = given.BATCHES["data_batch_3"]
DAMAGE = {
    "a cut binary file": (
        "binary",
        BIN,
        lambda p: change(p, cut=-1),
        "holds 61,459 bytes and must hold 61,460",
    ),
    "an empty binary file": (
        "binary",
        BIN,
        lambda p: change(p, cut=0),
        "holds 0 bytes and must hold 61,460",
    ),
    "a longer binary file": (
        "binary",
        BIN,
        lambda p: change(p, more=b"xy"),
        "holds more than 61,460 bytes and must hold 61,460",
    ),
    "a label of a record": (
        "binary",
        BIN,
        lambda p: change(p, 3073 * 2, 77),
        "label 2 is 77: every label must be from 0 to 9",
    ),
    "a pixel of a record": (
        "binary",
        BIN,
        lambda p: change(p, 1, PIXELS[0, 0] ^ 1),
        r"wrong checksum, sha256 of its content is \w{12}… and the published one \w{12}…",
    ),
    "a cut idx file": ("idx", IDX, lambda p: change(p, cut=-1), "holds 47 bytes and must hold 48"),
    "no idx file": ("idx", IDX, lambda p: change(p, 2, 9), "is not an idx file of unsigned bytes"),
    "another count": (
        "idx",
        IDX,
        lambda p: change(p, 7, 41),
        r"announces an array of shape \(41,\) and holds 40 bytes: it is truncated or damaged",
    ),
    "another shape": (
        "idx",
        "train-images-idx3-ubyte",
        lambda p: change_shape(p),
        r"must hold an array of shape \(40, 28, 28\), got shape \(40, 14, 56\)",
    ),
    "a label of an idx file": (
        "idx",
        IDX,
        lambda p: change(p, 8, 10),
        "label 0 is 10: every label must be from 0 to 9",
    ),
    "an idx label that is a class": (
        "idx",
        IDX,
        lambda p: change(p, 8, 9),
        "wrong checksum, sha256 of its content is .*",
    ),
    "a cut gzip file": (
        "idx, compressed",
        GZ,
        lambda p: change(p, cut=-9),
        r"is truncated or damaged \(.*\)",
    ),
    "no gzip file": (
        "idx, compressed",
        GZ,
        lambda p: p.write_bytes(b"hello"),
        r"is truncated or damaged \(Not a gzipped file .*\)",
    ),
    "a gzip bomb": (
        "idx, compressed",
        GZ,
        lambda p: p.write_bytes(gzip.compress(bytes(10**6))),
        "holds more than 48 bytes and must hold 48",
    ),
    "a cut pickle": (
        "pickles",
        PY,
        lambda p: change(p, cut=-1000),
        r"is truncated or no pickled batch \(.*\)",
    ),
    "no pickle": (
        "pickles",
        PY,
        lambda p: p.write_bytes(b"hello"),
        r"is truncated or no pickled batch \(.*\)",
    ),
    "a huge pickle": (
        "pickles",
        PY,
        lambda p: p.write_bytes(bytes(200_000)),
        "has 200000 bytes, too many for a batch",
    ),
    "labels of a pickle": (
        "pickles",
        PY,
        repickled(labels=LABELS + 1),
        "label 9 is 10: every label must be from 0 to 9",
    ),
    "too few labels": (
        "pickles",
        PY,
        repickled(labels=LABELS[1:]),
        r"must hold 20 whole numbers as labels, got shape \(19,\)",
    ),
    "too few images": (
        "pickles",
        PY,
        repickled(pixels=PIXELS[1:]),
        r"must hold data of shape \(20, 3072\), got shape \(19, 3072\)",
    ),
    "floats": (
        "pickles",
        PY,
        repickled(pixels=PIXELS.astype(np.int8)),
        "must hold an array of unsigned bytes",
    ),
    "a pixel of a pickle": (
        "pickles",
        PY,
        repickled(pixels=PIXELS ^ 1),
        "wrong checksum, sha256 of its content is .*",
    ),
    "a cut picture": (
        "PNG strips",
        f"{PY}.png",
        lambda p: change(p, cut=-50_000),
        r"is truncated or no PNG \(.*\)",
    ),
    "no picture": (
        "PNG strips",
        f"{PY}.png",
        lambda p: p.write_bytes(b"hello"),
        r"is truncated or no PNG \(.*\)",
    ),
    "a smaller picture": (
        "PNG strips",
        f"{PY}.png",
        lambda p: p.write_bytes(given.png(PIXELS[1:])),
        "must be an RGB picture of 1024 × 20 pixels, got RGB of 1024 × 19",
    ),
    "no labels of pictures": (
        "PNG strips",
        f"{PY}.png",
        lambda p: p.with_name("train_lables.json").unlink(),
        r"needs its labels, and .*train_lables\.json cannot be read \(.*\)",
    ),
    "labels of pictures": (
        "PNG strips",
        f"{PY}.png",
        lambda p: p.with_name("train_lables.json").write_text("[1, 2]"),
        r"needs 100 whole numbers in .*train_lables\.json, got shape \(2,\)",
    ),
}


def change_shape(path):
    change(path, 11, 14)
    change(path, 15, 56)


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line_that_names_the_file_and_the_command(tmp_path, damage):
    form, file, spoil, says = DAMAGE[damage]
    name, write = WRITERS[form]
    (tmp_path / "a b").mkdir()
    path = write(tmp_path / "a b") / file
    spoil(path)
    with pytest.raises(UserError) as caught:
        images(name, directory=tmp_path / "a b")
    line = str(caught.value)
    if "pictures" in damage:  # the first batch needs the labels too
        path = path.with_name("data_batch_1.png")
    start, end = (
        f"{path}: ",
        f": `flatlab data get {name} --to '{tmp_path}/a b'` downloads it again",
    )
    assert line.startswith(start) and line.endswith(end) and "\n" not in line
    assert re.fullmatch(says, line[len(start) : -len(end)]), line
    (found,) = checking.check([name], [tmp_path / "a b"])
    assert not found.whole and line in found.faults
    assert len(found.faults) == 1 or "labels of pictures" in damage


@pytest.mark.parametrize("form", WRITERS)
def test_a_missing_file_names_the_command(tmp_path, form):
    name, write = WRITERS[form]
    place = write(tmp_path)
    source = sources.find(SETS[name], [tmp_path])[0]
    path = source.path(SETS[name].files[2])
    path.unlink()
    with pytest.raises(UserError) as caught:
        images(name, directory=tmp_path)
    wanted = place / path.name.removesuffix(".gz")
    assert str(caught.value) == (
        f"{name} is incomplete, {wanted} is missing: `flatlab data get {name} --to {tmp_path}` "
        "downloads the set"
    )


def test_a_pipe_and_a_folder_are_no_files(tmp_path):
    path = given.binary(tmp_path) / BIN
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="is a pipe or a device"):
        images("cifar10", directory=tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=r"data_batch_3\.bin cannot be read: Is a directory"):
        images("cifar10", directory=tmp_path)


def test_the_published_sets_are_consistent(monkeypatch):
    monkeypatch.undo()
    for image_set in SETS.values():
        held = [name for archive in image_set.archives for name in archive.holds]
        assert held == [file.name for file in image_set.files]
        assert len({file.sha256 for file in image_set.files}) == len(image_set.files)
        assert all(len(file.sha256) == 64 for file in image_set.files)
        assert all(len(archive.md5) == 32 for archive in image_set.archives)
        pixels = image_set.channels * image_set.side**2
        headers = 0 if image_set.name == "cifar10" else 2 * (16 + 8)
        total = (image_set.train + image_set.test) * (pixels + 1) + headers
        assert sum(file.size for file in image_set.files) == total
