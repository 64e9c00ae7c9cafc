"""How jobs are run, with a scripted backend and a fake clock."""

import pytest

from flatlab.errors import UserError
from flatlab.files.store import CHECKPOINT
from flatlab.jobs import Backend, Care, Job, run, run_jobs
from flatlab.jobs.contract import NOT_SAVED, Ending, Outcome, Started


class Played(Backend):
    """Each job takes as many seconds as its payload says; `wait` of them in a queue.

    `saves` is how many seconds a job needs to end when it is cancelled; without it, it must be
    killed, and if it is `stuck`, even that does not help. Its first tries end as `endings` say.
    """

    def __init__(self, clock, places=2):
        self.clock, self.places = clock, places
        self.jobs, self.ends, self.told, self.calls = {}, {}, set(), []

    def room(self):
        return self.places - len(self.jobs)

    def submit(self, job):
        self.calls.append(("submit", job.name, self.clock.now))
        self.jobs[job.name] = job
        begins = self.clock.now + job.payload.get("wait", 0)
        endings = job.payload.get("endings", [])
        how = endings.pop(0) if endings else {"status": "done", "result": {}}
        self.told.discard(job.name)
        self.ends[job.name] = begins + job.payload["seconds"], Ending(**how)

    def poll(self, seconds):
        self.clock.now += seconds
        events = []
        for name, job in list(self.jobs.items()):
            end, ending = self.ends[name]
            began = end - job.payload["seconds"]
            if name not in self.told and began <= self.clock.now:
                self.told.add(name)
                events.append(Started(job))
            if end <= self.clock.now:
                del self.jobs[name]
                events.append(Outcome.of(job, ending, 0.0))
        return events

    def cancel(self, job, *, kill=False):
        self.calls.append(("kill" if kill else "cancel", job.name, self.clock.now))
        if kill and not job.payload.get("stuck"):
            self.ends[job.name] = self.clock.now, NOT_SAVED
        elif not kill and "saves" in job.payload:
            end = self.clock.now + job.payload["saves"]
            self.ends[job.name] = end, Ending("interrupted", {"saved": True}, "interrupted", 130)

    def close(self):
        pass


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def backend(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(run, "time", clock)
    return Played(clock)


def job(name, seconds, after=(), timeout=None, **payload):
    return Job(name, "never:called", {"seconds": seconds, **payload}, tuple(after), timeout)


def submitted(backend):
    return [name for kind, name, _ in backend.calls if kind == "submit"]


def at(backend, kind, name):
    """Return when the backend was told to cancel or kill a job."""
    (found,) = [when for *call, when in backend.calls if call == [kind, name]]
    return found


NEAR = 2 * run.POLL_SECONDS  # what happens is noticed at a poll


def test_the_first_job_that_may_start_goes_first(backend):
    backend.places = 1
    jobs = [job("a", 1), job("b", 1, after=["c"]), job("c", 1), job("d", 1)]
    assert [one.status for one in run_jobs(jobs, backend)] == ["done"] * 4
    assert submitted(backend) == ["a", "c", "b", "d"]


def test_a_long_chain_that_breaks_names_its_broken_job(backend):
    jobs = [job("0", 50, timeout=1, saves=0)]
    jobs += [job(str(i), 1, after=[str(i - 1)]) for i in range(1, 3000)]
    outcomes = run_jobs(jobs[::-1], backend)
    assert outcomes[0].error == ("job 2999 needs job 0, which failed: job 0 took longer than 1 s")
    assert submitted(backend) == ["0"]


def test_a_timeout_counts_from_the_start_and_leaves_time_to_save(backend):
    (outcome,) = run_jobs([job("a", 900, timeout=60, wait=100, saves=5)], backend)
    assert (outcome.status, outcome.exit_code) == ("failed", 1)
    assert outcome.error == "job a took longer than 60 s" and outcome.result == {"saved": True}
    assert at(backend, "cancel", "a") == pytest.approx(160, abs=NEAR)
    assert [kind for kind, *_ in backend.calls] == ["submit", "cancel"]


def test_a_job_that_does_not_save_in_time_is_killed(backend):
    (outcome,) = run_jobs([job("a", 900, timeout=60)], backend)
    assert (outcome.status, outcome.error) == ("failed", "job a took longer than 60 s")
    assert at(backend, "kill", "a") == pytest.approx(60 + run.GRACE, abs=NEAR)


def test_a_job_that_is_done_in_spite_of_its_timeout_is_done(backend):
    (outcome,) = run_jobs([job("a", 65, timeout=60)], backend)
    assert outcome.status == "done"


def test_a_job_that_nothing_ends_is_given_up_and_a_late_word_from_it_ignored(backend):
    stuck, fine = run_jobs([job("a", 900, timeout=60, stuck=True), job("b", 1000)], backend)
    assert stuck.error == "job a took longer than 60 s" and fine.status == "done"
    assert at(backend, "kill", "a") == pytest.approx(60 + run.GRACE, abs=NEAR)
    assert stuck.seconds == pytest.approx(60 + run.GRACE + run.GIVE_UP, abs=2 * NEAR)


def test_at_the_given_time_all_is_cancelled_and_the_jobs_that_wait_stay_unstarted(backend):
    jobs = [job("a", 900, saves=3), job("b", 900), job("c", 1)]
    saved, killed, waiting = run_jobs(jobs, backend, until=30.0)
    assert saved.result == {"saved": True} and saved.status == "interrupted"
    assert (killed.status, killed.error) == ("interrupted", NOT_SAVED.error)
    assert waiting.error == "interrupted before it started"
    assert at(backend, "cancel", "a") == pytest.approx(30, abs=NEAR)
    assert at(backend, "kill", "b") == pytest.approx(30 + run.GRACE, abs=NEAR)


def test_a_callback_that_raises_gives_the_jobs_the_short_grace(backend):
    def react(job, kind, info):
        raise RuntimeError("callback")

    with pytest.raises(RuntimeError, match="callback"):
        run_jobs([job("a", 900, saves=1), job("b", 900)], backend, react)
    assert at(backend, "kill", "b") == pytest.approx(run.SHORT_GRACE, abs=2 * NEAR)
    assert not backend.jobs and [kind for kind, name, _ in backend.calls if name == "a"] == [
        "submit",
        "cancel",
    ]


DIED = {"status": "failed", "error": "job a died (signal SIGKILL)", "exit_code": 1, "died": True}
FAILED = {"status": "failed", "error": "ValueError: a bug", "exit_code": 1}


def told(jobs, backend, care):
    """Run the jobs; return the status of each and every (name, kind, info) but progress."""
    events = []
    outcomes = run_jobs(
        jobs, backend, lambda job, kind, info: events.append((job.name, kind, info)), care=care
    )
    return [one.status for one in outcomes], events


@pytest.mark.parametrize(("deaths", "status"), [(2, "done"), (3, "failed")])
def test_a_job_that_dies_is_started_again_so_many_times(backend, deaths, status):
    backend.places = 1
    jobs = [job("a", 1, endings=[DIED] * deaths), job("b", 1, after=["a"]), job("c", 1)]
    statuses, events = told(jobs, backend, Care(retries=2))
    assert statuses == [status, status, "done"]
    again = [info for _, kind, info in events if kind == "retrying"]
    assert again == [
        {"error": DIED["error"], "try": k, "of": 3, "start": "the beginning"} for k in (2, 3)
    ]
    first, second, third = [when for kind, name, when in backend.calls if name == "a"]
    assert second == pytest.approx(first + 1 + run.PAUSE, abs=1 + 2 * NEAR)  # c goes first
    assert third == pytest.approx(second + 1 + 2 * run.PAUSE, abs=2 * NEAR)
    assert [name for name, kind, _ in events if kind == "finished"].count("a") == 1


@pytest.mark.parametrize("fresh", [True, False])
def test_a_retry_says_where_it_goes_on_from(backend, tmp_path, fresh):
    (tmp_path / CHECKPOINT).touch()
    jobs = [job("a", 1, endings=[DIED], out=str(tmp_path), fresh=fresh)]
    _, events = told(jobs, backend, Care(retries=1))
    (start,) = [info["start"] for _, kind, info in events if kind == "retrying"]
    assert start == ("the beginning" if fresh else "its last checkpoint")


def test_a_job_that_fails_by_itself_is_retried_only_if_asked(backend):
    statuses, _ = told([job("a", 1, endings=[FAILED])], backend, Care(retries=1))
    assert statuses == ["failed"] and submitted(backend) == ["a"]
    care = Care(retries=1, retry_failed=True)
    assert told([job("a", 1, endings=[FAILED])], backend, care)[0] == ["done"]


def test_a_job_that_took_too_long_is_not_retried(backend):
    care = Care(retries=3, retry_failed=True, timeout=60)
    statuses, _ = told([job("a", 900, saves=1), job("b", 100, timeout=200)], backend, care)
    assert statuses == ["failed", "done"] and submitted(backend) == ["a", "b"]


def test_the_first_failure_stops_the_others_if_asked(backend):
    jobs = [job("long", 900, saves=1), job("a", 1, endings=[FAILED]), job("late", 1)]
    statuses, _ = told(jobs, backend, Care(fail_fast=True))
    assert statuses == ["interrupted", "failed", "interrupted"]
    assert submitted(backend) == ["long", "a"] and backend.clock.now < 10


@pytest.mark.parametrize(
    ("care", "message"),
    [({"retries": -1}, "retries must be >= 0, got -1"), ({"timeout": 0}, "timeout must be > 0")],
)
def test_care_that_makes_no_sense_is_refused(care, message):
    with pytest.raises(UserError, match=message):
        Care(**care)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([job("a", 1), job("b", 1), job("a", 1)], "names of jobs must differ, but 2 are a"),
        ([job("a", 1, after=["b"])], "job a comes after 'b', which is none of the jobs"),
        ([job("a", 1, after=["a"])], "jobs wait for each other: a after a"),
        (
            [job("a", 1, after=["b"]), job("b", 1, after=["c"]), job("c", 1, after=["a"])],
            "jobs wait for each other: . after . after . after .",
        ),
        ([job("a", 1, timeout=0)], "timeout of job a must be > 0, got 0"),
        ([job("a", 1, timeout=float("nan"))], "timeout of job a must be > 0, got nan"),
    ],
)
def test_jobs_that_cannot_be_run_are_refused_before_anything_starts(backend, jobs, message):
    with pytest.raises(UserError, match=message):
        run_jobs([job("fine", 1), *jobs], backend)
    assert not backend.calls


def test_a_negative_number_of_workers_is_refused():
    with pytest.raises(UserError, match=r"workers must be >= 0, got -1"):
        run_jobs([], workers=-1)
