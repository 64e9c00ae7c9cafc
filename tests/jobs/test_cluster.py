"""Experiments on a cluster of real nodes: what is refused, what is lost, what comes out."""

import contextlib
import json
import os
import signal
import socket
import subprocess

import pytest
from processes import alive
from ray_for_tests import nodes  # noqa: F401

from conftest import TINY, bits, command, environment, holder, tiny, wait_for
from flatlab.experiments.results import Results
from flatlab.jobs import connecting
from flatlab.jobs.node import identity

# Runs of some seconds each, so that something can happen to them.
LONG = tiny(no_bias_epochs=200_000, bias_epochs=100_000, bias_epochs_second=100_000)


def on(address):
    return ["--engine", "ray", "--address", address]


def line_of(done):
    """Return the one line that a refused command leaves."""
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def call(tmp_path):
    """Run a command to its end, with other variables."""

    def run(*args, **variables):
        return subprocess.run(
            command(*args),
            cwd=tmp_path,
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


# What is refused


def test_an_address_that_does_not_answer_is_told_in_a_line(call):
    assert connecting.KNOCK_SECONDS + 1 + connecting.ANSWER_SECONDS < 15
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections, says nothing
        address = f"127.0.0.1:{server.getsockname()[1]}"
        line = line_of(call(*TINY, *on(address)))
        assert line.startswith(f"flatlab: {address} takes connections but does not answer as a Ray")
    line = line_of(call(*TINY, *on(address)))
    assert line.startswith(f"flatlab: nothing answers at {address} (") and "ray start" in line


def test_without_ray_a_line_says_what_to_install(call, tmp_path):
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\")")
    line = line_of(call(*TINY, "--engine", "ray", PYTHONPATH=str(tmp_path)))
    assert line == (
        "flatlab: --engine ray needs Ray (No module named 'ray'): pip install 'flatlab[ray]'"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "rey"], "unknown engine 'rey': did you mean 'ray'?"),
        (["--address", "head:6379"], "address is an option of the engine ray, not of local"),
        (["--engine", "ray", "--address", "head"], "address must be HOST:PORT"),
        (["--retries", "-1"], "retries must be >= 0, got -1"),
        (["--timeout", "2"], "a timeout is a number with s, m or h"),
    ],
)
def test_options_that_make_no_sense_are_refused(main, options, message):
    code, out, err = main(*TINY, *options)
    assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("variables", [{"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN": "f" * 64}])
def test_a_cluster_that_refuses_the_token_is_told_in_a_line(nodes, call, variables):  # noqa: F811
    line = line_of(call(*TINY, *on(nodes.address), **variables))
    assert line.startswith(f"flatlab: the Ray cluster at {nodes.address} refuses the token of this")


@pytest.mark.slow
def test_nodes_without_flatlab_or_with_another_are_named(nodes, call, tmp_path):  # noqa: F811
    (tmp_path / "none").mkdir()
    missing = "raise ModuleNotFoundError(\"No module named 'flatlab'\", name='flatlab')"
    (tmp_path / "none" / "flatlab.py").write_text(missing)
    jobs = tmp_path / "other" / "flatlab" / "jobs"
    jobs.mkdir(parents=True)
    (jobs.parent / "__init__.py").touch()
    (jobs / "__init__.py").touch()
    (jobs / "node.py").write_text("identity = lambda: '0.0.9'\nsees = lambda marker: True\n")
    joined = [nodes.join(PYTHONPATH=str(tmp_path / name)) for name in ("none", "other")]
    line = line_of(call(*TINY, *on(nodes.address)))
    assert "has no flatlab" in line and "has flatlab 0.0.9" in line
    assert line.count(f"node {socket.gethostname()} (") == 2 and identity() in line
    for node in joined:
        nodes.leave(node)


# What comes out


def endings(folder):
    """Return the bits of every run in a folder, by name, and the verdicts."""
    results = Results.load(next(folder.glob("wen2023-*")))
    runs = {path.name: bits(path) for path in (folder / "runs").iterdir()}
    return runs, results.verdicts


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setenv("FLATLAB_CHECKPOINT_SECONDS", "0.2")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Run it with local processes; return what came out."""
    place = tmp_path_factory.mktemp("local")
    done = subprocess.run(
        command(*LONG), cwd=place, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return endings(place / "results")


@pytest.mark.slow
def test_a_node_that_is_lost_loses_nothing(nodes, start, tmp_path, often, local):  # noqa: F811
    """The same verdicts as with local processes, run for run the same bits."""
    node = nodes.join()
    process = start(*LONG, *on(nodes.address))
    wait_for(lambda: halted(working(tmp_path) & nodes.family(node), tmp_path), process)
    nodes.lose(node)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert " died (" in err and "try 2 of 4 goes on from" in err
    assert endings(tmp_path / "results") == local


@pytest.mark.slow
def test_a_driver_that_is_killed_continues_when_started_again(nodes, start, tmp_path, often, local):  # noqa: F811
    first = start(*LONG, *on(nodes.address))
    (pid,) = wait_for(lambda: working(tmp_path), first)  # there is one CPU
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    wait_for(lambda: not alive(pid))  # no job outlives its driver
    second = start(*LONG, *on(nodes.address), "--json")
    out, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert json.loads(out)["status"] == "done"
    assert endings(tmp_path / "results") == local


@pytest.mark.slow
def test_ctrl_c_leaves_runs_that_local_processes_finish(start, tmp_path, often, local):
    """With a cluster of the command's own, which ends with it."""
    first = start(*LONG, "--engine", "ray", start_new_session=True)
    wait_for(lambda: len(working(tmp_path)) == 2, first)
    os.killpg(first.pid, signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert (first.returncode, out) == (130, ""), err
    assert "interrupted: run the same command again to continue" in err
    second = start(*LONG)
    _, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert endings(tmp_path / "results") == local


def working(folder):
    """Return the processes that work on runs in a folder and have saved a checkpoint."""
    paths = folder.glob("results/runs/*/checkpoint.safetensors")
    holders = (holder(path.parent) for path in paths)
    return {pid for pid in holders if pid and alive(pid)}


def halted(pids, folder):
    """Halt processes; return those that are still working, so that none can finish meanwhile."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    inside = pids & working(folder)
    for pid in pids - inside:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return inside
