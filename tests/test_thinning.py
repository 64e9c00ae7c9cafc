"""The part of a product that `make test` runs, and the order of files."""

import itertools
from pathlib import Path

import pytest

from conftest import LONGEST
from thinning import cover, thinned


@pytest.mark.parametrize("sizes", [(1,), (7,), (2, 3), (5, 5), (27, 6, 2), (3, 4, 6)])
def test_a_product_is_covered_by_as_many_cases_as_its_largest_factor(sizes):
    cases = list(itertools.product(*map(range, sizes)))
    kept = [cases[place] for place in cover(cases)]
    assert len(kept) == max(sizes)
    for factor, size in enumerate(sizes):
        assert {case[factor] for case in kept} == set(range(size))


def test_a_table_with_holes_is_covered_too():
    cases = [("a", 1), ("a", 2), ("b", 2), ("c", 2), ("c", 3)]
    kept = {cases[place] for place in cover(cases)}
    assert {a for a, _ in kept} == set("abc") and {b for _, b in kept} == {1, 2, 3}


def test_what_is_left_out_is_marked_slow_and_nothing_is_lost():
    cases = list(itertools.product("abc", "xy"))
    params = thinned(cases)
    assert [param.values for param in params] == cases
    assert sum(not param.marks for param in params) == 3
    assert {mark.name for param in params for mark in param.marks} == {"slow"}


def test_the_files_that_go_first_exist():
    assert [name for name in LONGEST if not (Path(__file__).parent / name).exists()] == []
