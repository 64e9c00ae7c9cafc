"""A budget of time: how to write it, and what is most worth running within it.

Every choice rests on estimated seconds (`flatlab.jobs.costs`), so it is a plan, not a promise.
"""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..errors import UserError, shown, whole

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_budget(text: str, name: str = "budget") -> float:
    """Read a duration in seconds: a number with s, m or h, or a sum of several.

    >>> [parse_budget(text) for text in ("90s", "30m", "1h30m", "1.5h")]
    [90.0, 1800.0, 5400.0, 5400.0]
    """
    part = r"(\d+(?:\.\d+)?)([smh])"
    if not re.fullmatch(f"(?:{part})+", text.strip()):
        raise UserError(
            f"a {name} is a number with s, m or h, such as 90s, 30m, 2h or 1h30m, got {text!r}"
        )
    seconds = sum(float(number) * UNITS[unit] for number, unit in re.findall(part, text))
    if not 0 < seconds < float("inf"):
        raise UserError(f"a {name} must be more than 0, got {text!r}")
    return seconds


def seconds_of(given: object, name: str = "budget") -> float:
    """Return a duration in seconds: a number of them, or a text for `parse_budget`.

    >>> seconds_of(90), seconds_of("1m")
    (90.0, 60.0)
    """
    if isinstance(given, str):
        return parse_budget(given, name)
    number = whole(given)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise UserError(f"{name} must be seconds or a text such as '30m', got {shown(number)}")
    if not 0 < number < float("inf"):
        raise UserError(f"{name} must be a finite number of seconds > 0, got {number!r}")
    return float(min(number, 10**300))


@dataclasses.dataclass(frozen=True)
class Offer:
    """An experiment that may be run."""

    id: str
    levels: tuple[tuple[str, ...], ...]  # the digests of its runs with one seed, with two, …
    undecided: int  # how many of its verdicts the existing runs leave open
    verdicts: int
    deciding: int = 0  # the first level that decides verdicts; 0 if none does


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
    """Choose what fits: experiments with the seeds that decide them, then seeds one by one.

    The experiment with the fewest seconds per open verdict comes first. What is left of the budget
    goes to one seed of each experiment that did not fit, for a look at it, then to a second seed of
    each, and to more seeds of the decided ones. A run that experiments share is paid for once. Runs
    are in the order of choice, then seed by seed, the longest first. So if the budget ends early,
    the runs most worth having are complete. `seconds` has the estimate for each run that is not
    done yet, by digest.
    """
    offers = list(offers)
    levels = dict.fromkeys((offer.id for offer in offers), 0)
    order: list[str] = []

    def add(waiting: list[Offer], level_of: Callable[[Offer], int]) -> None:
        """Raise each of these experiments to a level if it fits, the cheapest verdicts first."""
        while waiting:
            open_runs = seconds.keys() - set(order)
            new = {
                o.id: [key for key in o.levels[level_of(o) - 1] if key in open_runs]
                for o in waiting
            }
            best = min(waiting, key=lambda o: _a_verdict(o, levels[o.id], new[o.id], seconds))
            waiting.remove(best)
            # Seed by seed, so that a budget that ends early leaves whole seeds.
            first = {key: k for k, keys in reversed([*enumerate(best.levels)]) for key in keys}
            tried = order + sorted(new[best.id], key=lambda key: (first[key], -seconds[key]))
            if makespan([seconds[key] for key in tried], workers) <= budget:
                order[:], levels[best.id] = tried, level_of(best)

    add([o for o in offers if o.deciding], lambda o: o.deciding)
    for level in range(max((len(offer.levels) for offer in offers), default=0)):
        add(
            [o for o in offers if levels[o.id] == level < len(o.levels)], lambda o: levels[o.id] + 1
        )
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
