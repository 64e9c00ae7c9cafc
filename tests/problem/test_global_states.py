"""Reading data that draws from numpy's and Python's global generators puts both back."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from flatlab.problem.batches import batches_of


class Drawing(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.ones(3) * i + 0 * np.random.rand() + 0 * random.random(), i


def test_global_states_are_found_as_they_were():
    numpy, python = np.random.get_state(), random.getstate()
    batches_of(DataLoader(Drawing(), 4, shuffle=True), None)
    batches_of(Drawing(), None)
    assert all(np.array_equal(a, b) for a, b in zip(numpy, np.random.get_state(), strict=True))
    assert random.getstate() == python
