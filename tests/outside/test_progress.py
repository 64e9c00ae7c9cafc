"""Lines of progress where there is no terminal."""

import multiprocessing
import re
import subprocess
import sys
import types

import pytest

import flatlab as fl
from conftest import TRAIN, command, environment
from flatlab.errors import UserError
from flatlab.jobs.progress import CheckProgress, JobProgress
from flatlab.outside import progress
from flatlab.training import sitting
from flatlab.training.session import run_job
from terminal import Terminal

LINE = r"train: \d+ %(, \d\d:\d\d left|, soon)?, loss [\d.e+-]+  trace [\d.]+  test error [\d.]+"


def test_a_log_gets_a_line_every_few_seconds(tmp_path):
    longer = [part.replace("epochs=5", "epochs=200000") for part in TRAIN]

    def train(*flags):
        environ = environment(FLATLAB_PROGRESS_SECONDS="0.1")
        arguments = command(*longer, *flags)
        return subprocess.run(
            arguments, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
        )

    lines = train("--out", "loud").stderr.splitlines()
    assert lines and all(re.fullmatch(LINE, line) for line in lines), lines
    assert "left" in "".join(lines)  # not in the first, before the pace is known
    shares = [int(re.search(r"(\d+) %", line)[1]) for line in lines]
    assert shares == sorted(shares)
    assert train("--out", "quiet", "--json").stderr == ""


def test_a_line_comes_when_it_is_due_and_is_about_all_the_work(clock, capsys, monkeypatch):
    monkeypatch.setenv(progress.LOG_SECONDS, "5")
    watch = clock(progress, __import__("flatlab.jobs.progress", fromlist=[""]))
    with CheckProgress(4, quiet=False) as shown:
        shown.update("a", "started")
        watch.now = 4.9
        shown.update("a", "finished")
        assert capsys.readouterr().err == ""
        watch.now = 8.0
        shown.update("b", "started")
        assert capsys.readouterr().err == "1/4 checks: 25 %, 00:24 left, b\n"
        shown.update("b", "finished")
    with JobProgress(quiet=False) as jobs:
        jobs.expect(3, {"a": 10.0, "b": 10.0, "c": 10.0}, 1)
        jobs.update("a", "started", {})
        watch.now = 18.0
        jobs.update("a", "finished", {})
        assert capsys.readouterr().err == "3 runs: 33 %, 00:20 left\n"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_the_seconds_of_a_log_are_a_number(monkeypatch, text):
    monkeypatch.setenv(progress.LOG_SECONDS, text)
    with pytest.raises(UserError, match="FLATLAB_PROGRESS_SECONDS must be seconds >= 0"):
        progress.ProgressLines(True)
    progress.ProgressLines(False)  # nothing is to be shown


def trained(**options):
    """Train a few epochs, with a report after each."""
    data, phase = fl.data.xor(d=4, n=6, seed=0, n_test=5), fl.Phase("sgd", lr=0.01, epochs=30)
    return fl.train(fl.models.TwoLayer(width=3), data, schedule=[phase], **options)


@pytest.fixture
def chatty(monkeypatch):
    """Report after every unit, and write a line of the log each time."""
    monkeypatch.setattr(sitting, "CHUNK_SECONDS", 0.0)
    monkeypatch.setenv(progress.LOG_SECONDS, "1e-9")


def test_train_writes_lines_of_a_log(chatty, capsys):
    trained()
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(re.fullmatch(LINE, line) for line in lines), lines
    assert lines[-1].startswith("train: 100 %, soon, loss")


def test_train_is_quiet_if_told_to_or_if_somebody_else_tells(chatty, capsys):
    told = []
    trained(progress=False)
    trained(report=told.append)
    trained(progress=False, report=told.append)
    assert capsys.readouterr().err == "" and len(told) >= 60
    before = len(told)
    trained(progress=True, report=told.append)
    assert len(told) > before and "train: 100 %" in capsys.readouterr().err
    with pytest.raises(UserError, match="progress must be True, False or None, got 'yes'"):
        trained(progress="yes")


def test_log_lines_of_train_are_off_with_seconds_0(chatty, capsys, monkeypatch):
    monkeypatch.setenv(progress.LOG_SECONDS, "0")
    trained()
    assert capsys.readouterr().err == ""


