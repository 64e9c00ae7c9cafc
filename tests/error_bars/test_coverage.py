"""Does the 95 % interval cover the truth 95 % of the time, and is no reading far off?

Every problem is a test of its own; the last test sums up over all of those that ran before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from .judging import Findings, examine, shares
from .problems import (
    AVERAGES,
    BATCHES,
    BOUNDED,
    CHEAP,
    LONG,
    MATRIX_MEASURES,
    MOMENTS,
    OTHER_MATRICES,
    PRECONDITIONED,
    PROBED,
    SEARCHES,
    draw,
)
from .table import tables

# Without --fresh: PROBLEMS problems, of which the first QUICK are not marked slow.
FIRST, PROBLEMS, QUICK = 1, 520, 10
EVERY = {
    *MATRIX_MEASURES, "lambda_min", "nonuniformity", *CHEAP, *AVERAGES, *SEARCHES,
    *BOUNDED, *PROBED, *LONG, *MOMENTS,
    *BOUNDED, *PROBED, *LONG, *PRECONDITIONED, *BATCHES, "batch_sharpness",
    *(f"{kind}_{name}" for kind in OTHER_MATRICES for name in MATRIX_MEASURES),
}  # fmt: skip

FOUND: dict[int, Findings] = {}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads cost more than they give on problems of this size."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each seed."""
    if "seed" not in metafunc.fixturenames:
        return
    fresh, seed = (metafunc.config.getoption(name) for name in ("--fresh", "--seed"))
    first, count = FIRST if seed is None else seed, PROBLEMS if fresh is None else fresh
    metafunc.parametrize(
        "seed",
        [
            pytest.param(first + place, marks=() if fresh or place < QUICK else pytest.mark.slow)
            for place in range(count)
        ],
    )


def test_no_reading_is_far_off(seed: int) -> None:
    """No reading is ten bars from the truth, and exact ones have six digits."""
    problem = draw(seed)
    FOUND[seed] = found = examine(problem)
    again = f"repeat it with: pytest tests/error_bars --fresh 1 --seed {seed}"
    assert not found.wrong, "\n".join([str(problem), *found.wrong, again])


def test_the_intervals_cover_the_truth(capsys: pytest.CaptureFixture[str]) -> None:
    """The share that covers is not below 95 % by its exact interval, and no search is beaten."""
    if not FOUND:
        pytest.skip("no problem was examined before")
    summed = shares(each for found in FOUND.values() for each in found.judged)
    with capsys.disabled():
        print(f"\n{tables(summed, len(FOUND), min(FOUND))}\n")
    complaints = [share.complaint for share in summed if share.complaint]
    again = f"repeat it with: pytest tests/error_bars --fresh {len(FOUND)} --seed {min(FOUND)}"
    assert not complaints, "\n".join([*complaints, again])
    assert summed or len(FOUND) < QUICK, f"no reading of {len(FOUND)} problems was judged; {again}"


@pytest.mark.slow
def test_every_measure_was_judged() -> None:
    """In the fixed problems every measure with a truth applies somewhere."""
    if len(FOUND) < PROBLEMS:
        pytest.skip("not all problems were examined before")
    names = {each.name for found in FOUND.values() for each in found.judged}
    assert names >= EVERY
