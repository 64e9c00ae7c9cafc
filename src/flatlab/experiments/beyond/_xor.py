"""Common parts of the experiments on xor: networks with and without bias, runs, and lists."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...models import TwoLayer
from ...theory import bias_floor, no_bias_floor
from ...training.schedule import LogGrid, Phase
from ..arms import Arm, trained_on

# Fewer points than usual: at n_test = 10,000 measuring would take longer than training.
on_xor = functools.partial(trained_on, "xor", log=LogGrid(per_decade=5, regular=20))


def xor_arm(
    s: Any, key: str, label: str, phases: Sequence[Phase], role: str, bias: bool, **given: Any
) -> Arm:
    """Return an arm of the two-layer ReLU network; `given` is the rest of `trained_on`."""
    config = on_xor(s, TwoLayer(width=s.width, bias=bias), phases, **given)
    return Arm(key, label, config, bias_floor if bias else no_bias_floor, role)
