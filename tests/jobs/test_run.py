"""How jobs are run, with a scripted backend and a fake clock."""

import pytest

from flatlab.errors import UserError
from flatlab.jobs import Backend, Job, run, run_jobs
from flatlab.jobs.contract import NOT_SAVED, Ending, Outcome, Started


class Played(Backend):
    """Each job takes as many seconds as its payload says; `wait` of them in a queue.

    `saves` is how many seconds a job needs to end when it is cancelled; without it, it must be
    killed, and if it is `stuck`, even that does not help.
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
        self.ends[job.name] = begins + job.payload["seconds"], Ending("done", {})

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
