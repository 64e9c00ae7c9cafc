"""Ctrl-C is acknowledged at once, once, and changes nothing else."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from flatlab.training.interrupts import noticed


@pytest.fixture
def handled():
    """Count the interrupts that reach a handler of one's own."""
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(True))
    yield seen
    signal.signal(signal.SIGINT, before)


def test_it_is_said_once_and_by_then_nothing_has_ended(handled):
    said, heard = [], threading.Event()

    def say():
        said.append(True)
        heard.set()

    with noticed(say):
        os.kill(os.getpid(), signal.SIGINT)
        assert heard.wait(30)  # amid the work, not after it
        os.kill(os.getpid(), signal.SIGINT)
    assert said == [True] and handled == [True, True]


def test_nothing_is_said_without_a_signal_and_nothing_is_left_behind(handled):
    before, said = set(os.listdir("/proc/self/fd")), []
    with noticed(lambda: said.append(True)):
        threads = threading.active_count()
    assert said == [] and threading.active_count() == threads - 1
    assert set(os.listdir("/proc/self/fd")) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_terminal_that_is_gone_is_no_error(handled):
    def say():
        raise BrokenPipeError

    with noticed(say):
        os.kill(os.getpid(), signal.SIGINT)
    assert handled == [True]


def test_in_another_thread_it_does_nothing():
    entered = []

    def work():
        with noticed(lambda: None):
            entered.append(threading.active_count())

    before = threading.active_count()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [before + 1]
