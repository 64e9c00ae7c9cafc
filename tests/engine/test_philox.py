"""The compiled generator is numpy's Philox, and the orders and signs drawn from it are fair."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from flatlab.engine.philox import (
    key_words,
    permutation,
    philox,
    signs,
    visits,
    with_order,
    with_replacement,
)
from flatlab.randomness import generator, key

# Everything below is a pure function of fixed seeds: a test passes always or never. The threshold
# is what a fair generator would miss once in a million choices of seed.
RARE = 1e-6


def order_of(seed, epoch, n):
    order = np.empty(n, np.int64)
    permutation(key_words(key(seed, "order")), epoch, order)
    return order


def visits_of(rule, seed, epoch, n):
    keys = np.stack([key_words(key(seed, use)) for use in ("order", "label_noise")])
    order = np.full(n, -1)
    visits(with_order(keys, rule), epoch, order)
    return order


def signs_of(seed, epoch, n):
    out = np.empty(n, np.int64)
    signs(key_words(key(seed, "label_noise")), epoch, out)
    return out


@pytest.mark.parametrize("number", [0, 1, 2**63, 2**64 - 1, 2**64, 2**127 + 12345, 2**128 - 1])
def test_philox_is_numpys_bit_by_bit(number):
    """Numpy steps its counter before each block: counter c gives the words at c + 1."""
    for c0, c1 in itertools.product((1, 2, 1000, 2**32 + 7, 2**40), (0, 1, 999, 2**33)):
        ours = philox(key_words(number), c0, c1)
        theirs = np.random.Philox(key=number, counter=[c0 - 1, 0, 0, c1]).random_raw(4)
        assert [int(word) for word in ours] == theirs.tolist()


def test_philox_stream_is_that_of_the_generator_for_the_same_purpose():
    """`randomness.generator` and the kernels speak of the same (seed, purpose, index)."""
    raw = generator(3, "order", index=17).bit_generator.random_raw(12)
    words = [philox(key_words(key(3, "order")), block, 17) for block in (1, 2, 3)]
    assert [int(word) for block in words for word in block] == raw.tolist()


def test_key_words_are_the_low_and_the_high_half():
    assert key_words(5 + (7 << 64)).tolist() == [5, 7]
    assert key_words(0).dtype == np.uint64


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 1001])
def test_an_order_is_a_permutation(n):
    for epoch in (0, 1, 10**6):
        assert sorted(order_of(0, epoch, n)) == list(range(n))


def test_an_order_depends_on_epoch_and_seed_alone():
    first = order_of(0, 5, 50)
    assert (first == order_of(0, 5, 50)).all()
    assert (first != order_of(0, 6, 50)).any()
    assert (first != order_of(1, 5, 50)).any()


def test_orders_are_uniform_over_the_24_permutations_of_4():
    names = {p: k for k, p in enumerate(itertools.permutations(range(4)))}
    counts = np.zeros(24, int)
    for epoch in range(24_000):
        counts[names[tuple(order_of(2, epoch, 4).tolist())]] += 1
    assert counts.sum() == 24_000
    assert stats.chisquare(counts).pvalue > RARE


def test_every_example_visits_every_place_alike():
    """Twelve examples need three blocks of words: a word used twice would show here."""
    counts = np.zeros((12, 12))
    for epoch in range(12_000):
        counts[np.arange(12), order_of(4, epoch, 12)] += 1
    # The entries of a random permutation matrix: 11² degrees of freedom, each cell counted with
    # variance (1/12)(11/12) and row and column sums fixed.
    statistic = ((counts - 1000) ** 2 / 1000).sum() * 11 / 12
    assert stats.chi2(121).sf(statistic) > RARE
    assert stats.chi2(121).cdf(statistic) > RARE  # nor is it too even to be random


def test_signs_are_balanced_and_fresh_in_every_epoch():
    n, epochs = 130, 2000  # 130: two whole words and two bits of a third
    drawn = np.array([signs_of(1, epoch, n) for epoch in range(epochs)])
    assert set(np.unique(drawn)) == {-1, 1}
    total = int((drawn == 1).sum())
    assert stats.binomtest(total, n * epochs).pvalue > RARE
    # Each of 130 places is fair by itself, and no two places or epochs go together.
    for count in (drawn == 1).sum(0):
        assert stats.binomtest(int(count), epochs).pvalue > RARE
    gram = drawn.T @ drawn / np.sqrt(epochs)  # off the diagonal: standard normal
    off = gram[np.triu_indices(n, 1)]
    assert np.abs(off).max() < stats.norm.isf(RARE / len(off))
    neighbours = (drawn[1:] * drawn[:-1]).sum() / np.sqrt(n * (epochs - 1))
    assert abs(neighbours) < stats.norm.isf(RARE)


def test_signs_depend_on_epoch_and_seed_alone():
    first = signs_of(0, 5, 70)
    assert (first == signs_of(0, 5, 70)).all()
    assert (first[:65] == signs_of(0, 5, 65)).all()
    assert (first != signs_of(0, 6, 70)).any()
    assert (first != signs_of(1, 5, 70)).any()


def test_signs_do_not_go_with_the_order():
    """Correlate each sign with the index of the example visited there."""
    n, epochs = 64, 3000
    total = 0.0
    for epoch in range(epochs):
        place = order_of(6, epoch, n) - (n - 1) / 2
        total += (signs_of(6, epoch, n) * place).sum()
    # Given the order, a sum of independent signs: variance epochs · Σ (k − (n−1)/2)².
    variance = epochs * ((np.arange(n) - (n - 1) / 2) ** 2).sum()
    assert abs(total) / np.sqrt(variance) < stats.norm.isf(RARE)
    assert key(6, "order") != key(6, "label_noise")


def test_the_rules_of_visiting():
    for epoch in (0, 1, 9):
        assert (visits_of(None, 3, epoch, 50) == order_of(3, epoch, 50)).all()
        assert (visits_of("fixed", 3, epoch, 50) == order_of(3, 0, 50)).all()
        drawn = np.full(50, -1)
        with_replacement(key_words(key(3, "order")), epoch, drawn)
        assert (visits_of("replacement", 3, epoch, 50) == drawn).all()
    assert (visits_of("replacement", 3, 0, 50) != visits_of("replacement", 3, 1, 50)).any()


def test_draws_with_replacement_are_uniform_and_independent():
    n, epochs = 10, 20_000
    drawn = np.array([visits_of("replacement", 4, epoch, n) for epoch in range(epochs)])
    assert drawn.min() == 0 and drawn.max() == n - 1
    assert stats.chisquare(np.bincount(drawn.ravel(), minlength=n)).pvalue > RARE
    for one, two in ((0, 1), (3, 4), (0, 9)):  # within a Philox block, across, and far apart
        pairs = np.bincount(n * drawn[:, one] + drawn[:, two], minlength=n * n)
        assert stats.chisquare(pairs).pvalue > RARE
