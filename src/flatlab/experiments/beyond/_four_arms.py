"""The same four arms on several tasks: 1-SAM and gradient descent, without and with bias.

Each task is a data set, drawn in two sizes: `n` and `n_large` examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...models import TwoLayer
from ...plots import Curve, Plot
from ...training.schedule import Phase
from ..arms import Arm, trained_on
from ..compared import Compared
from ..showing import CURVES, errors_against

BIASES = {"no_bias": "no bias", "bias": "bias"}
ALGORITHMS = {"sam": "1-SAM", "gd": "GD + weight decay"}

# Sizes and lengths of the presets `quick`.
SHORT = {"n": 30, "sam_epochs": 50, "sam_epochs_large": 30, "gd_epochs": 100, "gd_epochs_large": 50}


class Task(NamedTuple):
    """A task: its place on the picture's axis, its names, and the arguments of its data set."""

    x: float
    key: str
    label: str
    arguments: dict[str, Any]

    def arm(self, size: str, bias: str, algorithm: str) -> str:
        """Return the key of one of its arms."""
        return f"{self.key}_{size}_{bias}_{algorithm}"


def examples(s: Any) -> dict[str, int]:
    """Return both sizes of the training set by name."""
    return {"small": s.n, "large": s.n_large}


def four_arms(s: Any, data: str, tasks: list[Task], sam_lr: float = 0.01) -> Iterator[Arm]:
    """Yield the arms of every size and task; the settings have the epochs of both sizes."""
    for size, n in examples(s).items():
        end = "" if size == "small" else "_large"
        sam, gd = (getattr(s, f"{algorithm}_epochs{end}") for algorithm in ALGORITHMS)
        phases = {
            "sam": Phase("sam", lr=sam_lr, rho=0.05, batch_size=1, epochs=sam),
            "gd": Phase("sgd", lr=0.01, weight_decay=0.05, epochs=gd),
        }
        for task in tasks:
            for bias, with_bias in BIASES.items():
                arch = TwoLayer(width=s.width, bias=bias == "bias")
                for algorithm, name in ALGORITHMS.items():
                    phase, given = phases[algorithm], task.arguments
                    config = trained_on(data, s, arch, [phase], n=n, arguments=given)
                    label = f"{task.label}, n = {n}, {with_bias}, {name}"
                    yield Arm(task.arm(size, bias, algorithm), label, config, role=algorithm)


def errors_by_task(
    found: Compared, tasks: list[Task], title: str, xlabel: str, *references: Curve
) -> tuple[Plot]:
    """Return the picture of test errors against the task, a panel for each size."""
    x, panels = [task.x for task in tasks], []
    for size, n in examples(found.settings).items():
        lines = {
            f"{name}, {with_bias}": [task.arm(size, bias, algorithm) for task in tasks]
            for algorithm, name in ALGORITHMS.items()
            for bias, with_bias in BIASES.items()
        }
        panels.append(errors_against(x, lines, found, f"n = {n}", xlabel, *references))
    return (Plot(found.comparison.name, title, (tuple(panels),), CURVES),)
