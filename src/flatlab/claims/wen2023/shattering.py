"""Appendix A.6.2: shattered sets, the VC dimension and the bounds that use it."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ...data import cube
from ...data.dataset import Array
from ...theory.rademacher import finite_class
from ..contract import Trial, claim, printed
from ..lines import Lines, above, at_most, equal, near_zero, true

Patterns = NDArray[np.bool_]


def _shatters(patterns: Patterns, chosen: tuple[int, ...]) -> bool:
    """Return whether a class (one row for each function) takes all values on the chosen points."""
    codes = patterns[:, list(chosen)] @ (1 << np.arange(len(chosen)))
    return bool(len(np.unique(codes)) == 2 ** len(chosen))


def _vc(patterns: Patterns) -> int:
    """Return the size of the largest shattered subset of the points."""
    n = int(patterns.shape[1])
    for size in range(1, n + 1):
        if not any(
            _shatters(patterns, chosen) for chosen in itertools.combinations(range(n), size)
        ):
            return size - 1
    return n


def _realisable(x: Array, pattern: Patterns) -> bool:
    """Return whether some w has w·x_i > 0 exactly on the pattern, by a linear program."""
    signed = np.where(pattern[:, None], -x, x)
    margin = np.where(pattern, -1.0, 0.0)  # w can be scaled
    solved = linprog(np.zeros(x.shape[1]), signed, margin, bounds=(None, None), method="highs")
    return bool(solved.status == 0)


def _half_spaces(x: Array, rng: np.random.Generator) -> Patterns:
    """Return all patterns 1[w·x_i > 0] in general position, by directions near every vertex."""
    n, d = x.shape
    found = [rng.normal(size=(2000, d))]
    for chosen in itertools.combinations(range(n), d - 1):
        # The normal of d − 1 points, moved to either side of each: all cells touch such a line.
        normal = np.linalg.svd(x[list(chosen)])[2][-1]
        sides = cube(d - 1) @ np.linalg.pinv(x[list(chosen)]).T
        found += [sign * normal + 1e-7 * sides for sign in (-1.0, 1.0)]
    return np.unique(np.vstack(found) @ x.T > 0, axis=0)


def _random_class(rng: np.random.Generator) -> Patterns:
    n = int(rng.integers(1, 8))
    size = int(rng.integers(1, min(60, 2**n) + 1))
    return np.asarray(cube(n)[rng.choice(2**n, size, replace=False)] > 0)


@claim("wen2023.defA.7", "Definition A.7", "definition",
       "A set is shattered by a class of {0, 1}-valued functions if every one of its subsets is "
       "cut out by some function")  # fmt: skip
def def_a7(trial: Trial) -> Lines:
    x = np.sort(trial.rng("defA.7").random(6))
    ends = np.concatenate([[-1.0], (x[1:] + x[:-1]) / 2, [2.0]])
    intervals = np.array([(x > a) & (x < b) for a in ends for b in ends])
    pairs = [_shatters(intervals, pair) for pair in itertools.combinations(range(6), 2)]
    triples = [_shatters(intervals, three) for three in itertools.combinations(range(6), 3)]
    yield equal("intervals, six points: pairs shattered, of 15", sum(pairs), 15)
    yield equal("triples shattered, of 20", sum(triples), 0)
    outer = sum(bool(row[0] and row[4] and not row[2]) for row in intervals)
    yield equal("intervals that take the first and the fifth point without the third", outer, 0)


@claim("wen2023.defA.8", "Definition A.8", "definition",
       "The VC dimension is the size of the largest shattered set: 1 for thresholds, 2 for "
       "intervals and for half-planes through the origin")  # fmt: skip
def def_a8(trial: Trial) -> Lines:
    rng = trial.rng("defA.8")
    x = np.sort(rng.random(7))
    ends = np.concatenate([[-1.0], (x[1:] + x[:-1]) / 2, [2.0]])
    yield equal("thresholds, 7 points", _vc(np.array([x > a for a in ends])), 1)
    intervals = np.array([(x > a) & (x < b) for a in ends for b in ends])
    yield equal("intervals, 7 points", _vc(intervals), 2)
    planes = _half_spaces(rng.normal(size=(7, 2)), rng)
    yield equal("half-planes through 0, 7 points of R²: patterns, 2n", len(planes), 14)
    yield equal("their VC dimension", _vc(planes), 2)
    yield equal("all functions on 7 points", _vc(np.asarray(cube(7) > 0)), 7)


@claim("wen2023.lemA.20", "Lemma A.20 (Massart)", "inequality",
       "R_S(F) ≤ √(2 log|A|/n) for {0, 1}-valued functions with the set A of patterns on "
       "S")  # fmt: skip
def lem_a20(trial: Trial) -> Lines:
    rng, ratios = trial.rng("lemA.20"), []
    for _ in range(trial.size(200, 2000)):
        n = int(rng.integers(1, 11))
        size = int(rng.integers(2, min(60, 2**n) + 1))
        ratios.append(_massart((cube(n)[rng.choice(2**n, size, replace=False)] + 1) / 2))
    yield at_most(f"largest R_S/√(2 log|A|/n), {len(ratios)} classes, n ≤ 10", max(ratios), 1.0)
    best = 0.0
    for n, size in ((4, 3), (6, 6), (8, 10)):
        corners = (cube(n) + 1) / 2
        chosen = rng.choice(2**n, size, replace=False)
        value = _massart(corners[chosen])
        for _ in range(trial.size(150, 2000)):
            other = chosen.copy()
            other[rng.integers(size)] = rng.integers(2**n)
            if len(set(other.tolist())) == size and (trying := _massart(corners[other])) > value:
                chosen, value = other, trying
        best = max(best, value)
    yield at_most("the same after exchanging functions to make it large", best, 1.0)
    single = finite_class((cube(6)[:1] + 1) / 2).value
    yield near_zero("|A| = 1: R_S, where the bound is 0", single, 1e-12)


def _massart(values: Array) -> float:
    return finite_class(values).value / math.sqrt(2 * math.log(len(values)) / values.shape[1])


@claim("wen2023.lemA.21", "Lemma A.21 (Sauer)", "inequality",
       "|A| ≤ Σ_{i ≤ VC} C(n, i) for the set A of patterns of a class on n points")  # fmt: skip
def lem_a21(trial: Trial) -> Lines:
    rng, worst, count = trial.rng("lemA.21"), 0.0, trial.size(200, 2000)
    for d, n in ((2, 5), (2, 8), (3, 6), (3, 8)):
        patterns = _half_spaces(rng.normal(size=(n, d)), rng)
        # Cover's count of the cells of n hyperplanes through 0 in general position.
        cells = 2 * sum(math.comb(n - 1, i) for i in range(d))
        yield equal(f"half-spaces through 0 in R^{d}, n = {n}: patterns", len(patterns), cells)
        yield at_most("against the bound with VC = d", cells, _sauer(n, d))
    for _ in range(count):
        patterns = _random_class(rng)
        worst = max(worst, len(patterns) / _sauer(patterns.shape[1], _vc(patterns)))
    yield at_most(f"largest |A|/bound, {count} random classes, n ≤ 7, brute-force VC", worst, 1.0)
    for n, k in ((5, 2), (7, 3)):
        corners = np.asarray(cube(n) > 0)
        few = corners[corners.sum(1) <= k]
        yield equal(f"at most {k} of {n} points reach it: |A|", len(few), _sauer(n, _vc(few)))


def _sauer(n: int, vc: int) -> int:
    return sum(math.comb(n, i) for i in range(vc + 1))


@claim("wen2023.corA.1", "Corollary A.1", "inequality",
       "R_S(F) ≤ √(4 VC log n/n) for {0, 1}-valued functions and n ≥ 2",
       as_printed="for every n, n = 1 included", errata=("E25",))  # fmt: skip
def cor_a1(trial: Trial) -> Lines:
    rng = trial.rng("corA.1")
    for n in (2, 3):
        corners = np.asarray(cube(n) > 0)
        members = cube(2**n) > 0
        classes = [corners[row] for row in members if row.any()]
        ratio = max(_corollary_ratio(patterns) for patterns in classes)
        yield at_most(f"largest R_S/bound, all {len(classes)} classes on {n} points", ratio, 1.0)
    made = [_random_class(rng) for _ in range(trial.size(200, 2000))]
    ratio = max(_corollary_ratio(patterns) for patterns in made if patterns.shape[1] >= 2)
    yield at_most(f"the same, {len(made)} random classes, n ≤ 7", ratio, 1.0)
    planes = [_half_spaces(rng.normal(size=(n, d)), rng) for n, d in ((4, 2), (8, 2), (8, 3))]
    yield at_most("the same, half-spaces in R² and R³", max(map(_corollary_ratio, planes)), 1.0)
    both = np.array([[False], [True]])
    yield printed(at_most("R_S of both functions on one point", finite_class(both).value,
                          math.sqrt(4 * _vc(both) * math.log(1))))  # fmt: skip


def _corollary_ratio(patterns: Patterns) -> float:
    if len(patterns) == 1:
        return abs(finite_class(patterns).value)  # both sides must be 0
    n = patterns.shape[1]
    return finite_class(patterns).value / math.sqrt(4 * _vc(patterns) * math.log(n) / n)


@claim("wen2023.lemA.22", "Lemma A.22", "inequality",
       "The half-spaces x ↦ 1[w·x > 0] of R^d have VC dimension d")  # fmt: skip
def lem_a22(trial: Trial) -> Lines:
    """The basis is shattered; no d + 1 points are, and a linear dependence says why."""
    rng = trial.rng("lemA.22")
    for d in (1, 3, 8):
        patterns = cube(d) @ np.eye(d) > 0
        shattered = _shatters(patterns, tuple(range(d)))
        yield true(f"the basis vectors of R^{d} shattered by w in {{±1}}^{d}", shattered)
    realised, tried = 0, 0
    for d in (2, 3):
        for index in range(trial.size(60, 400)):
            x = rng.normal(size=(d + 1, d))
            if index % 3 == 1:
                x[1] = rng.uniform(-2, 2) * x[0]
            if index % 3 == 2:
                x[0] = 0.0
            # Σ λ_i x_i = 0 with some λ_i > 0: w·x_i > 0 for just those would add up to more than 0.
            dependence = np.linalg.svd(x.T)[2][-1]
            dependence[np.abs(dependence) < 1e-9] = 0.0
            pattern = dependence > 0 if np.any(dependence > 0) else dependence < 0
            realised += _realisable(x, pattern)
            tried += 1
    yield near_zero(f"{tried} sets of d + 1 points: the dependence's pattern realised", realised)
    x = rng.normal(size=(4, 3))
    count = sum(_realisable(x, np.asarray(row)) for row in cube(4) > 0)
    yield at_most("four random points of R³: patterns realised, of 16", count, 15)
    yield above("and more than half of them", count, 8)
    points = rng.normal(size=(3, 3))
    yield equal("three random points of R³: patterns realised, of 8",
                sum(_realisable(points, np.asarray(row)) for row in cube(3) > 0), 8)  # fmt: skip