def test_a_job_draws_nothing(chatty, capsys, tmp_path):
    config = trained(progress=False).config.to_dict()
    told = []
    run_job({"config": config, "out": str(tmp_path / "run"), "fresh": False}, told.append)
    assert told and capsys.readouterr().err == ""


def test_train_in_a_worker_process_draws_nothing(chatty, capfd):
    worker = multiprocessing.get_context("fork").Process(target=trained)
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0 and capfd.readouterr().err == ""


def test_train_inside_other_lines_draws_nothing(chatty, capsys):
    with CheckProgress(1, quiet=True):
        trained()
    assert capsys.readouterr().err == ""
    trained()
    assert "train: 100 %" in capsys.readouterr().err


def test_a_resumed_run_is_timed_from_where_it_goes_on(clock, capsys, monkeypatch):
    monkeypatch.setenv(progress.LOG_SECONDS, "1")
    watch = clock(progress)
    with progress.TrainProgress() as shown:
        watch.now = 100.0  # compiling
        shown.update({"epoch": 50, "epochs": 100, "train_loss": 0.5})
        watch.now = 110.0
        shown.update({"epoch": 75, "epochs": 100, "train_loss": 0.25, "test_error": 0.1})
    assert capsys.readouterr().err.splitlines() == [
        "train: 50 %, loss 0.5",
        "train: 75 %, 00:10 left, loss 0.25  test error 0.1",
    ]


CODE = """
import flatlab as fl
data, phase = fl.data.xor(d=30, n=100), fl.Phase("sgd", lr=1e-4, batch_size=1, epochs={})
fl.train(fl.models.TwoLayer(width=100), data, schedule=[phase])
"""


def test_a_terminal_shows_a_line_of_train(tmp_path):
    terminal = Terminal(cwd=tmp_path, code=CODE.format(10**7))
    terminal.read(r"train .*%.* left .*loss")
    terminal.interrupt()
    assert terminal.end() != 0 and "KeyboardInterrupt" in terminal.seen


def test_a_short_run_shows_nothing_on_a_terminal(tmp_path):
    code = "import flatlab.outside.progress as p; p.SHORT_SECONDS = 60" + CODE.format(10)
    terminal = Terminal(cwd=tmp_path, code=code)
    assert terminal.end() == 0 and terminal.seen == ""


def test_a_notebook_shows_one_output_that_is_empty_at_the_end(chatty, monkeypatch, capsys):
    shown = []
    output = types.SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))

    def display(data, raw, display_id):
        shown.append(data["text/plain"])
        return output

    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 1e-9)
    trained()
    assert len(shown) > 2 and re.fullmatch(LINE, shown[-2]) and shown[-1] == ""
    assert capsys.readouterr().err == ""


STATES = """
import random
import flatlab as fl, numpy as np, torch
x, y = torch.zeros(6, 2), torch.ones(6)
phase = fl.Phase("sgd", lr=0.1, epochs=1)
CALLS = [
    lambda: fl.measure(torch.nn.Linear(2, 1), "mse", (x, y[:, None]), "parameter_norm"),
    lambda: fl.train(fl.models.TwoLayer(width=2), fl.data.xor(d=3, n=4), schedule=[phase]),
]
before = random.getstate(), np.random.get_state()[1].tolist()
CALLS[{}]()
assert before == (random.getstate(), np.random.get_state()[1].tolist())
"""


@pytest.mark.parametrize("call", [0, 1], ids=["measure", "train"])
def test_loading_the_lines_leaves_the_callers_random_numbers_alone(call):
    """In a process of its own, where nothing has imported rich before."""
    code = STATES.replace("CALLS[{}]", f"CALLS[{call}]")
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=120)


def test_a_download_tells_its_share_its_pace_and_the_time_left(clock, capsys, monkeypatch):
    monkeypatch.setenv(progress.LOG_SECONDS, "5")
    watch = clock(progress)
    with progress.DownloadProgress(True) as shown:
        shown.update("a.gz", 40_000_000, 100_000_000)  # there from before
        watch.now = 10.0
        shown.update("b.gz", 60_000_000, 100_000_000)
        line = "b.gz: 60 %, 00:20 left, 60.0 of 100.0 MB, 2.0 MB/s\n"
        assert capsys.readouterr().err == line
