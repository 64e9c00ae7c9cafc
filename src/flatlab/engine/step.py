"""What a kernel must know of a phase of training."""

from __future__ import annotations

from typing import Protocol


class Step(Protocol):
    """The hyper-parameters of one step; `training.Phase` has them all and says what they mean."""

    @property
    def algorithm(self) -> str: ...  # noqa: D102
    @property
    def lr(self) -> float: ...  # noqa: D102
    @property
    def rho(self) -> float: ...  # noqa: D102
    @property
    def batch_size(self) -> int | None: ...  # noqa: D102
    @property
    def weight_decay(self) -> float: ...  # noqa: D102
    @property
    def noise(self) -> float: ...  # noqa: D102
    @property
    def max_first_layer_norm(self) -> float | None: ...  # noqa: D102
    @property
    def order(self) -> str | None: ...  # noqa: D102
    @property
    def bias_apart(self) -> bool: ...  # noqa: D102
    @property
    def of_bias(self) -> tuple[float, float]: ...  # noqa: D102
    @property
    def input_noise(self) -> float | None: ...  # noqa: D102
    @property
    def momentum(self) -> float | None: ...  # noqa: D102
    @property
    def second_batch(self) -> str | None: ...  # noqa: D102
    @property
    def norm_rule(self) -> str | None: ...  # noqa: D102
    @property
    def statistics(self) -> str | None: ...  # noqa: D102
    @property
    def gamma(self) -> str | None: ...  # noqa: D102
