"""A small transformer that says which of two tokens occurs more often, trained and then measured.

flatlab measure examples/transformer.py:make
"""

from __future__ import annotations

import torch
from torch import nn

TOKENS, LENGTH, WIDTH = 8, 12, 32


class Transformer(nn.Module):
    """One pre-norm block of attention and GELU over learned tokens and positions."""

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens):
        """Return two logits for each sequence."""
        h = self.token(tokens) + self.place.weight
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2)
            for part in self.qkv(self.norm_1(h)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        h = h + self.out(mixed.transpose(1, 2).flatten(2))
        h = h + self.down(nn.functional.gelu(self.up(self.norm_2(h))))
        return self.head(h.mean(1))


def make():
    """Return (model, loss, data)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, TOKENS, (500, LENGTH), generator=generator)
    y = ((x == 1).sum(1) > (x == 0).sum(1)).long()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Transformer()
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=3e-3), nn.CrossEntropyLoss()
    for _ in range(150):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return model, loss, (x, y)
