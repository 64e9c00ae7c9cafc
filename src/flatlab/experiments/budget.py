"""A budget of time: how to write it, and what is most worth running within it.

Every choice rests on estimated seconds (`flatlab.jobs.costs`), so it is a plan, not a promise.
"""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Iterable, Mapping, Sequence

from ..errors import UserError

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_budget(text: str) -> float:
    """Read a duration in seconds: a number with s, m or h, or a sum of several.

    >>> [parse_budget(text) for text in ("90s", "30m", "1h30m", "1.5h")]
    [90.0, 1800.0, 5400.0, 5400.0]
    """
    part = r"(\d+(?:\.\d+)?)([smh])"
    if not re.fullmatch(f"(?:{part})+", text.strip()):
        raise UserError(
            f"a budget is a number with s, m or h, such as 90s, 30m, 2h or 1h30m, got {text!r}"
        )
    seconds = sum(float(number) * UNITS[unit] for number, unit in re.findall(part, text))
    if not 0 < seconds < float("inf"):
        raise UserError(f"a budget must be more than 0, got {text!r}")
    return seconds


@dataclasses.dataclass(frozen=True)
class Offer:
    """An experiment that may be run.

    Attributes:
        id: Its id.
        levels: The digests of its runs with one seed, with two, and so on.
        undecided: How many of its verdicts the existing runs leave open.
        verdicts: How many verdicts it has.
    """

    id: str
    levels: tuple[tuple[str, ...], ...]
    undecided: int
    verdicts: int


@dataclasses.dataclass(frozen=True)
class Choice:
    """What to run: how many seeds (levels) of each experiment, and the runs in order."""

    levels: Mapping[str, int]
    order: tuple[str, ...]


def everything(offers: Iterable[Offer], seconds: Mapping[str, float]) -> Choice:
    """Choose all runs, the longest first, so that all cores are busy to the end."""
    offers = list(offers)
    keys = dict.fromkeys(key for offer in offers for key in offer.levels[-1] if key in seconds)
    order = sorted(keys, key=lambda key: -seconds[key])
    return Choice({offer.id: len(offer.levels) for offer in offers}, tuple(order))


def within(
    offers: Iterable[Offer], seconds: Mapping[str, float], budget: float, workers: int
) -> Choice:
    """Choose what fits: one seed of each experiment first, then a second of each, and so on.

    At the same number of seeds, the experiment with the fewest seconds per verdict comes first; for
    the first seed only the verdicts that are still open count. A run that experiments share is paid
    for once. Runs are in the order of choice, and the longest first within an experiment. So if the
    budget ends early, the runs most worth having are complete.

    Args:
        offers: The experiments to choose from.
        seconds: Digest → estimated seconds of each run that is not done yet.
        budget: Seconds of wall-clock.
        workers: Runs at a time.
    """
    offers = list(offers)
    levels = dict.fromkeys((offer.id for offer in offers), 0)
    order: list[str] = []
    for level in range(max((len(offer.levels) for offer in offers), default=0)):
        waiting = [o for o in offers if levels[o.id] == level < len(o.levels)]
        while waiting:
            open_runs = seconds.keys() - set(order)
            new = {o.id: [key for key in o.levels[level] if key in open_runs] for o in waiting}
            best = min(waiting, key=lambda o: _a_verdict(o, level, new[o.id], seconds))
            waiting.remove(best)
            tried = order + sorted(new[best.id], key=lambda key: -seconds[key])
            if makespan([seconds[key] for key in tried], workers) <= budget:
                order, levels[best.id] = tried, level + 1
    return Choice(levels, tuple(order))


def _a_verdict(offer: Offer, level: int, new: Sequence[str], seconds: Mapping[str, float]) -> float:
    worth = offer.undecided if level == 0 else offer.verdicts
    cost = sum(seconds[key] for key in new)
    return 0.0 if cost == 0 else cost / worth if worth else float("inf")


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Return when the last job ends if jobs start in order on this number of workers.

    >>> makespan([3.0, 2.0, 2.0, 1.0], 2)
    4.0
    """
    ends = [0.0] * workers
    for one in seconds:
        heapq.heappush(ends, heapq.heappop(ends) + one)
    return max(ends)
