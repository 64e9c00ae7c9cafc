"""The measures a run tracks: read at log points, kept as columns, resumed from a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import Dataset
from .config import RunConfig, Tracked
from .trainers import State

if TYPE_CHECKING:
    from ..measures.eigenvalues import Memory


class Following:
    """Reads the tracked measures of a run; λ_max starts from the last eigenvector.

    The eigenvector is part of the checkpoint, so that a resumed run reads the same numbers.
    """

    def __init__(self, config: RunConfig, data: Dataset, state: State) -> None:
        self.config, self.data = config, data
        self.memories: dict[str, Memory] = {}
        if config.measures:
            import torch

            from ..measures.eigenvalues import Memory

            for tracked in config.measures:
                stored = state.get(f"memory/{tracked.column}")
                vectors = None if stored is None else torch.from_numpy(np.array(stored))
                self.memories[tracked.column] = Memory(vectors)

    def state(self) -> State:
        """Return what is remembered, by the names of the columns."""
        return {
            f"memory/{name}": memory.vectors.numpy()
            for name, memory in self.memories.items()
            if memory.vectors is not None
        }

    def read(self, model: Any) -> dict[str, float]:
        """Return a value and a standard error for each tracked measure."""
        row: dict[str, float] = {}
        for tracked in self.config.measures:
            row |= self._read(tracked, model)
        return row

    def _read(self, tracked: Tracked, model: Any) -> dict[str, float]:
        from ..measures import Budget
        from ..measures.catalogue import named
        from ..measures.measuring import Subject, read_all
        from ..measures.tracking import columns_of

        with _torch_state_kept():
            subject = Subject.of(model, self.config.loss, self._data(tracked), mode=tracked.mode)
            name = tracked.column
            readings = read_all(
                subject,
                {name: named(tracked.measure)},
                self.config.seed,
                Budget.of(None),
                skip=False,
                memories=self.memories,
            )
        return columns_of(readings)

    def _data(self, tracked: Tracked) -> Any:
        """Return the whole training set, or as many of its examples as are tracked."""
        n, wanted = self.data.n, tracked.examples
        if wanted is None or wanted >= n:
            return self.data
        import torch

        rows = np.arange(wanted) * n // wanted
        x, y = self.data.x_train[rows], self.data.y_train[rows]
        return torch.tensor(x), torch.tensor(y)


def _torch_state_kept() -> Any:
    import torch

    return torch.random.fork_rng(devices=[])
