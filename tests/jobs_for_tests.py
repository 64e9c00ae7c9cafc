"""Functions of jobs for the tests; child processes find them through the parent's sys.path."""

import gc
import os
import signal
import sys
import time
from pathlib import Path

from flatlab.errors import StoreError


def leave_pid(path):
    path = Path(path)
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)  # so that the file is never seen empty


def say_ready(payload, report):
    """Tell the test that the job runs, by a report and, if asked, by a file with its pid."""
    if "ready" in payload:
        leave_pid(payload["ready"])
    report({"pid": os.getpid()})


def square(payload, report):
    for step in range(payload.get("steps", 0)):
        report({"step": step})
    return {"square": payload["x"] ** 2, "pid": os.getpid()}


def loaded(payload, report):
    from numba.core.registry import cpu_target

    return {
        "modules": [name in sys.modules for name in payload["names"]],
        "functions": len(cpu_target.typing_context._functions),
        "frozen": gc.get_freeze_count(),
    }


def fail(payload, report):
    raise ValueError("a bug")


def fail_as_foreseen(payload, report):
    error = StoreError("no space left")
    error.exit_code = 7
    raise error


def leave(payload, report):
    raise SystemExit(4)


def kill_self(payload, report):
    os.kill(os.getpid(), getattr(signal, payload["signal"]))
    time.sleep(600)


def exit_at_once(payload, report):
    os._exit(3)


def not_plain(payload, report):
    report({"path": Path("a"), ("not", "a key"): 1})
    return {"value": object()}


def not_a_dict(payload, report):
    return [1, 2]


def chat(payload, report):
    for step in range(20_000):
        report({"step": step, "text": "x" * 500})
    return {"result": "y" * 1_000_000}


def report_and_wait(payload, report):
    """Report so many times, say by a file that this is done, and stay."""
    for step in range(payload["steps"]):
        report({"step": step, "text": "x" * 500})
    leave_pid(payload["ready"])
    time.sleep(600)


def threads(payload, report):
    import numpy as np
    import threadpoolctl

    np.ones((8, 8)) @ np.ones((8, 8))
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return {
        "environment": [os.environ.get(name) for name in names],
        "pools": [pool["num_threads"] for pool in threadpoolctl.threadpool_info()],
        "seen": os.environ.get("FLATLAB_TEST_MARK"),
        "directory": os.getcwd(),
    }


def sleep(payload, report):
    say_ready(payload, report)
    time.sleep(600)
    return {}


def save_on_interrupt(payload, report):
    """Behave as a trainer does: finish the step, save, return; calm about further signals."""
    stop = []
    before = signal.signal(signal.SIGINT, lambda *_: stop.append(True))
    say_ready(payload, report)
    while not stop:
        time.sleep(0.01)
    time.sleep(0.3)
    signal.signal(signal.SIGINT, before)
    return {"status": "interrupted", "epoch": 3}


def clean_up_on_interrupt(payload, report):
    """Take the default KeyboardInterrupt and need some time; a second signal must not hurt."""
    try:
        return sleep(payload, report)
    except KeyboardInterrupt:
        time.sleep(0.3)
        Path(payload["saved"]).write_text("saved")
        raise


def ignore_interrupt(payload, report):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return sleep(payload, report)


def interrupt_self(payload, report):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)


def report_while_interrupted(payload, report):
    """Send long messages while SIGINT strikes; none of them may arrive cut in two."""
    while True:
        report({"pid": os.getpid(), "text": "x" * 50_000})
