"""What is special about local processes: what a child inherits, and how a family ends."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from processes import alive, children_of
from test_backends import job

from flatlab.jobs import LocalProcesses, Outcome, run_jobs, usable_cores
from flatlab.jobs.contract import Progress

HERE = str(Path(__file__).parents[1])


def environment(*paths):
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *([before] if before else [])])}


def wait_for(condition, seconds=120.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def script():
    """Start a real interpreter that runs the jobs and prints the outcomes; stop it at the end."""
    started = []

    def start(jobs, workers=2):
        code = f"""
            import json, signal, sys
            signal.signal(signal.SIGINT, signal.default_int_handler)
            from flatlab.jobs import Job, run_jobs
            jobs = [Job(*fields) for fields in json.loads(sys.argv[1])]
            outcomes = run_jobs(jobs, workers={workers})
            print(json.dumps([[o.status, o.result, o.error, o.exit_code] for o in outcomes]))
        """
        arguments = json.dumps([[one.name, one.target, one.payload] for one in jobs])
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(code), arguments],
            env=environment(HERE),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("workers", [1, 3])
def test_every_job_has_a_process_of_its_own(workers):
    outcomes = run_jobs([job(str(x), "square", x=x) for x in range(4)], workers)
    pids = {outcome.result["pid"] for outcome in outcomes}
    assert len(pids) == 4 and os.getpid() not in pids


def test_a_single_job_for_one_worker_runs_here_unless_it_must_be_stopped():
    alone = [job("a", "square", x=2)]
    assert run_jobs(alone, workers=1)[0].result["pid"] == os.getpid()
    limited = run_jobs(alone, workers=1, until=time.monotonic() + 600)[0]
    assert limited.result["square"] == 4 and limited.result["pid"] != os.getpid()


def test_one_process_for_each_core_and_never_none():
    assert LocalProcesses().room() == usable_cores() >= 1
    assert LocalProcesses(0).room() == 1


def test_children_have_one_thread_and_the_parents_environment(monkeypatch, tmp_path):
    run_jobs([job("first", "square", x=1)], workers=2)  # the fork server is up before the changes
    monkeypatch.setenv("FLATLAB_TEST_MARK", "here")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.chdir(tmp_path)
    main, handler = sys.modules["__main__"], signal.getsignal(signal.SIGINT)
    outcome = run_jobs([job("a", "threads")], workers=2)[0]
    assert outcome.result["environment"] == ["1"] * 4
    assert outcome.result["pools"] and set(outcome.result["pools"]) == {1}
    assert (outcome.result["seen"], outcome.result["directory"]) == ("here", str(tmp_path))
    assert os.environ["OMP_NUM_THREADS"] == "2" and "MKL_NUM_THREADS" not in os.environ
    assert sys.modules["__main__"] is main
    assert signal.getsignal(signal.SIGINT) is handler
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def test_children_begin_with_what_every_run_needs():
    names = ["pandas", "pyarrow.parquet", "safetensors.numpy", "flatlab.training.session"]
    for outcome in run_jobs([job(str(i), "loaded", names=names) for i in range(2)], workers=2):
        assert outcome.result["modules"] == [True] * 4
        assert outcome.result["functions"] > 100  # numba's tables are filled
        assert outcome.result["frozen"] > 100_000  # no collection copies what all children share


def test_an_unguarded_script_and_a_broken_preload_do_not_matter(tmp_path):
    (tmp_path / "broken_preload.py").write_text("raise RuntimeError('broken')")
    path = tmp_path / "unguarded.py"
    path.write_text(
        "from flatlab.jobs import Job, local, run_jobs\n"
        "local.PRELOAD = ('broken_preload', 'no_such_module')\n"
        "jobs = [Job(str(x), 'jobs_for_tests:square', {'x': x}) for x in range(3)]\n"
        "print([outcome.result['square'] for outcome in run_jobs(jobs, workers=2)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", path],
        env=environment(HERE, str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "[0, 1, 4]\n", done.stderr


def test_no_pipe_is_leaked():
    jobs = [job(str(x), "square", x=x) for x in range(3)]
    run_jobs(jobs, workers=2)
    before = len(os.listdir("/proc/self/fd"))
    run_jobs([*jobs, job("killed", "kill_self", signal="SIGKILL")], workers=2)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def no_more_files():
    """Return a function within which this process can open no file, pipe or socket."""

    @contextlib.contextmanager
    def call():
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)  # the lowest descriptor that the next file would get
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    return call


def test_a_process_that_cannot_start_fails_its_job_and_says_why(no_more_files):
    jobs = [job(str(x), "square", x=x) for x in range(2)]
    run_jobs(jobs, workers=2)  # the fork server is up
    with LocalProcesses(2) as backend:
        with no_more_files():
            backend.submit(jobs[0])
            (failed,) = backend.poll(0.0)  # it never started: the outcome alone
        assert (failed.job, failed.status, failed.exit_code) == (jobs[0], "failed", 1)
        assert failed.error == "cannot start a process: [Errno 24] Too many open files"
        assert failed.seconds == 0 and backend.room() == 2
        assert [outcome.status for outcome in run_jobs(jobs, backend)] == ["done"] * 2


def test_a_chatty_child_starves_no_other(tmp_path):
    """A poll takes one message of each child, however many one of them has sent."""
    ready = [tmp_path / "chatty", tmp_path / "calm"]
    with LocalProcesses(2) as backend:
        for path, steps in zip(ready, (50, 2), strict=True):
            backend.submit(job(path.name, "report_and_wait", steps=steps, ready=str(path)))
        wait_for(lambda: all(path.exists() for path in ready))  # all is in the pipes
        polls = [backend.poll(1.0) for _ in range(3)]
    told = [[event.job.name for event in events if isinstance(event, Progress)] for events in polls]
    assert told == [["chatty", "calm"], ["chatty", "calm"], ["chatty"]]


def test_progress_that_nobody_hears_is_dropped_and_not_waited_for(tmp_path):
    """The reports are many times what a pipe holds, and the first of them arrive."""
    ready = tmp_path / "ready"
    with LocalProcesses(1) as backend:
        one = job("a", "report_and_wait", steps=2000, ready=str(ready))
        backend.submit(one)
        wait_for(ready.exists, seconds=60)  # nobody has polled
        backend.cancel(one, kill=True)
        events = []
        while not events or not isinstance(events[-1], Outcome):
            events += backend.poll(1.0)
    steps = [event.info["step"] for event in events if isinstance(event, Progress)]
    assert steps == list(range(len(steps))) and 0 < len(steps) < 2000


@pytest.mark.parametrize("everyone", [True, False])
def test_an_interrupt_from_a_terminal_or_for_the_parent_alone(script, tmp_path, everyone):
    ready = [tmp_path / "0", tmp_path / "1"]
    jobs = [
        job("0", "save_on_interrupt", ready=str(ready[0])),
        job("1", "clean_up_on_interrupt", ready=str(ready[1]), saved=str(tmp_path / "saved")),
        job("2", "square", x=1),
    ]
    process = script(jobs)
    wait_for(lambda: all(path.exists() for path in ready))
    if everyone:  # as a terminal does: parent and children alike
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    saved, cleaned, never = json.loads(out)
    assert saved == ["interrupted", {"status": "interrupted", "epoch": 3}, "interrupted", 130]
    assert cleaned == ["interrupted", None, "interrupted", 130] and (tmp_path / "saved").exists()
    assert never == ["interrupted", None, "interrupted before it started", 130]


def test_an_interrupt_cuts_no_message_in_two():
    seen = []

    def interrupt_after_a_while(job, kind, info):
        seen.append(kind)
        if kind == "progress" and len(seen) == 50:
            time.sleep(0.1)  # by now the pipe is full and the child is amid a message
            os.kill(info["pid"], signal.SIGINT)
        assert kind != "progress" or len(info["text"]) == 50_000

    (outcome,) = run_jobs([job("a", "report_while_interrupted")], 2, interrupt_after_a_while)
    assert outcome.status == "interrupted" and len(seen) > 50


def test_children_end_when_the_parent_is_killed(script, tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    process = script([job(path.name, "ignore_interrupt", ready=str(path)) for path in paths])
    wait_for(lambda: all(path.exists() for path in paths))
    family = children_of(process.pid)
    assert {int(path.read_text()) for path in paths} < family
    process.kill()
    wait_for(lambda: not any(alive(pid) for pid in family))
