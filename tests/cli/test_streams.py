"""Standard output: one document with --json, and no traceback if it is closed or full."""

import json
import subprocess
import sys

import pytest

from conftest import TRAIN, command, environment

LOUD = """
import os
import sys
import torch
from torch import nn

print("importing")

def make():
    print("making")
    os.write(1, b"from C\\n")
    os.system("echo from a child")
    return nn.Linear(3, 1), nn.MSELoss(), (torch.eye(3), torch.ones(3, 1))
"""


@pytest.fixture
def loud(tmp_path):
    (tmp_path / "loud.py").write_text(LOUD)
    return "loud.py:make"


def shell(text, cwd):
    """Run a line of bash in which `flatlab` is ours."""
    line = text.replace("flatlab", " ".join(command()))
    return subprocess.run(
        ["bash", "-c", line], cwd=cwd, env=environment(), capture_output=True, text=True
    )


def test_prints_of_the_users_code_go_to_stderr(flatlab, loud):
    ended = flatlab("measure", loud, "--measure", "trace", "--json")
    assert json.loads(ended.stdout)["measures"]["trace"]["value"] > 0
    assert ended.stdout.count("\n") == 1
    for text in ("importing", "making", "from C", "from a child"):
        assert f"{text}\n" in ended.stderr
    assert "making" in flatlab("measure", loud, "--measure", "trace").stdout


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["list", "nothing"], "unknown list 'nothing'"),
        (["show"], "Missing argument"),
        (["train", "--colour", "red"], "No such option"),
        (["measure", "none.py:make"], "cannot import none.py"),
    ],
)
def test_an_error_is_a_document_with_json(main, arguments, says):
    code, out, err = main(*arguments, "--json")
    found = json.loads(out)
    assert code == 2 and found.keys() == {"error", "code"} and found["code"] == 2
    assert says in found["error"]
    assert err == f"flatlab: {found['error']}\n"
    assert main(*arguments)[:2] == (2, "")  # without it stdout is empty


def test_a_bug_is_a_document_and_a_traceback(main, monkeypatch, capsys):
    from flatlab.cli import listing

    monkeypatch.setitem(listing.LISTS, "data", lambda: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["flatlab", "list", "data", "--json"])
    from flatlab import cli

    with pytest.raises(ZeroDivisionError):
        cli.main()
    found = json.loads(capsys.readouterr().out)
    assert found["code"] == 1 and found["error"].startswith("ZeroDivisionError: division by zero")


def test_ctrl_c_is_a_document_with_json(main, monkeypatch):
    from flatlab.cli import listing

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setitem(listing.LISTS, "data", interrupted)
    code, out, _ = main("list", "data", "--json")
    assert code == 130 and json.loads(out)["code"] == 130


@pytest.mark.parametrize("arguments", ["list measures", "list measures --json", "--help"])
def test_a_full_disk_is_one_line(arguments, tmp_path):
    ended = shell(f"flatlab {arguments} > /dev/full", tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == "flatlab: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize("arguments", ["list measures", "list measures --json"])
@pytest.mark.parametrize("where", ["| head -c 1", "| true", ">&-", ">&- 2>&- <&-"])
def test_a_closed_stdout_is_no_error(arguments, where, tmp_path):
    ended = shell(f"set -o pipefail; flatlab {arguments} {where}", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_closed_pipe_keeps_the_exit_code(tmp_path):
    wild = " ".join(part.replace("lr=0.01", "lr=1e30") for part in TRAIN)
    ended = shell(f"set -o pipefail; flatlab {wild} --out run | true", tmp_path)
    assert (ended.returncode, ended.stderr) == (3, "")


def test_an_error_without_a_stderr_is_silent(tmp_path):
    ended = shell("flatlab list nothing 2>/dev/full", tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")


CLOSING = """
import sys
import torch
from torch import nn

class Stop(BaseException): ...

def make():
    sys.stdout.close()
    return nn.Linear(3, 1), nn.MSELoss(), (torch.eye(3), torch.ones(3, 1))

def stop():
    raise Stop("now")

def generator():
    raise GeneratorExit
"""


@pytest.fixture
def closing(tmp_path):
    (tmp_path / "closing.py").write_text(CLOSING)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_code_that_closes_stdout_closes_nothing(flatlab, closing, options):
    ended = flatlab("measure", "closing.py:make", "--measure", "trace", *options)
    assert (ended.returncode, ended.stderr) == (0, "") and "trace" in ended.stdout


@pytest.mark.parametrize("name, says", [("stop", "failed: Stop: now"), ("generator", "Generator")])
def test_an_unusual_end_of_a_factory_is_a_document(flatlab, closing, name, says):
    ended = flatlab("measure", f"closing.py:{name}", "--json")
    assert says in json.loads(ended.stdout)["error"] and ended.returncode


@pytest.mark.parametrize("columns", ["0", "1"])
def test_a_width_of_nothing_is_taken_as_a_readable_one(tmp_path, columns):
    shown = shell(f"COLUMNS={columns} flatlab list models", tmp_path).stdout
    assert "two_layer" in shown and max(map(len, shown.splitlines())) >= 30
