"""Functions of computations for the tests; children find them through the parent's sys.path."""

from pathlib import Path

from flatlab.experiments.computing import result_of


def square(payload, report):
    """Leave a line for each call in the file that the payload names, if it names one."""
    if "calls" in payload:
        with open(payload["calls"], "a") as file:
            file.write(f"{payload['x']}\n")
    report({"done": 0.5})
    return {"square": payload["x"] ** 2, "inexact": 0.1 + 0.2, "infinite": float("inf")}


def add_to_result_before(payload, report):
    return {"sum": result_of(payload["after"])["square"] + payload["x"]}


def fail_unless_there(payload, report):
    if not Path(payload["needs"]).exists():
        raise ValueError("not yet there")
    return {}


def interrupt_once(payload, report):
    """Be interrupted the first time, as by Ctrl-C."""
    mark = Path(payload["mark"])
    if not mark.exists():
        mark.touch()
        raise KeyboardInterrupt
    return {"finished": True}


def no_dict(payload, report):
    return 3
