"""The 1-SAM step of the two-layer network in JAX, compiled as a whole: `jit(lax.scan)`."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np

from flatlab.models import Params

from . import timing
from .cases import CASES, Case, Engine, sample_order
from .rows import Row, Tell
from .steps import require_agreement


def installed() -> bool:
    """Return whether jax can be imported."""
    return importlib.util.find_spec("jax") is not None


def _jax() -> Any:
    """Import jax on one thread, with float64 enabled; float32 arrays stay float32."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:  # read once, when jax starts
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax


class Scan:
    """`jit(lax.scan)` over the sample order as a contender."""

    def __init__(self, case: Case, dtype: str = "float32"):
        jax = _jax()
        self.case, self.steps_per_epoch = case, case.steps_per_epoch
        self.asarray = jax.numpy.asarray
        x, y = (np.asarray(part, dtype) for part in (case.data.x_train, case.data.y_train))
        self.start = {name: value.astype(dtype) for name, value in case.start().items()}
        self.train = jax.jit(_scan(jax, x, y, case.phase.lr, case.phase.rho))
        self.orders: dict[int, Any] = {}
        self.reset()

    def reset(self) -> None:
        """Go back to the initial weights."""
        self.weights = {name: self.asarray(value) for name, value in self.start.items()}

    def run(self, epochs: int) -> None:
        """Train from the current weights; the order is drawn once for each number of epochs."""
        if epochs not in self.orders:
            order = np.array(sample_order(self.case.data.n, epochs), np.int32)
            self.orders[epochs] = self.asarray(order)
        self.weights = self.train(self.weights, self.orders[epochs])
        self.weights["W1"].block_until_ready()

    def check(self) -> None:
        """Raise if the weights are not finite."""
        if not all(np.isfinite(value).all() for value in self.params().values()):
            raise FloatingPointError(f"{self.case.what}: the JAX loop diverged")

    def params(self) -> Params:
        """Return a copy of the weights by name."""
        return {name: np.array(value) for name, value in self.weights.items()}


def _scan(jax: Any, x: np.ndarray, y: np.ndarray, lr: float, rho: float) -> Any:
    jnp, tree = jax.numpy, jax.tree_util
    inputs, labels = jnp.asarray(x), jnp.asarray(y)

    def loss(weights: Any, i: Any) -> Any:
        hidden = jax.nn.relu(weights["W1"] @ inputs[i] + weights["b1"])
        return (weights["W2"] @ hidden - labels[i]) ** 2

    def step(weights: Any, i: Any) -> tuple[Any, None]:
        gradient = jax.grad(loss)(weights, i)
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in tree.tree_leaves(gradient)))
        scale = jnp.where(norm > 0, rho / norm, 0)
        raised = tree.tree_map(lambda w, g: w + scale * g, weights, gradient)
        gradient = jax.grad(loss)(raised, i)
        return tree.tree_map(lambda w, g: w - lr * g, weights, gradient), None

    return lambda weights, order: jax.lax.scan(step, weights, order)[0]


def benchmark(tell: Tell) -> list[Row]:
    """Compare the engine with JAX on the two-layer 1-SAM step; one line if jax is not installed."""
    if not installed():
        return [Row("jax", "skipped: jax is not installed")]
    case = CASES["sam"]
    tell("jax: checking jit(lax.scan) against the engine")
    require_agreement(case, Scan, "the JAX loop")
    tell("jax: timing")
    best = timing.microseconds_a_step({"engine": Engine(case), "scan": Scan(case)})
    ratio = best["scan"] / best["engine"]
    return [
        Row("jax", f"{case.what}: engine", best["engine"], "µs/step", ratio),
        Row("jax", "the same, JAX jit(lax.scan)", best["scan"], "µs/step"),
    ]
