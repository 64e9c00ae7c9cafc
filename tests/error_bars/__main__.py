"""Examine problems and write the table of docs/measures.md; `--print` only prints it."""

from __future__ import annotations

import argparse
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import torch

from .judging import Findings, examine, shares
from .problems import draw
from .table import tables, write
from .test_coverage import FIRST, PROBLEMS


def _prepare() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")


def _examined(seed: int) -> tuple[str, Findings | str]:
    problem = draw(seed)
    try:
        return str(problem), examine(problem)
    except RuntimeError as error:
        return str(problem), f"not examined: {error}"


def main() -> None:
    """Parse, examine, write."""
    parser = argparse.ArgumentParser(prog="python -m error_bars", description=__doc__)
    parser.add_argument("--problems", type=int, default=PROBLEMS)
    parser.add_argument("--seed", type=int, default=FIRST, help="the first problem's seed")
    parser.add_argument("--print", action="store_true", help="leave the page alone")
    options = parser.parse_args()
    judged, refused, lost = [], 0, 0
    seeds = range(options.seed, options.seed + options.problems)
    with ProcessPoolExecutor(initializer=_prepare) as pool:
        for problem, found in pool.map(_examined, seeds, chunksize=5):
            if isinstance(found, str):
                print(f"{problem}\n    {found}", file=sys.stderr, flush=True)
                lost += 1
                continue
            judged += found.judged
            refused += bool(found.refused)
            for line in found.wrong:
                print(f"{problem}\n    {line}", file=sys.stderr, flush=True)
    summed = shares(judged)
    text = tables(summed, options.problems, options.seed, lost)
    for share in summed:
        if share.complaint:
            print(share.complaint, file=sys.stderr)
    print(text if options.print else f"{refused} problems were refused", file=sys.stdout)
    if not options.print:
        write(text)


if __name__ == "__main__":
    main()
