"""The contract of backends: a new one is a line in BACKENDS, and must pass everything here."""

import os
import signal
import time
from collections import defaultdict

import pytest
from processes import alive
from ray_for_tests import ray_here  # noqa: F401

from flatlab.errors import UserError
from flatlab.jobs import Care, Job, LocalProcesses, Outcome, run, run_jobs
from flatlab.jobs.contract import NOT_SAVED, Progress, Started
from flatlab.jobs.ray_tasks import RayTasks

# Each runs two jobs at once.
BACKENDS = {"local processes": lambda: LocalProcesses(2), "ray": RayTasks}


def job(name, function, after=(), timeout=None, **payload):
    return Job(name, f"jobs_for_tests:{function}", payload, tuple(after), timeout)


def opened(request):
    if request.param == "ray":
        request.getfixturevalue("ray_here")
    return BACKENDS[request.param]()


@pytest.fixture(params=BACKENDS)
def backend(request):
    with opened(request) as made:
        yield made


@pytest.fixture(params=["this process", *BACKENDS])
def workers(request):
    """What `run_jobs` takes as workers: 0 for this process, and every backend."""
    if request.param == "this process":
        yield 0
        return
    with opened(request) as made:
        yield made


class Listener:
    """Keeps the events of every job; calls `react(job, kind, info)` after each."""

    def __init__(self, react=lambda job, kind, info: None):
        self.react, self.events, self.order = react, defaultdict(list), []

    def __call__(self, job, kind, info):
        self.events[job.name].append((kind, info))
        self.order.append((job.name, kind))
        self.react(job, kind, info)

    def kinds(self, name):
        return [kind for kind, _ in self.events[name]]

    def pids(self):
        """Return the process ids that jobs reported when they were ready."""
        told = (info for events in self.events.values() for kind, info in events)
        return [info["pid"] for info in told if "pid" in info]


def interrupting(*ready, times=1):
    """Return a listener that raises SIGINT here when all these jobs have reported."""

    def react(job, kind, info):
        reported = [name for name in ready if "progress" in listener.kinds(name)]
        if kind == "progress" and len(reported) == len(ready):
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    listener = Listener(react)
    return listener


# Results, progress, failures


def test_results_come_in_the_order_of_the_jobs(workers):
    outcomes = run_jobs([job(str(x), "square", x=x) for x in range(4)], workers)
    assert [outcome.job.name for outcome in outcomes] == ["0", "1", "2", "3"]
    assert [outcome.result["square"] for outcome in outcomes] == [0, 1, 4, 9]
    assert {(outcome.status, outcome.exit_code) for outcome in outcomes} == {("done", 0)}
    here = [outcome.result["pid"] == os.getpid() for outcome in outcomes]
    assert here == [workers == 0] * 4


def test_none_of_500_small_jobs_is_lost(workers):
    jobs, listener = [job(str(x), "square", x=x, steps=1) for x in range(500)], Listener()
    outcomes = run_jobs(jobs, workers, listener)
    assert [outcome.result["square"] for outcome in outcomes] == [x * x for x in range(500)]
    assert {tuple(listener.kinds(one.name)) for one in jobs} == {
        ("started", "progress", "finished")
    }


def test_nothing_to_do(workers):
    assert run_jobs([], workers) == []


def test_events_arrive_in_order(workers):
    listener = Listener()
    run_jobs([job("a", "square", x=1, steps=3), job("b", "fail")], workers, listener)
    assert listener.kinds("a") == ["started", *["progress"] * 3, "finished"]
    assert [info["step"] for kind, info in listener.events["a"] if kind == "progress"] == [0, 1, 2]
    last = listener.events["a"][-1][1]
    assert (last["status"], last["error"]) == ("done", None) and last["seconds"] > 0
    other = [(kind, info.get("error")) for kind, info in listener.events["b"]]
    assert other == [("started", None), ("finished", "ValueError: a bug")]


def test_a_slow_listener_costs_progress_but_never_the_job_or_its_large_result(backend):
    slow = Listener(lambda job, kind, info: time.sleep(0.001))
    (outcome,) = run_jobs([job("a", "chat")], backend, slow)
    assert len(outcome.result["result"]) == 1_000_000


def test_failures_are_told_apart_and_stop_no_other(workers):
    jobs = [
        job("bug", "fail"),
        job("foreseen", "fail_as_foreseen"),
        job("exit", "leave"),
        job("result", "not_plain"),
        job("list", "not_a_dict"),
        Job("module", "no_such_module:f", {}),
        job("function", "no_such_function"),
        Job("format", "jobs_for_tests", {}),
        job("fine", "square", x=3),
    ]
    outcomes = {one.job.name: one for one in run_jobs(jobs, workers)}
    assert outcomes.pop("fine").result["square"] == 9
    assert {one.status for one in outcomes.values()} == {"failed"}
    assert {one.result for one in outcomes.values()} == {None}
    bug, foreseen = outcomes["bug"], outcomes["foreseen"]
    assert (bug.error, bug.exit_code) == ("ValueError: a bug", 1) and "in fail" in bug.traceback
    assert (foreseen.error, foreseen.exit_code) == ("no space left", 7)
    assert foreseen.traceback is None
    assert outcomes["exit"].error == "SystemExit: 4"
    assert outcomes["result"].error.startswith("TypeError: Object of type object is not JSON")
    assert outcomes["list"].error == (
        "TypeError: jobs_for_tests:not_a_dict must return a dict, got list"
    )
    assert outcomes["module"].error.startswith("cannot import ")
    assert outcomes["function"].error == "jobs_for_tests has no function 'no_such_function'"
    assert "package.module:function" in outcomes["format"].error
    assert outcomes["format"].exit_code == 2


