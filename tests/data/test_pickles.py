"""The reader of pickled batches runs nothing that a pickle asks for."""

from __future__ import annotations

import os
import pickle
import pickletools

import numpy as np
import pytest

import images_for_tests as given
from flatlab.data import pickles
from flatlab.data.sets import SETS
from flatlab.errors import UserError

LABELS, PIXELS = given.BATCHES["data_batch_1"]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    given.tiny_sets(monkeypatch)


def read(path, data):
    path.write_bytes(data)
    image_set = SETS["cifar10"]
    return pickles.read(path, image_set.files[0], image_set)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("order", "CF")
def test_a_batch_of_every_protocol_is_read(tmp_path, protocol, order):
    data = given.pickled(LABELS, np.asarray(PIXELS, order=order), protocol)
    assert read(tmp_path / "batch", data) == given.CIFAR10["data_batch_1.bin"]


def test_the_batch_of_python_2_is_as_python_2_wrote_it(tmp_path):
    data = given.python2_pickle(LABELS, PIXELS)
    assert {opcode.proto for opcode, *_ in pickletools.genops(data)} <= {0, 1, 2}
    assert pickle.loads(data, encoding="bytes")[b"data"].shape == PIXELS.shape  # numpy agrees
    assert read(tmp_path / "batch", data) == given.CIFAR10["data_batch_1.bin"]


class Evil:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def touch(path):
    return Evil(os.system, f"touch {path}")


MALICIOUS = {
    "alone": lambda path: touch(path),
    "as the data": lambda path: {b"data": touch(path), b"labels": LABELS.tolist()},
    "as a label": lambda path: {b"data": PIXELS, b"labels": [touch(path)] * 20},
    "besides": lambda path: {b"data": PIXELS, b"labels": LABELS.tolist(), b"x": touch(path)},
    "eval": lambda path: Evil(eval, f"open({str(path)!r}, 'w')"),
    "exec": lambda path: Evil(exec, f"open({str(path)!r}, 'w')"),
    "an attribute": lambda path: Evil(getattr, os, "system"),
    "objects": lambda path: {b"data": np.array([touch(path)] * 2), b"labels": []},
}


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("name", MALICIOUS)
def test_a_malicious_pickle_does_nothing(tmp_path, name, protocol):
    victim = tmp_path / "victim"
    if name == "an attribute":  # a module cannot be pickled, so its name is
        data = b"cos\nsystem\n(S'touch " + str(victim).encode() + b"'\ntR."
    else:
        data = pickle.dumps(MALICIOUS[name](victim), protocol)
    with pytest.raises(UserError, match=r"^names \w+(\.\w+)?, which no data batch needs$"):
        read(tmp_path / "batch", data)
    assert not victim.exists()


STRANGE = {
    "a name with dots": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__class__\x93.",
    "builtins through numpy": b"cnumpy\n__builtins__\n.",
    "numpy's own loader": b"cnumpy\nload\n(S'/etc/passwd'\ntR.",
    "a persistent id": b"Pxyz\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a memo that is not there": b"h\x05.",
    "a list": b"].",
    "no array": b"}(S'data'\nI1\nS'labels'\n](K\x01eu.",
    "an array without bytes": b"}(S'data'\ncnumpy.core.multiarray\n_reconstruct\n)RS'labels'\n]u.",
    "a state of another length": b"cnumpy.core.multiarray\n_reconstruct\n)RK\x01b.",
    "attributes of a stand-in": b"cnumpy\nndarray\n}(S'parts'\nNub.",
    "a huge string": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
    "deep nesting": b"(" * 20_000 + b"t" * 20_000 + b".",
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_pickle_is_one_line(tmp_path, name):
    before = {key: vars(getattr(pickles, key)).copy() for key in ("_Array", "_Type")}
    with pytest.raises(UserError) as caught:
        read(tmp_path / "batch", STRANGE[name])
    assert "\n" not in str(caught.value)
    assert {key: vars(getattr(pickles, key)).copy() for key in before} == before
    data = given.pickled(LABELS, PIXELS)
    assert read(tmp_path / "batch", data) == given.CIFAR10["data_batch_1.bin"]
