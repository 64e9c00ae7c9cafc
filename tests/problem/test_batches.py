"""Which objects count as data; reading them has no side effects."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

import flatlab as fl
from flatlab.errors import UserError
from flatlab.problem import Problem
from flatlab.problem.batches import batches_of, chosen, drawn, joined

torch.set_num_threads(1)
CE = nn.CrossEntropyLoss()


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def data(n=60):
    return seeded(lambda: (torch.randn(n, 5), torch.randint(3, (n,))), 1)


def model():
    return seeded(lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)))


class Pictures(Dataset):
    """Pictures that a transform may change at random, each time they are asked for."""

    def __init__(self, change=lambda picture: picture):
        self.x = seeded(lambda: torch.randn(64, 1, 8, 8))
        self.change = change

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return self.change(self.x[i]), i % 3


def flipped(picture):
    return picture.flip(-1) if torch.rand(()) < 0.5 else picture


def permuted(picture):
    return picture.flatten()[torch.randperm(64)].view_as(picture)


@pytest.mark.parametrize("change", [flipped, permuted])
@pytest.mark.parametrize("loaded", [False, True])
def test_augmentation_that_keeps_every_sum_is_seen(change, loaded):
    pictures = Pictures(change)
    with pytest.raises(UserError, match="gives other examples on a second pass"):
        batches_of(DataLoader(pictures, 16) if loaded else pictures, None)


def test_labels_that_wander_among_examples_are_seen():
    class Wandering:
        def __init__(self):
            self.passes = 0

        def __iter__(self):
            self.passes += 1
            x, y = data()
            yield x, y.roll(self.passes)

    with pytest.raises(UserError, match="other examples"):
        batches_of(Wandering(), None)


def test_a_shuffled_loader_gives_the_same_examples():
    found = batches_of(DataLoader(Pictures(), 16, shuffle=True), None)
    assert sum(len(x) for x, _ in found) == 64


def test_padding_with_zeros_is_no_other_example():
    """Shuffled, a collate_fn that pads to the longest of a batch pads by other amounts."""
    lengths = torch.arange(1, 41) % 7 + 1
    words = [torch.ones(int(k)) * (i + 1) for i, k in enumerate(lengths)]

    def padded(items):
        return nn.utils.rnn.pad_sequence([words[i] for i in items], True), torch.tensor(items)

    found = batches_of(DataLoader(range(40), 8, shuffle=True, collate_fn=padded), None)
    assert sorted(int(i) for _, y in found for i in y) == list(range(40))


def test_the_generator_of_a_loader_is_found_as_it_was():
    own = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(*data()), 7, shuffle=True, generator=own)
    before, everyone = own.get_state(), torch.get_rng_state()
    Problem(model(), CE, loader)
    assert torch.equal(own.get_state(), before)
    assert torch.equal(torch.get_rng_state(), everyone)
    assert loader.generator is own and loader.sampler.generator is own
    assert torch.equal(torch.cat([y for _, y in loader]), torch.cat([y for _, y in again()]))


def again():
    own = torch.Generator().manual_seed(3)
    return DataLoader(TensorDataset(*data()), 7, shuffle=True, generator=own)


def test_the_generator_is_put_back_after_a_failure():
    own = torch.Generator().manual_seed(3)
    loader = DataLoader(Pictures(flipped), 16, shuffle=True, generator=own)
    before = own.get_state()
    with pytest.raises(UserError):
        batches_of(loader, None)
    assert loader.generator is own and torch.equal(own.get_state(), before)


class Numbered:
    """A dataset that is no torch Dataset: length and items."""

    def __len__(self):
        return 60

    def __getitem__(self, i):
        if i >= 60:
            raise IndexError(i)
        x, y = data()
        return x[i].numpy(), int(y[i])


@pytest.mark.parametrize(
    "make", [lambda: TensorDataset(*data()), lambda: Subset(TensorDataset(*data()), range(60)),
             Numbered]
)  # fmt: skip
@pytest.mark.parametrize("size", [None, 25])
def test_a_dataset_of_examples_is_as_good_as_its_tensors(make, size):
    found, truth = batches_of(make(), size), batches_of(data(), size)
    assert [len(x) for x, _ in found] == [len(x) for x, _ in truth]
    for (x, y), (x_true, y_true) in zip(found, truth, strict=True):
        assert torch.equal(x, x_true) and torch.equal(y, y_true)


def test_a_large_dataset_is_stacked_whole():
    (x, y) = data(2500)
    ((found, labels),) = batches_of(TensorDataset(x, y), None)
    assert torch.equal(found, x) and torch.equal(labels, y)


def test_examples_of_different_shapes_need_a_loader():
    class Ragged(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return torch.ones(i + 1), 0

    with pytest.raises(UserError, match="collate_fn"):
        batches_of(Ragged(), None)


BAD = {
    "1.5": 1.5, "'3'": "3", "True": True, "0": 0, "-2": -2,
}  # fmt: skip


@pytest.mark.parametrize("given", BAD)
def test_a_batch_size_is_a_whole_number(given):
    with pytest.raises(UserError, match=f"batch_size must be (a whole number|>= 1), got {given}"):
        batches_of(data(), BAD[given])


def test_sparse_inputs_are_to_be_made_dense():
    x, y = data()
    with pytest.raises(UserError, match=r"x is torch.sparse_coo: pass x.to_dense\(\)"):
        batches_of((x.to_sparse(), y), None)


def test_rows_are_counted_over_all_batches():
    x = torch.arange(10)
    batches = [(x[:3], x[:3]), (x[3:4], x[3:4]), (x[4:], x[4:])]
    found = chosen(batches, torch.tensor([9, 0, 4, 2]).numpy())
    assert [part.tolist() for part, _ in found] == [[0, 2], [4, 9]]
    assert [part.tolist() for part, _ in joined(found)] == [[0, 2, 4, 9]]
    assert sum(len(part) for part, _ in drawn(batches, 99, 0, "test")) == 10


class Words(nn.Module):
    """Sentences of any length."""

    def __init__(self, norm=False):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(4) if norm else nn.Identity()

    def forward(self, x):
        return self.head(self.norm(self.table(x).transpose(1, 2)).mean(2))


def sentences():
    return seeded(
        lambda: [
            (torch.randint(9, (50, 5 + k % 3)), torch.randint(3, (50,))) for k in range(12)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("name", ["trace", "lambda_max", "lambda_max:method=lanczos", "alignment"])
def test_sentences_of_different_length_are_measured(name):
    """Cut one by one, they are the same problem."""
    words = seeded(Words).double()
    found = fl.measure(words, CE, sentences(), name)[name]
    singles = [(x[i : i + 10], y[i : i + 10]) for x, y in sentences() for i in range(0, 50, 10)]
    other = fl.measure(words, CE, singles, name)[name]
    assert found.value == pytest.approx(other.value, rel=1e-3)


def test_tables_of_pandas_are_taken_as_arrays():
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 3
    table, labels = pd.DataFrame(x, columns=["a", "b"]), pd.Series(y, index=range(5, 11))
    ((found, classes),) = batches_of((table, labels), None)
    assert np.array_equal(found.numpy(), x) and np.array_equal(classes.numpy(), y)
    with pytest.raises(UserError, match="a part of it is not an array"):
        batches_of((table.assign(c="word"), labels), None)