def test_a_payload_that_is_not_plain_is_refused_before_anything_starts(workers):
    listener = Listener()
    with pytest.raises(UserError, match=r"payload of job b must be plain data"):
        run_jobs([job("a", "square", x=1), job("b", "square", x=object())], workers, listener)
    assert not listener.order


def test_a_job_that_dies_is_named_with_the_cause(backend):
    jobs = [
        job("killed", "kill_self", signal="SIGKILL"),
        job("broken", "kill_self", signal="SIGSEGV"),
        job("gone", "exit_at_once"),
        job("fine", "square", x=3),
    ]
    killed, broken, gone, fine = run_jobs(jobs, backend)
    assert (killed.status, killed.error) == ("failed", "job killed died (signal SIGKILL)")
    assert broken.error == "job broken died (signal SIGSEGV)"
    assert gone.error == "job gone died (exit code 3)" and gone.exit_code == 1
    assert killed.died and broken.died and gone.died and not fine.died
    assert fine.status == "done"


def test_a_job_that_fails_is_tried_again_if_asked(workers):
    listener = Listener()
    care = Care(retries=1, retry_failed=True)
    failed, fine = run_jobs(
        [job("a", "fail"), job("b", "square", x=3)], workers, listener, care=care
    )
    assert (failed.status, failed.died, fine.result["square"]) == ("failed", False, 9)
    assert listener.kinds("a") == ["started", "retrying", "started", "finished"]


# Dependencies


def test_a_job_starts_when_those_it_comes_after_are_done(workers):
    jobs = [
        job("last", "square", x=4, after=["left", "right"]),
        job("left", "square", x=2, after=["first"]),
        job("right", "square", x=3, after=["first"]),
        job("first", "square", x=1),
    ]
    listener = Listener()
    outcomes = run_jobs(jobs, workers, listener)
    assert [outcome.result["square"] for outcome in outcomes] == [16, 4, 9, 1]
    for one in jobs:
        for needed in one.after:
            assert listener.order.index((needed, "finished")) < listener.order.index(
                (one.name, "started")
            )


def test_what_needs_a_failed_job_fails_and_names_it(workers):
    jobs = [
        job("after that", "square", x=1, after=["next"]),
        job("next", "square", x=1, after=["broken"]),
        job("broken", "fail_as_foreseen"),
        job("other", "square", x=5),
    ]
    listener = Listener()
    last, following, broken, other = run_jobs(jobs, workers, listener)
    assert (broken.status, other.result["square"]) == ("failed", 25)
    for one in (following, last):
        assert one.status == "failed" and one.exit_code == 7 and one.seconds == 0
        assert one.error == f"job {one.job.name} needs job broken, which failed: no space left"
        assert listener.kinds(one.job.name) == ["finished"]


# Timeouts


def test_a_job_that_hangs_past_its_timeout_is_killed_and_fails(workers, monkeypatch):
    """Also for jobs that would run in this process: they get one of their own."""
    monkeypatch.setattr(run, "GRACE", 0.3)
    listener = Listener()
    jobs = [
        job("hangs", "ignore_interrupt", timeout=1.5),
        job("fine", "square", x=3, timeout=600),
        job("needs", "square", x=3, after=["hangs"]),
    ]
    hangs, fine, needs = run_jobs(jobs, workers, listener)
    assert (hangs.status, hangs.exit_code) == ("failed", 1)
    assert hangs.error == "job hangs took longer than 1.5 s" and hangs.seconds >= 1.5
    assert fine.result["square"] == 9 and fine.result["pid"] != os.getpid()
    assert needs.error.endswith("failed: job hangs took longer than 1.5 s")
    assert not any(alive(pid) for pid in listener.pids())


# Interrupts


