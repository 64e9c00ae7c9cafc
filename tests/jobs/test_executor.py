import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from flatlab.errors import UserError
from flatlab.jobs import executor
from flatlab.jobs.executor import Job, run_jobs

HERE = str(Path(__file__).parents[1])


def job(name, function, **payload):
    return Job(name, f"jobs_for_tests:{function}", payload)


def environment(*paths):
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *([before] if before else [])])}


def wait_for(condition, seconds=15.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children_of(pid):
    """All living descendants, through /proc: the fork server and the tracker are among them."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.fixture
def script(tmp_path):
    """Start a real interpreter that runs the jobs and prints the outcomes; stop it at the end."""
    started = []

    def start(jobs, workers=2, grace=None, session=False):
        code = f"""
            import json, signal, sys
            signal.signal(signal.SIGINT, signal.default_int_handler)
            from flatlab.jobs import executor
            executor.INTERRUPT_GRACE = {grace or 10.0}
            jobs = [executor.Job(*fields) for fields in json.loads(sys.argv[1])]
            outcomes = executor.run_jobs(jobs, workers={workers})
            print(json.dumps([[o.status, o.result, o.error, o.exit_code] for o in outcomes]))
        """
        arguments = json.dumps([[one.name, one.target, one.payload] for one in jobs])
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(code), arguments],
            env=environment(HERE),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=session,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_results_come_in_the_order_of_the_jobs(workers):
    outcomes = run_jobs([job(str(x), "square", x=x) for x in range(4)], workers=workers)
    assert [outcome.job.name for outcome in outcomes] == ["0", "1", "2", "3"]
    assert [outcome.result["square"] for outcome in outcomes] == [0, 1, 4, 9]
    assert {(outcome.status, outcome.exit_code) for outcome in outcomes} == {("done", 0)}
    pids = {outcome.result["pid"] for outcome in outcomes}
    assert pids == {os.getpid()} if workers == 0 else len(pids) == 4 and os.getpid() not in pids


def test_a_single_job_for_one_worker_runs_here():
    assert run_jobs([job("a", "square", x=2)], workers=1)[0].result["pid"] == os.getpid()


def test_nothing_to_do_and_nonsense():
    assert run_jobs([]) == []
    with pytest.raises(UserError, match=r"workers must be >= 0, got -1"):
        run_jobs([], workers=-1)
    with pytest.raises(UserError, match=r"payload of job a must be plain data"):
        run_jobs([job("a", "square", x=object())])
    assert executor.usable_cores() >= 1


def test_at_the_given_time_what_runs_is_interrupted_and_nothing_more_is_started(tmp_path):
    jobs = [job("long", "sleep", ready=str(tmp_path / "ready")), job("never", "square", x=1)]
    began = time.monotonic()
    long, never = run_jobs(jobs, workers=1, until=began + 2)
    assert (long.status, never.status) == ("interrupted", "interrupted")
    assert never.error == "interrupted before it started" and never.seconds == 0
    done = run_jobs([job("a", "square", x=2)], workers=1, until=time.monotonic() + 600)[0]
    assert done.result["square"] == 4 and done.result["pid"] != os.getpid()  # so it can be stopped


@pytest.mark.parametrize("workers", [0, 2])
def test_failures_are_told_apart_and_stop_no_other(workers):
    jobs = [
        job("bug", "fail"),
        job("foreseen", "fail_as_foreseen"),
        job("exit", "leave"),
        job("result", "not_plain"),
        Job("module", "no_such_module:f", {}),
        Job("format", "jobs_for_tests", {}),
        job("fine", "square", x=3),
    ]
    bug, foreseen, left, result, module, form, fine = run_jobs(jobs, workers=workers)
    assert (bug.status, bug.error, bug.exit_code) == ("failed", "ValueError: a bug", 1)
    assert "in fail" in bug.traceback and bug.result is None
    assert (foreseen.error, foreseen.exit_code) == ("no space left", 7)
    assert foreseen.traceback is None
    assert left.error == "SystemExit: 4"
    assert result.error.startswith("TypeError: Object of type object is not JSON")
    assert module.error.startswith("ModuleNotFoundError")
    assert "package.module:function" in form.error and form.exit_code == 2
    assert fine.result["square"] == 9


def test_a_job_that_dies_is_named_with_the_cause():
    jobs = [
        job("killed", "kill_self", signal="SIGKILL"),
        job("broken", "kill_self", signal="SIGSEGV"),
        job("gone", "exit_at_once"),
        job("fine", "square", x=3),
    ]
    killed, broken, gone, fine = run_jobs(jobs, workers=2)
    assert (killed.status, killed.error) == ("failed", "job killed died (signal SIGKILL)")
    assert broken.error == "job broken died (signal SIGSEGV)"
    assert gone.error == "job gone died (exit code 3)" and gone.exit_code == 1
    assert fine.status == "done"


@pytest.mark.parametrize("workers", [0, 2])
def test_events_arrive_in_order(workers):
    events = []
    jobs = [job("a", "square", x=1, steps=3), job("b", "fail")]
    run_jobs(jobs, workers, on_event=lambda j, kind, info: events.append((j.name, kind, info)))
    mine = [(kind, info) for name, kind, info in events if name == "a"]
    assert [kind for kind, _ in mine] == ["started", *["progress"] * 3, "finished"]
    assert [info["step"] for kind, info in mine if kind == "progress"] == [0, 1, 2]
    assert mine[-1][1]["status"] == "done" and mine[-1][1]["seconds"] > 0
    other = [(kind, info.get("error")) for name, kind, info in events if name == "b"]
    assert other == [("started", None), ("finished", "ValueError: a bug")]


def test_a_slow_listener_costs_progress_but_never_the_job_or_its_large_result():
    outcomes = run_jobs(
        [job("a", "chat")], workers=2, on_event=lambda j, kind, info: time.sleep(0.001)
    )
    assert len(outcomes[0].result["result"]) == 1_000_000


def test_a_callback_that_raises_leaves_no_process(tmp_path):
    ready, before = tmp_path / "ready", children_of(os.getpid())

    def raise_when_ready(job, kind, info):
        wait_for(ready.exists)
        raise RuntimeError("callback")

    with pytest.raises(RuntimeError, match="callback"):
        run_jobs([job("a", "sleep", ready=str(ready))], workers=2, on_event=raise_when_ready)
    assert not alive(int(ready.read_text()))
    extra = children_of(os.getpid()) - before
    assert len(extra) <= 2  # the fork server and the resource tracker, if this test came first


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


def test_no_pipe_is_leaked():
    jobs = [job(str(x), "square", x=x) for x in range(3)]
    run_jobs(jobs, workers=2)
    before = len(os.listdir("/proc/self/fd"))
    run_jobs([*jobs, job("killed", "kill_self", signal="SIGKILL")], workers=2)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("everyone", [True, False])
def test_interrupt_lets_the_running_jobs_save_and_starts_no_other(script, tmp_path, everyone):
    names = ["save_on_interrupt", "clean_up_on_interrupt", "square", "square"]
    jobs = [
        job(str(i), name, ready=str(tmp_path / f"{i}.ready"), x=1) for i, name in enumerate(names)
    ]
    process = script(jobs, workers=2, session=True)
    wait_for(lambda: (tmp_path / "0.ready").exists() and (tmp_path / "1.ready").exists())
    if everyone:  # as a terminal does: parent and children alike
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=15)
    assert (process.returncode, err) == (0, "")
    saved, cleaned, *rest = json.loads(out)
    assert saved[:2] == ["interrupted", {"status": "interrupted", "epoch": 3}] and saved[3] == 130
    assert cleaned == ["interrupted", None, "interrupted", 130]
    assert (tmp_path / "0.saved").exists() and (tmp_path / "1.saved").exists()
    assert rest == [["interrupted", None, "interrupted before it started", 130]] * 2


@pytest.mark.parametrize("twice", [False, True])
def test_interrupt_ends_what_does_not_listen(script, tmp_path, twice):
    ready = tmp_path / "ready"
    process = script(
        [job("deaf", "ignore_interrupt", ready=str(ready)), job("b", "square", x=1)],
        grace=60.0 if twice else 0.5,
    )
    wait_for(ready.exists)
    process.send_signal(signal.SIGINT)
    if twice:
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=15)
    assert err == ""
    assert json.loads(out)[0] == ["interrupted", None, "interrupted before it could save", 130]
    assert not alive(int(ready.read_text()))


def test_interrupt_here_leaves_the_rest_undone(script, tmp_path):
    ready = tmp_path / "ready"
    jobs = [job("a", "sleep", ready=str(ready)), job("b", "square", x=1)]
    process = script(jobs, workers=0)
    wait_for(ready.exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=15)
    assert err == ""
    assert [outcome[0] for outcome in json.loads(out)] == ["interrupted", "interrupted"]


def test_a_child_interrupted_alone_says_so_and_the_others_finish():
    first, second = run_jobs([job("a", "interrupt_self"), job("b", "square", x=2)], workers=2)
    assert (first.status, first.exit_code) == ("interrupted", 130)
    assert second.status == "done"


def test_an_interrupt_cuts_no_message_in_two(tmp_path):
    ready = tmp_path / "ready"
    seen = []

    def interrupt_after_a_while(job, kind, info):
        seen.append(kind)
        if kind == "progress" and len(seen) == 50:
            time.sleep(0.1)  # by now the pipe is full and the child is amid a message
            os.kill(int(ready.read_text()), signal.SIGINT)
        assert kind != "progress" or len(info["text"]) == 50_000

    outcome = run_jobs(
        [job("a", "report_while_interrupted", ready=str(ready))], 2, interrupt_after_a_while
    )[0]
    assert outcome.status == "interrupted" and len(seen) > 50


def test_children_end_when_the_parent_is_killed(script, tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    process = script([job(path.name, "ignore_interrupt", ready=str(path)) for path in paths])
    wait_for(lambda: all(path.exists() for path in paths))
    family = children_of(process.pid)
    assert {int(path.read_text()) for path in paths} < family
    process.kill()
    wait_for(lambda: not any(alive(pid) for pid in family), seconds=5.0)


def test_children_begin_with_what_every_run_needs():
    names = ["pandas", "pyarrow.parquet", "safetensors.numpy", "flatlab.training.session"]
    jobs = [Job(str(i), "jobs_for_tests:loaded", {"names": names}) for i in range(2)]
    for outcome in run_jobs(jobs, workers=2):
        assert outcome.result["modules"] == [True] * 4
        assert outcome.result["functions"] > 100  # numba's tables are filled


def test_an_unguarded_script_and_a_broken_preload_do_not_matter(tmp_path):
    (tmp_path / "broken_preload.py").write_text("raise RuntimeError('broken')")
    path = tmp_path / "unguarded.py"
    path.write_text(
        "from flatlab.jobs import executor\n"
        "executor.PRELOAD = ('broken_preload', 'no_such_module')\n"
        "jobs = [executor.Job('a', 'jobs_for_tests:square', {'x': x}) for x in range(3)]\n"
        "print([outcome.result['square'] for outcome in executor.run_jobs(jobs, workers=2)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", path],
        env=environment(HERE, str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == "[0, 1, 4]\n", done.stderr
