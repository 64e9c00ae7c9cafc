"""What a picture of the theory is: the source it illustrates, its function, and its seconds.

`illustrations.PICTURES` is the catalogue. A picture is one function and one line there:

    "norms": Illustration("wu2025", norms_plot, seconds=5),
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..errors import UserError, listed
from ..plots import Curves, Plot

Tell = Callable[[str], None]
LINEAR = partial(Curves, xscale="linear")
LOGARITHMIC = partial(Curves, xscale="log", yscale="log")


@dataclass(frozen=True)
class Illustration:
    """A picture of the theory.

    Attributes:
        source: The source whose statements it shows, by the first part of their ids.
        make: Returns the picture; it says what is under way to its argument.
        seconds: About how long that takes, for a progress bar.
    """

    source: str
    make: Callable[[Tell], Plot]
    seconds: float = 1.0


def of_sources(
    catalogue: Mapping[str, Illustration], sources: Sequence[str]
) -> tuple[Illustration, ...]:
    """Return the pictures of some sources, in the order of the catalogue; of all if none is named.

    Raises:
        UserError: A source has no pictures.
    """
    there = list(dict.fromkeys(each.source for each in catalogue.values()))
    for name in sources:
        if name not in there:
            raise UserError(
                f"--pictures draws the pictures of a source and checks nothing: {name!r} is no "
                f"source with pictures, those are {listed(there)}"
            )
    return tuple(each for each in catalogue.values() if not sources or each.source in sources)
