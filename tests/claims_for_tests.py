"""Made-up claims for the tests of verifying; children find them through the parent's sys.path."""

import os
import signal

from flatlab.claims import claims, verifying
from flatlab.claims.contract import by_experiment, claim, not_checkable, not_yet, printed
from flatlab.claims.lines import at_least, equal, frequency, shown, true

TARGET = f"{__name__}:check_made_up"


@claim("made.good", "nowhere", "identity", "one and one is two")
def good(trial):
    yield shown("one", 1)
    yield true("two is a number", True)
    yield equal("one and one", 1 + 1, 2)
    yield frequency("heads in 10 tosses", 5, 10, at_most=0.9)


@claim(
    "made.corrected", "page 1", "identity", "1 + 1 = 2", as_printed="1 + 1 = 3", errata=("E1",),
    note="only for integers",
)  # fmt: skip
def corrected(trial):
    yield printed(equal("one and one", 2, 3))
    yield equal("one and one", 2, 2)


@claim("made.wrong", "page 2", "inequality", "everything is at least 1")
def wrong(trial):
    yield equal("a line that holds", 1, 1)
    yield at_least("the smallest of 10", trial.rng("made").uniform(0, 0.5, 10).min(), 1)


@claim("made.misprint_holds", "page 3", "identity", "x = x", as_printed="y = y")
def misprint_holds(trial):
    yield printed(equal("y", 1, 1))
    yield equal("x", 1, 1)


@claim("made.raises", "page 4", "identity", "it can be computed")
def raises(trial):
    yield equal("x", 1, 1)
    raise ZeroDivisionError("no such\nnumber")


@claim("made.judges_nothing", "page 5", "identity", "nothing")
def judges_nothing(trial):
    yield shown("x", 1)


@claim("made.threads", "page 6", "definition", "one thread")
def threads(trial):
    import torch

    yield equal("threads", torch.get_num_threads(), 1)


@claim("made.dies", "page 7", "identity", "the process lives")
def dies(trial):
    os.kill(os.getpid(), signal.SIGKILL)
    yield equal("x", 1, 1)


@claim("made.interrupts", "page 8", "identity", "nobody presses Ctrl-C")
def interrupts(trial):
    yield equal("x", 1, 1)
    raise KeyboardInterrupt


@claim("made.sleeps", "page 9", "identity", "it is quick")
def sleeps(trial):
    import time

    time.sleep(600)
    yield equal("x", 1, 1)


there = by_experiment("made.there", "page 10", "networks learn", "wen2023/table1")
missing = by_experiment("made.missing", "page 11", "networks learn more", "made/nowhere")
words = not_checkable("made.words", "page 12", "text", "a word", "only a word")
(later,) = not_yet("made", ("later", "page 13", "identity", "x = y"))

CLAIMS = (
    good, corrected, wrong, misprint_holds, raises, judges_nothing, threads, dies, interrupts,
    sleeps, there, missing, words, later,
)  # fmt: skip


def made_up(*names):
    """Return a registry of some of the claims, in this order; all without names."""
    by_name = {claim.id.removeprefix("made."): claim for claim in CLAIMS}
    return {by_name[name].id: by_name[name] for name in names or by_name}


def check_made_up(payload, report):
    """Do in a child what a test does in its own process: put the made-up claims in place."""
    if verifying.claims is claims:  # not yet, so this is a child
        verifying.claims = made_up
    return verifying.check_claims(payload, report)
