"""A run directory as bytes: what is carried, what is removed, what is refused."""

import pytest

from flatlab.errors import BusyError, StoreError
from flatlab.files.carrying import FILES, TO_CONTINUE, packed, unpack
from flatlab.files.durable import locked
from flatlab.files.store import CHECKPOINT, CONFIG, RESULT


def test_a_directory_arrives_as_it_was(tmp_path):
    files = {name: name.encode() for name in FILES}
    unpack(tmp_path / "there", files)
    assert packed(tmp_path / "there") == files
    assert packed(tmp_path / "there", TO_CONTINUE).keys() == {CONFIG, CHECKPOINT}
    assert packed(tmp_path / "nowhere") == {}


def test_an_old_result_does_not_stay_beside_a_new_checkpoint(tmp_path):
    unpack(tmp_path, {name: b"old" for name in FILES})
    (tmp_path / "mine.txt").write_text("kept")
    unpack(tmp_path, {CONFIG: b"new", CHECKPOINT: b"new"})
    assert packed(tmp_path) == {CONFIG: b"new", CHECKPOINT: b"new"}
    assert (tmp_path / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize("name", ["../outside", "lock", "notes.txt"])
def test_only_files_of_a_run_are_written(tmp_path, name):
    with pytest.raises(StoreError, match="are not files of a run"):
        unpack(tmp_path / "run", {CONFIG: b"", name: b""})
    assert not (tmp_path / "run").exists()


def test_a_directory_in_which_a_process_works_is_left_alone(tmp_path):
    (tmp_path / RESULT).write_bytes(b"old")
    with locked(tmp_path), pytest.raises(BusyError):
        unpack(tmp_path, {RESULT: b"new"})
    assert packed(tmp_path) == {RESULT: b"old"}
