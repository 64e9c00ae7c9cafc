"""Downloads from a server that drops connections, lies, refuses, or serves something else."""

from __future__ import annotations

import gzip
import hashlib
import os

import pytest

import images_for_tests as given
from flatlab.errors import FlatlabError, StoreError, UserError
from flatlab.files import download as module
from flatlab.files.download import DownloadError, download
from flatlab.files.fetching import fetch

CONTENT = os.urandom(200_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = given.Server({"file.gz": CONTENT})
    yield made
    made.close()


@pytest.fixture
def get(server, tmp_path):
    """Download the file; returns what is there and the pauses between attempts."""

    def call(url=None, timeout=5.0, report=lambda done, size: None):
        pauses = []
        path = tmp_path / "file.gz"
        url = url or f"{server.url}/file.gz"
        download(url, path, len(CONTENT), MD5, report, timeout=timeout, wait=pauses.append)
        assert path.read_bytes() == CONTENT and sorted(tmp_path.iterdir()) == [path]
        return pauses

    return call


def part(folder, data):
    (folder / "file.gz.part").write_bytes(data)


def test_a_file_arrives_and_its_progress_is_told(get, server):
    told = []
    assert get(report=lambda done, size: told.append((done, size))) == []
    assert told[-1] == (len(CONTENT), len(CONTENT)) and told == sorted(told) and len(told) > 2
    get()  # it is there
    assert len(server.asked) == 1


def test_a_dropped_connection_goes_on_where_it_stopped(get, server):
    server.faults = [given.drop_after(n) for n in (50_000, 1, 70_001)]
    assert get() == [1.0]  # only the second attempt brought nearly nothing
    ranges = [range_ for _, range_ in server.asked]
    assert ranges == [None, "bytes=50000-", "bytes=50001-", "bytes=120002-"]


def test_a_later_call_goes_on_with_the_part(get, server, tmp_path):
    part(tmp_path, CONTENT[:123_456])
    told = []
    get(report=lambda done, size: told.append(done))
    assert server.asked == [("file.gz", "bytes=123456-")] and told[0] > 123_456


def test_a_complete_part_is_not_asked_for(get, server, tmp_path):
    part(tmp_path, CONTENT)
    get()
    assert server.asked == []


def test_a_server_that_ignores_ranges_is_read_from_the_start(get, server, tmp_path):
    part(tmp_path, CONTENT[:123_456])
    server.faults = [given.ignores_ranges]
    get()
    assert len(server.asked) == 1


@pytest.mark.parametrize("before", [b"x" * 1000, b"x" * len(CONTENT), b"x" * 300_000])
def test_a_part_of_another_file_is_thrown_away(get, tmp_path, before):
    part(tmp_path, before)
    get()


@pytest.mark.parametrize(
    "fault", [given.other_range, given.status(416), given.status(206, Content_Range="bytes x")]
)
def test_a_wrong_range_means_from_the_start(get, server, tmp_path, fault):
    part(tmp_path, CONTENT[:5000])
    server.faults = [fault]
    assert get() == [1.0]
    assert [range_ for _, range_ in server.asked] == ["bytes=5000-", None]


@pytest.mark.parametrize("length", [60_000, 500_000])
def test_a_wrong_content_length_is_not_believed(get, server, length):
    """Too short: the rest is asked for. Too long: the connection ends, and all bytes are there."""
    server.faults = [given.says_length(length)]
    get()
    assert len(server.asked) == (2 if length < len(CONTENT) else 1)


def test_passing_troubles_of_the_server_are_waited_for(get, server, tmp_path):
    server.faults = [given.status(503, Retry_After="7"), given.status(500), given.status(429)]
    assert get() == [7.0, 2.0, 4.0]
    (tmp_path / "file.gz").unlink()
    server.faults = [given.status(503, Retry_After="99999"), given.status(502, Retry_After="soon")]
    assert get() == [60.0, 2.0]


def test_a_slow_server_is_waited_for(get, server):
    server.faults = [given.trickles(0.05)]
    assert get(timeout=2.0) == [] and len(server.asked) == 1


def test_a_server_that_falls_silent_is_asked_for_the_rest(get, server):
    server.faults = [given.trickles(0.4, pieces=2)]
    get(timeout=0.1)
    assert [range_ for _, range_ in server.asked] == [None, "bytes=100000-"]


HINT = "name a mirror with --from"
REFUSED = {
    "not found": (given.status(404), f"cannot download {{url}}: HTTP 404 Not Found; {HINT}"),
    "forbidden": (given.status(403), f"cannot download {{url}}: HTTP 403 Forbidden; {HINT}"),
    "a web page": (
        given.other_file(b"<html>log in</html>", "text/html; charset=utf-8"),
        f"{{url}} is not the published file: it is a web page; {HINT}",
    ),
    "another file": (
        given.other_file(CONTENT[::-1]),
        f"{{url}} is not the published file: its checksum is wrong; {HINT}",
    ),
    "a longer file": (
        given.other_file(CONTENT + b"x"),
        f"{{url}} is not the published file: it has more than 200,000 bytes; {HINT}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_get_better_is_refused_at_once(get, server, tmp_path, name):
    fault, message = REFUSED[name]
    server.faults = [fault]
    with pytest.raises(DownloadError) as caught:
        get()
    assert str(caught.value) == message.format(url=f"{server.url}/file.gz")
    assert len(server.asked) == 1 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("faults", "reason", "there"),
    [
        ([given.status(500)] * 5, "HTTP 500 Internal Server Error", "0"),
        ([given.drop_after(10)] * 5, "the connection ended after 50 bytes", "50"),
        ([given.other_file(CONTENT[:100])] * 9, "the connection ended after 100 bytes", "100"),
    ],
)
def test_after_five_attempts_in_vain_it_says_how_to_go_on(get, server, faults, reason, there):
    server.faults = faults
    with pytest.raises(DownloadError) as caught:
        get()
    assert str(caught.value) == (
        f"cannot download {server.url}/file.gz ({reason}): {there} of 200,000 bytes are there; "
        f"run the same command again to continue where it stopped, or {HINT}"
    )
    assert len(server.asked) == 5
    server.faults = []
    get()


def test_a_server_that_is_not_there(get, server):
    with pytest.raises(DownloadError, match=r"9/x \(.*[Cc]onnection refused.*\): 0 of 200,000"):
        get("http://127.0.0.1:9/x")


@pytest.mark.parametrize(
    "url",
    ["ftp://a/b", "/etc/passwd", "file:///etc/passwd", "http://", "http://a:b/c", "http://a b"],
)
def test_an_address_that_is_none(get, url):
    with pytest.raises(UserError, match="a download needs an address http://… or https://…, got"):
        get(url)


def test_a_full_disk_is_said_at_once_and_the_part_stays(get, server, tmp_path, monkeypatch):
    part(tmp_path, CONTENT[:1000])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(StoreError, match=r"no space left to write .*file\.gz\.part: free some"):
        get()
    assert len(server.asked) == 1 and (tmp_path / "file.gz.part").stat().st_size > 1000


# Whole sets


class _Archive:
    def __init__(self, name, data, holds):
        self.name, self.size, self.holds = name, len(data), holds
        self.md5 = hashlib.md5(data).hexdigest()


def test_archives_are_unpacked_into_place_and_go(server, tmp_path):
    tar, zipped = given.tar_of(given.CIFAR10), gzip.compress(b"labels")
    server.files |= {"set.tar.gz": tar, "labels.gz": zipped}
    archives = [
        _Archive("set.tar.gz", tar, tuple(given.CIFAR10)),
        _Archive("labels.gz", zipped, ("labels",)),
    ]
    told = []
    made = fetch(
        f"{server.url}/", archives, tmp_path / ".part", tmp_path / "a" / "b",
        lambda *report: told.append(report),
    )  # fmt: skip
    assert {path.name: path.read_bytes() for path in made} == {**given.CIFAR10, "labels": b"labels"}
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "b", *sorted(made)]
    size = len(tar) + len(zipped)
    assert told[-1] == ("labels.gz", size, size)


def test_an_archive_without_its_files_is_refused(server, tmp_path):
    tar = given.tar_of({"../../evil": b"x", "data_batch_1.bin": b"y"})
    server.files["set.tar.gz"] = tar
    with pytest.raises(StoreError, match=r"set\.tar\.gz lacks test_batch\.bin"):
        fetch(
            server.url,
            [_Archive("set.tar.gz", tar, ("data_batch_1.bin", "test_batch.bin"))],
            tmp_path / "stage",
            tmp_path / "files",
        )
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["data_batch_1.bin"]


@pytest.mark.parametrize("name", ["absent.gz", "file.gz"])
def test_a_failure_before_anything_came_leaves_no_folder(server, tmp_path, name):
    (tmp_path / "mine").mkdir()
    archive = _Archive(name, CONTENT, ("a",))
    for parent in ("new/deep", "mine"):
        stage = tmp_path / parent / ".part"
        with pytest.raises(FlatlabError):
            fetch(server.url, [archive], stage, tmp_path / parent / "files")
        there = name == "file.gz"  # what came stays
        assert stage.exists() == there and (tmp_path / "new").exists() == there
    assert (tmp_path / "mine").exists()


def test_what_is_no_archive_is_refused(server, tmp_path):
    server.files |= {"a.gz": b"no archive", "b.tar.gz": b"no archive"}
    for name in ("a.gz", "b.tar.gz"):
        with pytest.raises(StoreError, match=rf"{name} cannot be unpacked \("):
            archives = [_Archive(name, b"no archive", ("a",))]
            fetch(server.url, archives, tmp_path / name, tmp_path / "files")
