"""Measuring compared with PyHessian.

Both sides get the same network, loss and images, and their times include their own setup. These
runs are long, so each is timed once, in processor time, after a warm-up on a few images.
"""

from __future__ import annotations

import importlib.util
import math
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flatlab.measures.eigenvalues import LambdaMax
from flatlab.measures.measuring import measure

from . import vgg
from .rows import Row, Target, Tell, number

TRACE = Target("ratio", ">=", 10)
LAMBDA_MAX = Target("ratio", ">=", 3)
STANDARD_ERROR = 0.12
TOLERANCE = 1e-3

LOSS = nn.CrossEntropyLoss()


def installed() -> bool:
    """Return whether pyhessian can be imported."""
    return importlib.util.find_spec("pyhessian") is not None


def _timed(what: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    answer = what()
    return time.process_time() - start, answer


def _pyhessian(
    x: Tensor, y: Tensor, ask: Callable[[Any], Any], weights: str, seed: int = vgg.SEED
) -> Any:
    """Call PyHessian on the network, and undo its changes to global state."""
    net = vgg.network(weights)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the reference cycle from its create_graph
        import pyhessian

        torch.manual_seed(seed)
        asked = pyhessian.hessian(net, LOSS, data=(x, y), cuda=False)
        answer = ask(asked)
        asked.gradsH = None
        net.zero_grad(set_to_none=True)  # breaks the cycle
    return answer


def probes_needed(estimates: list[float], truth: float) -> int:
    """Return after how many probes the standard error is `STANDARD_ERROR` of the truth.

    The deviation is taken from the true mean, so a few probes estimate it better.

    >>> probes_needed([90.0, 110.0, 70.0, 130.0], 100.0)  # deviation √500
    4
    """
    spread = math.sqrt(np.mean((np.array(estimates) - truth) ** 2))
    return max(1, math.ceil((spread / (STANDARD_ERROR * abs(truth))) ** 2))


def trace(tell: Tell, weights: str, n: int = 1000, probes: int = 12) -> list[Row]:
    """Compare the exact trace with PyHessian's to a standard error of 12 %.

    PyHessian's own stopping rule leaves 3 to 18 % of error, so it is not used. A few probes are
    timed, and their time is scaled to the number of probes that their spread requires.
    """
    x, y, images = vgg.images(n)
    tell(f"trace: exact, {n:,} images")
    net = vgg.network(weights)
    measure(net, LOSS, (x[:8], y[:8]), "trace")
    ours, readings = _timed(lambda: measure(net, LOSS, (x, y), "trace"))
    truth = float(readings["trace"].value)
    what = f"exact trace, VGG11/4, {n:,} {images}, {weights} weights: flatlab"
    if not installed():
        return [
            Row("trace", what, ours, "s"),
            Row("trace", "skipped: pyhessian is not installed"),
        ]
    tell(f"trace: {probes} probes of PyHessian")
    setup, _ = _timed(lambda: _pyhessian(x, y, lambda h: None, weights))
    whole, estimates = _timed(
        lambda: _pyhessian(x, y, lambda h: h.trace(maxIter=probes, tol=0.0), weights)
    )
    error = float(np.std(estimates, ddof=1)) / math.sqrt(probes)
    if not abs(np.mean(estimates) - truth) <= 6 * error:
        raise RuntimeError(
            f"flatlab's trace is {truth:g} and PyHessian's {np.mean(estimates):g} ± {error:g}, so "
            "comparing their speed means nothing"
        )
    needed, each = probes_needed(estimates, truth), max(0.0, whole - setup) / probes
    theirs = setup + needed * each
    told = (
        f"PyHessian to a standard error of {STANDARD_ERROR:.0%}: {needed} probes by the spread of "
        f"{probes}, {number(each)} s each (timed on those {probes}, multiplied)"
    )
    return [
        Row("trace", what, ours, "s", theirs / ours, TRACE),
        Row("trace", told, theirs, "s"),
    ]


def lambda_max(tell: Tell, weights: str, n: int = 1000, starts: int = 5) -> list[Row]:
    """Compare λ_max to 1e-3, with a bound, with PyHessian's power iteration at tolerance 1e-3.

    The time of both depends on the random start vector, for PyHessian by a factor of four. So the
    times of several starts are added.
    """
    x, y, images = vgg.images(n)
    net, wanted = vgg.network(weights), {"lambda_max": LambdaMax(tolerance=TOLERANCE)}
    measure(net, LOSS, (x[:8], y[:8]), wanted)
    if installed():
        _pyhessian(x[:8], y[:8], lambda h: None, weights)
    ours, theirs, found, values = [], [], [], []
    for start in range(starts):
        tell(f"lambda_max: {n:,} images, start {start + 1} of {starts}")
        seconds, readings = _timed(partial(measure, net, LOSS, (x, y), wanted, seed=start))
        ours.append(seconds)
        found.append(readings["lambda_max"])
        if installed():
            seconds, (value, _) = _timed(partial(_pyhessian, x, y, _largest, weights, start))
            theirs.append(seconds)
            values.append(value[0])
    truth = max(float(reading.value) for reading in found)  # Ritz values are lower bounds
    products = [reading.card.products for reading in found]
    what = (
        f"λ_max to {TOLERANCE:g}, VGG11/4, {n:,} {images}, {weights} weights, mean of {starts} "
        f"starts: flatlab, {min(products)} to {max(products)} products, {number(truth)}"
    )
    if not theirs:
        return [
            Row("lambda_max", what, float(np.mean(ours)), "s"),
            Row("lambda_max", "skipped: pyhessian is not installed"),
        ]
    off = np.array(values) / truth - 1
    if not np.abs(off).max() <= 0.2:
        raise RuntimeError(
            f"flatlab's λ_max is {truth:g}, PyHessian's eigenvalues are {values}: they are "
            "different ones, so comparing their speed means nothing"
        )
    each = np.array(theirs) / np.array(ours)
    told = (
        f"the same, PyHessian at its tolerance {TOLERANCE:g}: off by {off.min():+.1%} to "
        f"{off.max():+.1%}; ratios of single starts {each.min():.2g} to {each.max():.2g}, median "
        f"{np.median(each):.2g}"
    )
    return [
        Row("lambda_max", what, float(np.mean(ours)), "s", sum(theirs) / sum(ours), LAMBDA_MAX),
        Row("lambda_max", told, float(np.mean(theirs)), "s"),
    ]


def _largest(asked: Any) -> Any:
    return asked.eigenvalues(top_n=1, tol=TOLERANCE)
