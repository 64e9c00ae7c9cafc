"""Phases: what a training run does, for how many epochs. A schedule is a sequence of phases."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..errors import UserError
from ..specs import spec

Algorithm = Literal["sgd", "sam", "usam", "label_noise"]
Order = Literal["replacement", "fixed"]
NormRule = Literal["each", "held"]
GammaRule = Literal["fixed", "unperturbed"]

ALGORITHMS: dict[str, str] = {
    "sgd": "(stochastic) gradient descent with weight decay; full batch when batch_size is unset",
    "sam": "ascent of length rho along the batch gradient, then descent from there; "
    "batch_size=1 is 1-SAM, m is m-SAM",
    "usam": "SAM with the un-normalised ascent rho * gradient",
    "label_noise": "SGD on labels y + noise * (random sign), a fresh sign for each sample and step",
}


@spec
class Phase:
    """One stretch of training with fixed hyper-parameters.

    With g(θ) the gradient of the batch's mean loss, one step is

        sgd, label_noise:  θ ← θ − lr (g(θ) + weight_decay θ)
        sam:               θ ← θ − lr (g(θ + rho g(θ)/‖g(θ)‖) + weight_decay θ)
        usam:              θ ← θ − lr (g(θ + rho g(θ)) + weight_decay θ)

    A zero gradient means no ascent. Weight decay acts on every parameter and takes no part in the
    ascent. With `momentum` μ, a velocity v ← μ v + (gradient + weight_decay θ), zero at the start
    of the phase, takes the place of the bracket. `bias_lr` and `bias_weight_decay`, where given,
    take the places of lr and weight_decay in the step of the first layer's bias, which takes part
    in the ascent as before. Batches follow `order`, cut in every epoch; the last may be smaller.

    Attributes:
        algorithm: One of `ALGORITHMS`.
        lr: Learning rate.
        epochs: Number of passes over the training set.
        rho: Ascent radius, for "sam" and "usam" only.
        batch_size: Examples a step; None is the full batch.
        weight_decay: Coefficient λ of λθ in the gradient, i.e. (λ/2)‖θ‖² in the loss.
        noise: Amplitude of the label noise, for "label_noise" only.
        max_first_layer_norm: After each step the first layer (weights and bias together) is
            projected to the Frobenius ball of this radius; None leaves it free.
        order: None is a fresh permutation of the examples in every epoch; "fixed" is the first
            epoch's over and over; "replacement" draws every example anew.
        bias_lr: Learning rate of the first layer's bias; None is lr, 0 leaves the bias as it is.
        bias_weight_decay: Weight decay of the first layer's bias; None is weight_decay.
        input_noise: Standard deviation of the Gaussian noise on every input, fresh for each example
            and step and the same in both gradients of a step; None is no noise.
        momentum: μ, as in torch.optim.SGD; None is none.
        second_batch: For "sam" and "usam": None takes both gradients of a step on one batch;
            "other" takes the second on a batch from an order of its own.
        norm_rule: How max_first_layer_norm is meant, if not as said there: "each" holds weights and
            bias each to a ball of this radius; "held" rescales to this norm what is below it too.
        statistics: "constant" takes gradients as if BatchNorm's statistics were no functions of the
            weights; None takes them through.
        gamma: "unperturbed" leaves γ out of the ascent, "fixed" out of the whole step; None treats
            it as every parameter.
    """

    algorithm: Algorithm
    lr: Annotated[float, Field(gt=0, le=3e38)]
    epochs: Annotated[int, Field(gt=0, le=10**12)]
    rho: Annotated[float, Field(ge=0, le=3e38)] = 0.0
    batch_size: Annotated[int, Field(gt=0)] | None = None
    weight_decay: Annotated[float, Field(ge=0, le=3e38)] = 0.0
    noise: Annotated[float, Field(ge=0, le=3e38)] = 0.0
    max_first_layer_norm: Annotated[float, Field(ge=1e-15, le=1e15)] | None = None
    # What is None stands in no stored configuration, so that these leave the digests as they were.
    order: Order | None = None
    bias_lr: Annotated[float, Field(ge=0, le=3e38)] | None = None
    bias_weight_decay: Annotated[float, Field(ge=0, le=3e38)] | None = None
    input_noise: Annotated[float, Field(gt=0, le=1e15)] | None = None
    momentum: Annotated[float, Field(gt=0, lt=1)] | None = None
    second_batch: Literal["other"] | None = None
    norm_rule: NormRule | None = None
    statistics: Literal["constant"] | None = None
    gamma: GammaRule | None = None

    def __post_init__(self) -> None:
        if self.rho and self.algorithm not in ("sam", "usam"):
            raise UserError(
                f"rho is the ascent radius of 'sam' and 'usam'; {self.algorithm!r} has none: "
                f"drop rho={self.rho:g} or change the algorithm"
            )
        ascends = self.algorithm in ("sam", "usam")
        for name, value in (("second_batch", self.second_batch), ("gamma", self.gamma)):
            if value in ("other", "unperturbed") and not ascends:
                raise UserError(
                    f"{name}={value!r} is for the two gradients of 'sam' and 'usam'; "
                    f"{self.algorithm!r} has one: drop it or change the algorithm"
                )
        if self.second_batch is not None and self.batch_size is None:
            raise UserError(
                f"second_batch={self.second_batch!r} is another part of the examples, and the full "
                "batch is all of them: give a batch_size or drop it"
            )
        if self.second_batch is not None and self.input_noise is not None:
            raise UserError(
                "input_noise is the same in both gradients of a step, and "
                f"second_batch={self.second_batch!r} takes them on two batches: drop one"
            )
        if self.norm_rule is not None and self.max_first_layer_norm is None:
            raise UserError(
                f"norm_rule={self.norm_rule!r} says how max_first_layer_norm is meant: give it too"
            )
        if self.noise and self.algorithm != "label_noise":
            raise UserError(
                f"noise belongs to 'label_noise', got noise={self.noise:g} with {self.algorithm!r}"
            )
        if self.lr * self.weight_decay > 1 - 1e-6:  # float32 would round 1 − lr·weight_decay to 0
            raise UserError(
                "lr * weight_decay must be <= 1 - 1e-6 (each step multiplies θ by 1 − "
                f"lr·weight_decay), got {self.lr:g} * {self.weight_decay:g}"
            )
        lr, weight_decay = self.of_bias
        if lr * weight_decay > 1 - 1e-6:
            raise UserError(
                "the bias's lr * weight_decay must be <= 1 - 1e-6 (each step multiplies it by 1 − "
                f"lr·weight_decay), got {lr:g} * {weight_decay:g}"
            )

    @property
    def bias_apart(self) -> bool:
        """Whether the first layer's bias has a learning rate or a weight decay of its own."""
        return self.bias_lr is not None or self.bias_weight_decay is not None

    @property
    def of_bias(self) -> tuple[float, float]:
        """Learning rate and weight decay of the first layer's bias."""
        return (
            self.lr if self.bias_lr is None else self.bias_lr,
            self.weight_decay if self.bias_weight_decay is None else self.bias_weight_decay,
        )


@spec
class LogGrid:
    """At which epochs a run is measured: log-spaced and regular ones together.

    Attributes:
        per_decade: Log-spaced points in each factor of ten.
        regular: Evenly spaced points over the whole run.
    """

    per_decade: Annotated[int, Field(ge=0, le=1000)] = 10
    regular: Annotated[int, Field(ge=0, le=100_000)] = 40

    def epochs(self, schedule: tuple[Phase, ...]) -> list[int]:
        """Return the epochs to log, from 0 to the last, ends of phases included.

        >>> LogGrid(per_decade=1, regular=2).epochs((Phase("sgd", lr=0.1, epochs=50),))
        [0, 1, 10, 25, 50]
        """
        total, points, end = sum(phase.epochs for phase in schedule), {0}, 0
        for phase in schedule:
            end += phase.epochs
            points.add(end)
        points |= {round(total * k / self.regular) for k in range(self.regular)}
        k = 0
        while self.per_decade and round(10 ** (k / self.per_decade)) < total:
            points.add(round(10 ** (k / self.per_decade)))
            k += 1
        return sorted(points)