def test_an_interrupt_lets_running_jobs_save_and_starts_no_other(backend, tmp_path):
    saved = tmp_path / "saved"
    jobs = [
        job("saves", "save_on_interrupt"),
        job("cleans", "clean_up_on_interrupt", saved=str(saved)),
        job("late", "square", x=1),
        job("after", "square", x=1, after=["saves"]),
    ]
    saves, cleans, late, after = run_jobs(jobs, backend, interrupting("saves", "cleans"))
    assert (saves.status, saves.exit_code) == ("interrupted", 130)
    assert saves.result == {"status": "interrupted", "epoch": 3}
    assert (cleans.status, cleans.error, cleans.result) == ("interrupted", "interrupted", None)
    assert saved.exists()
    assert (late.status, late.exit_code, late.seconds) == ("interrupted", 130, 0)
    assert late.error == "interrupted before it started" and after.status == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_in_this_process_leaves_the_rest_undone():
    jobs = [job("saves", "save_on_interrupt"), job("late", "square", x=1)]
    saves, late = run_jobs(jobs, 0, interrupting("saves"))
    assert saves.result == {"status": "interrupted", "epoch": 3}
    assert (late.status, late.error) == ("interrupted", "interrupted before it started")


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_ends_what_does_not_listen(backend, monkeypatch, times):
    """After the grace, which a second interrupt shortens."""
    monkeypatch.setattr(run, "GRACE", 0.3 if times == 1 else 600.0)
    monkeypatch.setattr(run, "SHORT_GRACE", 0.3)
    listener = interrupting("deaf", times=times)
    jobs = [job("deaf", "ignore_interrupt"), job("b", "square", x=1)]
    deaf, _ = run_jobs(jobs, backend, listener)
    assert (deaf.status, deaf.error) == ("interrupted", "interrupted before it could save")
    assert not any(alive(pid) for pid in listener.pids())


def test_an_interrupt_in_the_callback_stops_everything(workers):
    def react(job, kind, info):
        if kind == "finished":
            raise KeyboardInterrupt

    jobs = [job("a", "square", x=2), job("b", "sleep", after=["a"])]
    first, second = run_jobs(jobs, workers, Listener(react))
    assert (first.status, second.status) == ("done", "interrupted")


def test_a_job_interrupted_alone_says_so_and_the_others_finish(backend):
    jobs = [job("a", "interrupt_self"), job("b", "square", x=2), job("c", "fail", after=["a"])]
    first, second, third = run_jobs(jobs, backend)
    assert (first.status, first.exit_code) == ("interrupted", 130)
    assert second.status == "done"
    assert (third.status, third.exit_code) == ("interrupted", 130)
    assert third.error == "job c needs job a, which was interrupted"


def test_at_the_given_time_what_runs_is_interrupted_and_nothing_more_starts(backend):
    jobs = [job("long", "sleep"), job("after", "square", x=1, after=["long"])]
    long, after = run_jobs(jobs, backend, until=time.monotonic() + 1)
    assert (long.status, after.status) == ("interrupted", "interrupted")
    (never,) = run_jobs([job("never", "square", x=1)], backend, until=time.monotonic())
    assert (never.status, never.error) == ("interrupted", "interrupted before it started")


def test_a_callback_that_raises_leaves_no_job_running(backend):
    def react(job, kind, info):
        if kind == "progress":
            raise RuntimeError("callback")

    listener = Listener(react)
    with pytest.raises(RuntimeError, match="callback"):
        run_jobs([job("a", "sleep"), job("b", "square", x=1)], backend, listener)
    assert not any(alive(pid) for pid in listener.pids())
    assert run_jobs([job("a", "square", x=3)], backend)[0].result["square"] == 9  # it works on


# The calls themselves


def events_until(backend, wanted):
    """Poll until an event of this kind has come; return all that came."""
    events, until = [], time.monotonic() + 120
    while not any(isinstance(event, wanted) for event in events):
        assert time.monotonic() < until, "waited in vain"
        events += backend.poll(0.1)
    return events


def test_a_submitted_job_starts_reports_and_ends(backend):
    one = job("a", "square", x=3, steps=2)
    assert backend.room() >= 2
    backend.submit(one)
    started, *progress, outcome = events_until(backend, Outcome)
    assert isinstance(started, Started) and [event.info["step"] for event in progress] == [0, 1]
    assert outcome.job == one and outcome.result["square"] == 9
    assert all(event.job == one for event in (started, *progress))
    backend.cancel(one)  # it has ended: nothing happens
    backend.cancel(one, kill=True)
    assert list(backend.poll(0.0)) == [] and backend.room() >= 2


def test_a_cancelled_job_may_save_and_a_killed_one_may_not(backend):
    saves, deaf = job("saves", "save_on_interrupt"), job("deaf", "ignore_interrupt")
    for one in (saves, deaf):
        backend.submit(one)
        events_until(backend, Progress)
        backend.cancel(one)
    outcome = events_until(backend, Outcome)[-1]
    assert outcome.job == saves and outcome.result == {"status": "interrupted", "epoch": 3}
    backend.cancel(deaf, kill=True)
    outcome = events_until(backend, Outcome)[-1]
    assert outcome == Outcome.of(deaf, NOT_SAVED, outcome.seconds)


def test_closing_ends_what_runs(backend):
    backend.submit(job("a", "ignore_interrupt"))
    pid = events_until(backend, Progress)[-1].info["pid"]
    backend.close()
    assert not alive(pid)
