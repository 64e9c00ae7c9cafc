"""The commands `data get`, `data check` and `data import`, and `--data-dir`."""

from __future__ import annotations

import json
import os
import signal

import pytest

import images_for_tests as given
from conftest import tree, wait_for

TRAIN = ["train", "--arch", "mlp:widths=[3]", "--loss", "cross_entropy"]
TRAIN += ["--phase", "sgd:lr=0.01,epochs=1,batch_size=10", "--out", "run"]


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    given.tiny_sets(monkeypatch)
    monkeypatch.setenv("FLATLAB_DATA", "")  # so that it is put back whatever a command sets
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = given.Server({**given.ARCHIVES["cifar10"], **given.ARCHIVES["fashion_mnist"]})
    yield made
    made.close()


@pytest.fixture
def patient(monkeypatch):
    """Let no attempt wait."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def one_line(result, code=2):
    assert result[0] == code and result[1] == "" and result[2].count("\n") == 1
    assert result[2].startswith("flatlab: ")
    return result[2].removeprefix("flatlab: ").rstrip("\n")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# get


PLACES = {"cifar10": "cifar-10-batches-bin", "fashion_mnist": "FashionMNIST/raw"}


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", PLACES)
def test_a_set_is_downloaded_once(main, server, tmp_path, name):
    get = ["data", "get", name, "--to", "mine", "--from", server.url]
    code, stdout, stderr = main(*get)
    assert (code, stderr) == (0, "")
    assert "to use it: --data-dir mine, or FLATLAB_DATA=mine" in stdout and "whole" in stdout
    place = tmp_path / "mine" / PLACES[name]
    assert contents(place) == given.CONTENT[name]
    everything = {path for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    assert everything == set(place.iterdir())  # nothing is left of the download
    before, asked = tree(tmp_path), len(server.asked)
    code, stdout, _ = main(*get, "--json")
    (found,) = json.loads(stdout)["sets"]
    assert code == 0 and found["whole"] and found["name"] == name
    assert (tree(tmp_path), len(server.asked)) == (before, asked)


@pytest.mark.usefixtures("tiny")
def test_it_goes_to_the_variable_or_the_cache(main, server, tmp_path, monkeypatch):
    monkeypatch.setenv("FLATLAB_MIRROR", f"{server.url}/")
    code, stdout, _ = main("data", "get", "cifar10")
    assert code == 0 and "to use it" not in stdout
    assert (tmp_path / "cache" / "flatlab" / PLACES["cifar10"]).is_dir()
    monkeypatch.setenv("FLATLAB_DATA", str(tmp_path / "new"))
    assert main("data", "get", "cifar10")[0] == 0
    assert (tmp_path / "new" / PLACES["cifar10"]).is_dir()


@pytest.mark.usefixtures("tiny")
def test_only_what_is_missing_or_damaged_is_downloaded(main, server, tmp_path):
    get = ["data", "get", "fashion_mnist", "--to", "mine", "--from", server.url]
    assert main(*get)[0] == 0
    place = tmp_path / "mine" / PLACES["fashion_mnist"]
    (place / "t10k-labels-idx1-ubyte").unlink()
    (place / "train-labels-idx1-ubyte").write_bytes(b"damaged")
    server.asked.clear()
    assert main(*get)[0] == 0 and contents(place) == given.FASHION
    assert [name for name, _ in server.asked] == [
        "train-labels-idx1-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ]


@pytest.mark.usefixtures("tiny")
def test_another_form_that_is_whole_is_enough(main, server, tmp_path):
    given.pickles(tmp_path / "mine")
    code, stdout, _ = main("data", "get", "cifar10", "--to", "mine", "--from", server.url)
    assert code == 0 and "pickles" in stdout and server.asked == []


@pytest.mark.usefixtures("tiny", "patient")
def test_a_bad_server_is_one_line_and_the_next_call_goes_on(main, server, tmp_path):
    get = ["data", "get", "cifar10", "--to", "mine", "--from", server.url]
    server.faults = [given.drop_after(100_000), *[given.status(500)] * 5]
    url = f"{server.url}/cifar-10-binary.tar.gz"
    line = one_line(main(*get))
    assert line.startswith(f"cannot download {url} (HTTP 500 Internal Server Error): 100,000 of ")
    assert not (tmp_path / "mine" / PLACES["cifar10"]).exists()
    server.asked.clear()
    assert main(*get)[0] == 0
    assert [range_ for _, range_ in server.asked] == ["bytes=100000-"]


REFUSALS = {
    "404": (given.status(404), "HTTP 404 Not Found"),
    "a web page": (given.other_file(b"<html>", "text/html"), "it is a web page"),
    "another file": (
        given.other_file(given.ARCHIVES["cifar10"]["cifar-10-binary.tar.gz"][::-1]),
        "its checksum is wrong",
    ),
}


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", REFUSALS)
def test_a_wrong_answer_is_one_line(main, server, tmp_path, name):
    fault, says = REFUSALS[name]
    server.faults = [fault]
    line = one_line(main("data", "get", "cifar10", "--to", "mine", "--from", server.url))
    assert says in line and line.endswith("name a mirror with --from")
    assert not (tmp_path / "mine" / PLACES["cifar10"]).exists()


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "mnist"], "unknown image set 'mnist': did you mean 'fashion_mnist'? Allowed: cif"),
        (["get"], "Missing argument 'NAME'"),
        (["get", "cifar10", "--from", "ftp://a/b"], "a download needs an address http://… or http"),
        (["get", "cifar10", "--to", "file"], "file is not a directory: choose another place"),
        (["check", "mnist"], "unknown image set 'mnist'"),
        (["check", "--data", "no"], "the data folder no does not exist: name one that holds data"),
        (["check", "--data", "file"], "the data folder file is not a folder: name one that holds"),
        (["import", "no"], "the data folder no does not exist: name one that holds data sets"),
        (["import", "."], ". holds no image set in a form that can be converted: CIFAR-10 as bin"),
    ],
)
def test_a_mistake_is_one_line(main, tmp_path, arguments, message):
    (tmp_path / "file").write_text("")
    line = one_line(main("data", *arguments))
    assert line.startswith(message)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_was_killed_is_continued(start, flatlab, tmp_path, server, end):
    """With the published set: the first process gets 3 of 170 MB, the second asks for the rest."""
    name = "cifar-10-binary.tar.gz"
    server.files[name] = bytes(6_000_000)
    server.faults = [given.trickles(30.0, pieces=2), given.status(404)]
    get = ["data", "get", "cifar10", "--to", "mine", "--from", server.url]
    process = start(*get)
    part = tmp_path / "mine" / ".cifar10.part" / f"{name}.part"
    wait_for(lambda: part.exists() and part.stat().st_size == 3_000_000, process)
    process.send_signal(end)
    _, stderr = process.communicate(timeout=60)
    if end == signal.SIGINT:
        assert process.returncode == 130
        assert stderr == "flatlab: interrupted: run the same command again to continue\n"
    ended = flatlab(*get)
    assert ended.returncode == 2 and "404" in ended.stderr
    assert server.asked == [(name, None), (name, "bytes=3000000-")]


def test_two_processes_do_not_download_the_same_set(start, flatlab, tmp_path, server):
    server.faults = [given.trickles(30.0, pieces=2)]
    get = ["data", "get", "cifar10", "--to", "mine", "--from", server.url]
    process = start(*get)
    wait_for(lambda: server.asked, process)
    ended = flatlab(*get)
    said = f"flatlab: another process (pid {process.pid}) is working on mine/.cifar10.part: "
    assert ended.returncode == 2 and ended.stderr.startswith(said)


# check


@pytest.mark.usefixtures("tiny")
def test_check_says_what_is_there(main, tmp_path):
    given.binary(tmp_path / "mine")
    given.subset(tmp_path / "mine", "fashion_mnist")
    code, stdout, stderr = main("data", "check", "--data", "mine", "--json")
    found = json.loads(stdout)
    assert (code, stderr) == (0, "") and found["whole"] and found["missing"] == []
    rows = [(s["name"], s["form"], s["train"], s["test"], s["whole"]) for s in found["sets"]]
    assert rows == [
        ("cifar10", "binary", 100, 20, True),
        ("fashion_mnist", "npz subset", 20, 10, True),
    ]
    assert found["sets"][0]["files"][0]["bytes"] == len(given.CIFAR10["data_batch_1.bin"])
    code, stdout, _ = main("data", "check", "--data-dir", "mine")
    assert code == 0 and "npz subset" in stdout and "whole" in stdout


@pytest.mark.usefixtures("tiny")
def test_check_names_every_fault(main, tmp_path):
    place = given.binary(tmp_path / "mine")
    (place / "data_batch_2.bin").unlink()
    (place / "data_batch_4.bin").write_bytes(b"half")
    code, stdout, stderr = main("data", "check", "--data", "mine")
    assert code == 2 and "2 faults" in stdout
    first, second = stderr.splitlines()
    remedy = "`flatlab data get cifar10 --to mine` downloads"
    where = f"mine/{PLACES['cifar10']}"
    missing = f"cifar10 is incomplete, {where}/data_batch_2.bin is missing: {remedy} the set"
    assert first == f"flatlab: {missing}"
    holds = "holds 4 bytes and must hold 61,460"
    assert second == f"flatlab: {where}/data_batch_4.bin: {holds}: {remedy} it again"
    code, stdout, _ = main("data", "check", "--data", "mine", "--json")
    found = json.loads(stdout)
    assert code == 2 and not found["whole"] and len(found["sets"][0]["faults"]) == 2


@pytest.mark.usefixtures("tiny")
def test_a_set_that_is_asked_for_must_be_there(main, tmp_path):
    given.binary(tmp_path / "mine")
    assert main("data", "check", "cifar10", "--data", "mine")[0] == 0
    line = one_line(main("data", "check", "fashion_mnist", "--data", "mine"))
    assert line.startswith("fashion_mnist is not in mine: `flatlab data get fashion_mnist` downl")
    code, stdout, stderr = main("data", "check", "--data", "mine")  # one set is enough
    assert (code, stderr) == (0, "") and "fashion_mnist is not in mine: " in stdout
    code, stdout, stderr = main("data", "check")  # nothing in the cache
    assert code == 2 and stdout == "" and stderr.count("`flatlab data get") == 2


@pytest.mark.usefixtures("tiny", "patient")
def test_a_set_that_is_partly_downloaded_is_said_to_be(main, server, tmp_path):
    given.plain_idx(tmp_path / "mine")
    server.faults = [given.drop_after(1000)] * 5
    assert main("data", "get", "cifar10", "--to", "mine", "--from", server.url)[0] == 2
    line = (
        "flatlab: cifar10 is only partly downloaded to mine: `flatlab data get cifar10 --to mine` "
        "downloads the rest\n"
    )
    code, stdout, stderr = main("data", "check", "--data", "mine")
    assert (code, stderr) == (2, line) and "fashion_mnist" in stdout
    code, _, stderr = main(*TRAIN, "--data", "cifar10", "--data-dir", "mine")
    assert (code, stderr) == (2, line.replace(" mine", f" {tmp_path}/mine"))


# import


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("write", [given.strips, given.pickles, given.zipped_idx])
def test_any_form_becomes_the_published_files(main, tmp_path, write):
    name = "fashion_mnist" if write is given.zipped_idx else "cifar10"
    write(tmp_path / "theirs")
    code, stdout, stderr = main("data", "import", "theirs", "--to", "mine")
    assert (code, stderr) == (0, "") and "whole" in stdout
    assert contents(tmp_path / "mine" / PLACES[name]) == given.CONTENT[name]
    before = tree(tmp_path)
    code, stdout, _ = main("data", "import", "theirs", "--to", "mine", "--json")
    assert code == 0 and json.loads(stdout)["sets"][0]["whole"] and tree(tmp_path) == before


@pytest.mark.usefixtures("tiny")
def test_a_damaged_set_is_not_imported(main, tmp_path):
    (given.strips(tmp_path / "theirs") / "test_batch.png").write_bytes(b"no")
    line = one_line(main("data", "import", "theirs", "--to", "mine"))
    assert line.startswith("theirs/test_batch.png: is truncated or no PNG (")
    assert not (tmp_path / "mine").exists()


# --data-dir


@pytest.mark.usefixtures("tiny")
def test_a_run_takes_its_images_from_the_folder(main, tmp_path):
    given.subset(tmp_path / "part", "cifar10")
    given.binary(tmp_path / "whole")
    small = [*TRAIN, "--data", "cifar10"]
    assert main(*small, "--data-dir", "part", "--json")[0] == 0
    assert os.environ["FLATLAB_DATA"] == str(tmp_path / "part")
    # The folder now holds the whole set too: the run finds the images it was trained on.
    given.binary(tmp_path / "part")
    code, stdout, _ = main("measure", "run", "--measures", "trace", "--data-dir", "part", "--json")
    assert code == 0 and json.loads(stdout)["measures"]["trace"]["value"] > 0
    line = one_line(main("measure", "run", "--measures", "trace", "--data-dir", "whole"))
    assert "content changed" in line


@pytest.mark.usefixtures("tiny")
def test_a_folder_without_the_set_is_one_line(main, tmp_path):
    (tmp_path / "empty").mkdir()
    small = [*TRAIN, "--data", "cifar10:n=10", "--data-dir"]
    line = one_line(main(*small, "empty"))
    assert line.startswith(f"cifar10 is not in {tmp_path}/empty or ") and (
        "`flatlab data get cifar10` downloads it" in line
    )
    assert one_line(main(*small, "nowhere")).startswith(f"the data folder {tmp_path}/nowhere, whi")
    (given.binary(tmp_path / "half") / "test_batch.bin").unlink()
    line = one_line(main(*small, "half"))
    assert line.startswith("cifar10 is incomplete, ") and "`flatlab data get cifar10 --to" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["train", "run", "reproduce", "measure"])
def test_every_command_with_data_takes_a_folder(main, name):
    code, stdout, _ = main(name, "--help")
    assert code == 0 and "--data-dir" in stdout
