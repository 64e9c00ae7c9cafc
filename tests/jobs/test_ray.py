"""What is special about Ray: workers that are killed, folders that are not shared, threads."""

import functools
import os
import signal
import socket
from pathlib import Path

import pytest
from processes import alive, parent
from ray_for_tests import ray_here  # noqa: F401
from test_backends import Listener, job

import flatlab as fl
from conftest import SIZES, bits, wait_for
from flatlab.data import xor
from flatlab.errors import UserError
from flatlab.files.store import CHECKPOINT, RESULT, RunStore
from flatlab.jobs import Care, Cluster, Job, run_jobs
from flatlab.jobs.ray_tasks import MARKER, RayTasks
from flatlab.models import TwoLayer
from flatlab.training.config import RunConfig, config_digest
from flatlab.training.schedule import LogGrid, Phase
from flatlab.training.session import run_config

pytestmark = pytest.mark.usefixtures("ray_here")


LONG, SHORT = 30_000, 3_000  # epochs of a run of some seconds, and of less than one


def training(out, epochs):
    """Return the job of a run."""
    config = RunConfig(
        arch=TwoLayer(width=100, bias=True),
        data=xor(d=10, n=50, n_test=50).spec,
        schedule=(Phase("sam", lr=0.01, rho=0.05, batch_size=1, epochs=epochs),),
        log=LogGrid(per_decade=2, regular=10_000),
    )
    given = {"config": config.to_dict(), "out": str(out), "fresh": False}
    return Job(Path(out).name, "flatlab.training.session:run_job", given)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Train a run here, in one go; return the bits it ends in."""

    @functools.cache
    def train(epochs):
        path = tmp_path_factory.mktemp("undisturbed") / "run"
        run_config(RunConfig.from_dict(training(path, epochs).payload["config"]), out=path)
        return bits(path)

    return train


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setenv("FLATLAB_CHECKPOINT_SECONDS", "0.1")


def not_shared(backend):
    """Make the nodes believe that they do not see the folder."""
    backend.marker, backend.shared = (backend.marker[0], "another text"), False


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("victim", ["process", "worker"])
def test_a_killed_run_resumes_from_its_checkpoint_and_ends_in_the_same_bits(
    tmp_path, often, undisturbed, victim, shared
):
    out, began = tmp_path / "runs" / "run", []

    def react(job, kind, info):
        if kind == "started":
            began.append(info)
        if kind == "progress" and len(began) == 1 and (out / CHECKPOINT).exists():
            os.kill(began[0]["pid" if victim == "process" else "worker"], signal.SIGKILL)
            began.append(None)

    listener = Listener(react)
    with RayTasks(folder=tmp_path) as backend:
        if not shared:
            not_shared(backend)
        (outcome,) = run_jobs([training(out, LONG)], backend, listener, care=Care(retries=1))
    assert outcome.status == "done" and outcome.result["path"] == str(out)
    assert len(began) == 3  # it was killed once
    (again,) = [info for kind, info in listener.events["run"] if kind == "retrying"]
    assert again["start"] == "its last checkpoint" and "died" in again["error"]
    after = listener.kinds("run").index("retrying")
    epochs = [i["epoch"] for kind, i in listener.events["run"][after:] if kind == "progress"]
    assert epochs[0] > 0 and bits(out) == undisturbed(LONG)
    assert not (tmp_path / MARKER).exists()


def test_a_directory_returns_from_a_node_that_does_not_see_it(tmp_path, undisturbed):
    first, second = tmp_path / "first", tmp_path / "second"
    before = training(first, SHORT)
    payload = {**before.payload, "out": str(second), "after": str(first)}
    then = Job("second", "flatlab.experiments.computing:train_on", payload, after=("first",))
    with RayTasks(folder=tmp_path) as backend:
        backend.marker = (backend.marker[0], "another text")  # and no file travels yet
        outcomes = run_jobs([before, then], backend)
        assert not backend.shared  # it learnt that
        listener = Listener()
        again = run_jobs([before], backend, listener)
    assert [one.status for one in (*outcomes, *again)] == ["done"] * 3
    assert bits(first) == undisturbed(SHORT) != bits(second)
    assert RunStore.read(second, config_digest).load_result()["status"] == "done"
    assert listener.kinds("first") == ["started", "finished"]  # it was found, not trained again


def test_what_fails_far_away_names_the_drivers_folder(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / RESULT).write_text("{}")
    with RayTasks(folder=tmp_path) as backend:
        not_shared(backend)
        (outcome,) = run_jobs([training(out, SHORT)], backend)
    assert outcome.status == "failed" and outcome.exit_code == 2
    assert outcome.error.startswith(f"{out} is not a run directory")
    assert (out / RESULT).read_text() == "{}"


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_an_interrupt_leaves_a_run_that_any_backend_continues(tmp_path, undisturbed, shared):
    out = tmp_path / "run"

    def react(job, kind, info):
        if kind == "progress":
            signal.raise_signal(signal.SIGINT)

    with RayTasks(folder=tmp_path) as backend:
        if not shared:
            not_shared(backend)
        (outcome,) = run_jobs([training(out, LONG)], backend, react)
    assert outcome.status == "interrupted" and outcome.result["epochs"] < LONG
    (done,) = run_jobs([training(out, LONG)], 0)
    assert done.status == "done" and bits(out) == undisturbed(LONG)


@pytest.mark.slow
def test_none_of_1000_small_jobs_is_lost_though_workers_are_killed(tmp_path):
    killed = {}

    def react(job, kind, info):
        if kind == "started" and job.name in ("300", "600") and job.name not in killed:
            killed[job.name] = info["worker"]
            os.kill(info["worker"], signal.SIGKILL)

    jobs = [job(str(x), "square", x=x) for x in range(1000)]
    with RayTasks() as backend:
        outcomes = run_jobs(jobs, backend, react, care=Care(retries=3))
    assert {one.error for one in outcomes} == {None}
    assert [one.result["square"] for one in outcomes] == [x * x for x in range(1000)]
    assert len(killed) == 2 and not any(alive(pid) for pid in killed.values())


def test_a_job_has_one_thread_and_the_drivers_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("FLATLAB_TEST_MARK", "here")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.chdir(tmp_path)
    with RayTasks(Cluster(cpus_per_job=2)) as backend:
        assert backend.slots == 1
        (outcome,) = run_jobs([job("a", "threads")], backend)
    assert outcome.result["environment"] == ["1"] * 4
    assert outcome.result["pools"] and set(outcome.result["pools"]) == {1}
    assert (outcome.result["seen"], outcome.result["directory"]) == ("here", str(tmp_path))


def test_a_killed_worker_takes_its_job_with_it(tmp_path):
    ready = tmp_path / "ready"
    with RayTasks() as backend:
        backend.submit(job("a", "ignore_interrupt", ready=str(ready)))
        pid = int(wait_for(lambda: ready.exists() and ready.read_text()))
        os.kill(parent(parent(pid)), signal.SIGKILL)
        wait_for(lambda: not alive(pid))
        events = []
        while not events or not hasattr(events[-1], "status"):
            events += backend.poll(1.0)
    assert events[-1].died
    assert events[-1].error == "job a died (its worker was killed, or lost with its node)"


def test_the_verb_runs_on_ray_and_finds_the_same(tmp_path):
    changes = {**SIZES, "seeds": 1}
    made = [
        fl.run(
            "wen2023/table1", "quick", out=tmp_path / engine, changes=changes, progress=False,
            engine=engine, timeout="1h",
        )
        for engine in ("local", "ray")
    ]  # fmt: skip
    assert made[0].verdicts == made[1].verdicts
    assert [run.status for run in made[1].runs] == ["done"] * len(made[1].runs)
    for run in made[0].runs:
        local, far = (bits(tmp_path / engine / run.path) for engine in ("local", "ray"))
        assert local == far


def test_a_node_that_joined_with_another_flatlab_is_named():
    with RayTasks() as backend:
        ours, backend.ours = backend.ours, "0.0.9"
        (outcome,) = run_jobs([job("a", "square", x=2)], backend)
    assert (outcome.status, outcome.exit_code) == ("failed", 2)
    assert outcome.error.startswith(f"node {socket.gethostname()} (")
    assert outcome.error.endswith(f" has flatlab {ours}: install 0.0.9 there")


def test_a_limit_of_jobs_is_kept(tmp_path):
    with RayTasks(Cluster(jobs=1)) as backend:
        assert (backend.slots, backend.room()) == (1, 1)
        backend.submit(job("a", "square", x=2))
        assert backend.room() == 0


def test_a_job_that_no_node_has_room_for_is_refused():
    with pytest.raises(UserError, match=r"no node has 3 CPU for a job \(they have 2 CPU\)"):
        RayTasks(Cluster(cpus_per_job=3))
    with pytest.raises(UserError, match=r"no node has 1 CPU and 0.25 GPU"):
        RayTasks(Cluster(gpus_per_job=0.25))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"address": "ray://head:10001"}, "address must be HOST:PORT"),
        ({"address": "head"}, "address must be HOST:PORT"),
        ({"cpus_per_job": 0}, "cpus_per_job must be > 0, got 0"),
        ({"gpus_per_job": 1.5}, "gpus_per_job must be from 0 to 1 or a whole number, got 1.5"),
        ({"gpus_per_job": float("nan")}, "gpus_per_job must be from 0 to 1"),
        ({"jobs": 0}, "jobs must be >= 1, got 0"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        Cluster(**options)
