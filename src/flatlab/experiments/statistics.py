"""Statistics over seeds: trends, equivalence, changes of slope, corrections, Simpson's reversal.

A seed is the unit that is drawn at random: it decides initial weights and sample order, and every
arm has the same seeds. So each function reduces a seed to one number, or resamples whole seeds with
all their runs. `scipy.stats` is imported when it is needed, since it takes a second to load.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..randomness import generator
from .contract import Interval

RESAMPLES = 10_000
LEVEL = 0.95
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Bootstrapped:
    """An estimate and its values in bootstrap resamples of n seeds.

    If it is the best of several `tries`, interval and p-value are corrected for their number.
    """

    estimate: float
    drawn: Floats
    n: int
    tries: int = 1

    def interval(self, level: float = LEVEL) -> Interval | None:
        """Return the expanded percentile interval; None for fewer than two seeds.

        With few seeds the percentiles of the bootstrap are too narrow: it estimates the variance
        with 1/n, and takes the normal law for Student's. Its tails are therefore cut at

            α' = Φ(√(n/(n − 1)) t_{n−1}(α/2))   in place of   α/2,

        which for a mean of normal values gives Student's interval.

        Reference: Hesterberg, What teachers should know about the bootstrap, The American
        Statistician 69 (2015), Section 4.
        """
        if self.n < 2:
            return None
        tail = special.stdtrit(self.n - 1, (1 - level) / 2 / self.tries)
        share = float(special.ndtr(np.sqrt(self.n / (self.n - 1)) * tail))
        low, high = np.quantile(self.drawn, [share, 1 - share])
        return Interval(self.estimate, float(low), float(high))

    def p_value(self, bound: float = 0.0) -> float:
        """Return the two-sided p-value of "it is equal to the bound"; 1 for fewer than two seeds.

        It is 1 − the level at which the interval of the same resamples ends at the bound. If no
        resample crosses the bound, the tail of the normal law with the resamples' spread is taken,
        and never less than n⁻ⁿ, the probability of drawing one seed n times.
        """
        if self.n < 2:
            return 1.0
        beyond = float(min(np.mean(self.drawn <= bound), np.mean(self.drawn >= bound)))
        spread = float(self.drawn.std())
        if not beyond and spread:
            beyond = float(special.ndtr(-abs(self.estimate - bound) / spread))
        share = max(beyond, float(self.n) ** -self.n)
        if share >= 0.5:
            return 1.0
        t = special.ndtri(share) * np.sqrt((self.n - 1) / self.n)
        return min(1.0, self.tries * float(2 * special.stdtr(self.n - 1, t)))


@functools.cache
def _resamples(n: int) -> Floats:
    """Return how often each of n seeds occurs in each resample, (RESAMPLES, n)."""
    rng = generator(0, "bootstrap", n)
    return rng.multinomial(n, [1 / n] * n, size=RESAMPLES).astype(np.float64)


def mean_over_seeds(values: ArrayLike) -> Bootstrapped:
    """Return the mean of one value for each seed, resampled over seeds.

    >>> found = mean_over_seeds([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> found.estimate, found.interval().low < 3 < found.interval().high, found.p_value() < 0.05
    (3.0, True, True)
    """
    each = np.asarray(values, float)
    n = len(each)
    return Bootstrapped(float(each.mean()), _resamples(n) @ each / n, n)


def kendall(x: ArrayLike, y: ArrayLike) -> float:
    """Return Kendall's τ-b, (C − D)/√((C + D + T_x)(C + D + T_y)); 0 if x or y is constant.

    C and D count the pairs in the same and in opposite order, T_x and T_y those tied in y only and
    in x only.

    Reference: Kendall, The treatment of ties in ranking problems, Biometrika 33 (1945).

    >>> kendall([1, 2, 3, 4], [1.0, 3.0, 2.0, 4.0])
    0.666...
    """
    a, b = np.asarray(x, float), np.asarray(y, float)
    first, second = (np.sign(v[:, None] - v[None, :]) for v in (a, b))
    size = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size else 0.0


@dataclasses.dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests: the interval that must lie within ± margin, and the p-values.

    `inside` is the p-value of "the mean is at −margin or below, or at +margin or above", `outside`
    that of "the mean is between".
    """

    interval: Interval
    margin: float
    inside: float
    outside: float


def equivalence(differences: Sequence[float], margin: float) -> Equivalence | None:
    """Test "the mean difference is between −margin and +margin"; None for fewer than two seeds.

    Student's t against both ends, each at level 5 %: it is so if the 90 % interval of the mean lies
    between them. An absent difference is no evidence of equality; this is.

    Reference: Schuirmann, A comparison of the two one-sided tests procedure and the power approach,
    Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).

    >>> found = equivalence([0.1, -0.2, 0.0, 0.2, -0.1], margin=1.0)
    >>> found.inside < 0.001, equivalence([3.0, 3.1, 2.9], margin=1.0).outside < 0.01
    (True, True)
    """
    values = np.asarray(differences, float)
    n = len(values)
    if n < 2:
        return None
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(n))
    half = float(special.stdtrit(n - 1, LEVEL)) * error
    # One-sided: P(T > t) of the distance from each end; a zero error has an infinite t.
    with np.errstate(divide="ignore", invalid="ignore"):
        above = float(special.stdtr(n - 1, -np.divide(mean + margin, error)))
        below = float(special.stdtr(n - 1, np.divide(mean - margin, error)))
    inside = max(above, below)
    outside = 2 * min(1 - above, 1 - below, 0.5)
    found = Interval(mean, mean - half, mean + half)
    return Equivalence(found, margin, inside if error else float(abs(mean) >= margin), outside)


def equivalent_pairs(rows: ArrayLike, margin: float) -> Equivalence | None:
    """Test "no two levels differ by the margin or more" on rows of seeds; None without pairs.

    Every pair of levels must pass its two one-sided tests, each at the full level: for an
    intersection of claims no correction is needed. The pair that is farthest from passing answers.

    Reference: Berger, Multiparameter hypothesis testing and acceptance sampling, Technometrics 24
    (1982).

    >>> equivalent_pairs([[1.0, 1.1], [2.0, 2.2], [3.0, 3.1]], margin=1.0).inside < 0.01
    True
    """
    values = np.asarray(rows, float)
    levels = range(values.shape[1])
    tests = [
        found
        for i in levels
        for k in levels
        if i < k and (found := equivalence(list(values[:, k] - values[:, i]), margin))
    ]
    if not tests:
        return None
    worst = max(tests, key=lambda one: (one.inside, abs(one.interval.mean)))
    least = min(1.0, len(tests) * min(one.outside for one in tests))  # Bonferroni, to refute
    return dataclasses.replace(worst, outside=least)


def bend_at(x: ArrayLike, y: ArrayLike) -> int:
    """Return the index of the inner level at which two joined lines fit y best.

    >>> bend_at([0, 1, 2, 3, 4], [0.0, 1.0, 2.0, 2.0, 2.0])
    2
    """
    levels, values = np.asarray(x, float), np.asarray(y, float)
    errors = {}
    for k in range(1, len(levels) - 1):
        design = _hinge(levels, k)
        fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
        errors[k] = float(np.sum((values - fitted) ** 2))
    return min(errors, key=lambda k: errors[k])


def _hinge(levels: Floats, k: int) -> Floats:
    """Return the columns of a line with a bend at level k: 1, x and max(x − x_k, 0)."""
    return np.stack([np.ones(len(levels)), levels, np.maximum(levels - levels[k], 0)], 1)


def change_of_slope(x: ArrayLike, rows: ArrayLike) -> Bootstrapped:
    """Return the slope after the bend minus the slope before it, averaged over seeds.

    The bend x_k is that of the mean over seeds (`bend_at`). For each seed

        y = a + b x + c max(x − x_k, 0)

    is fitted by least squares; c is the change of slope. The best of several bends makes noise look
    bent, so interval and p-value are corrected for the number of inner levels (Bonferroni). `rows`
    has a row for each seed, and three or more levels.

    Reference: Toms and Lesperance, Piecewise regression: a tool for identifying ecological
    thresholds, Ecology 84 (2003).

    >>> bent = [[0.0, 1.0, 2.0, 2.0, 2.0], [1.0, 2.1, 3.0, 3.0, 3.1], [0.5, 1.5, 2.4, 2.5, 2.5]]
    >>> round(change_of_slope([0, 1, 2, 3, 4], bent).estimate, 1)
    -1.0
    """
    levels, values = np.asarray(x, float), np.asarray(rows, float)
    design = _hinge(levels, bend_at(levels, values.mean(0)))
    changes = np.linalg.lstsq(design, values.T, rcond=None)[0][2]
    return dataclasses.replace(mean_over_seeds(changes), tries=len(levels) - 2)


def fitted_change(x: ArrayLike, row: ArrayLike) -> float:
    """Return the rise of the line fitted to one seed's values, from the first level to the last.

    >>> round(fitted_change([0, 1, 2], [1.0, 2.0, 3.0]), 9)
    2.0
    """
    levels, values = np.asarray(x, float), np.asarray(row, float)
    return float(np.polyfit(levels, values, 1)[0] * (levels[-1] - levels[0]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of several claims, corrected for their number by Holm's procedure.

    In ascending order, p_(i) becomes max_{j ≤ i} (m − j + 1) p_(j), at most 1. At level α the
    chance that any true hypothesis is rejected is at most α, whatever ties the tests together.

    Reference: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal
    of Statistics 6 (1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    m, found, running = len(p_values), [0.0] * len(p_values), 0.0
    for rank, k in enumerate(sorted(range(m), key=lambda k: p_values[k])):
        running = max(running, (m - rank) * p_values[k])
        found[k] = min(1.0, running)
    return found


def association(
    x: Sequence[float], y: Sequence[float], seeds: Sequence[int], strata: Sequence[Any]
) -> Bootstrapped | None:
    """Return Kendall's τ-b of x and y over the pairs of runs of one stratum, resampled over seeds.

    With S_x and S_y the signs of the differences of all pairs in a common stratum,

        τ = Σ S_x S_y / √(Σ S_x² Σ S_y²)

    A resample takes whole seeds, w_s times the seed s. Pairs of copies of one run are tied and
    count nothing, so every sum is a quadratic form wᵀ A w with A summed over seeds once. Resamples
    have fewer pairs of different runs, which biases τ; their mean is therefore shifted to the
    estimate. None if x or y has no differences, or fewer than two seeds are there.

    >>> association([1, 2, 1, 2], [5, 6, 7, 9], seeds=[0, 0, 1, 1], strata=["a"] * 4).estimate
    0.4...
    """
    names = sorted(set(seeds))
    n = len(names)
    if n < 2:
        return None
    member = np.array([[seed == name for name in names] for seed in seeds], float)
    same = np.array([[a == b for b in strata] for a in strata], float)
    signs = [np.sign(np.subtract.outer(v, v)) * same for v in (np.asarray(x), np.asarray(y))]
    products = (signs[0] * signs[1], signs[0] ** 2, signs[1] ** 2)
    both, first, second = (member.T @ part @ member for part in products)

    def tau(weights: Floats) -> Floats:
        sums = [np.einsum("ri,ij,rj->r", weights, part, weights) for part in (both, first, second)]
        size = np.sqrt(sums[1] * sums[2])
        found: Floats = np.divide(sums[0], size, out=np.zeros_like(size), where=size > 0)
        return found

    if not (first.any() and second.any()):
        return None
    estimate, drawn = float(tau(np.ones((1, n)))[0]), tau(_resamples(n))
    return Bootstrapped(estimate, np.clip(drawn - drawn.mean() + estimate, -1, 1), n)


def reverses(within: Bootstrapped | None, pooled: Bootstrapped | None) -> bool:
    """Return whether pooling turns an association round: the intervals have opposite signs.

    Reference: Simpson, The interpretation of interaction in contingency tables, Journal of the
    Royal Statistical Society B 13 (1951).

    >>> up = association([1, 2, 1, 2], [5, 6, 5, 6], [0, 0, 1, 1], "aaaa")
    >>> down = association([1, 2, 1, 2], [6, 5, 6, 5], [0, 0, 1, 1], "aaaa")
    >>> reverses(up, down), reverses(up, up)
    (True, False)
    """
    ends = [one.interval() for one in (within, pooled) if one is not None]
    if len(ends) < 2 or None in ends:
        return False
    signs = [(one.low > 0) - (one.high < 0) for one in ends if one is not None]
    return signs[0] * signs[1] < 0
