"""Pictures of the theory: what `sights` computes, as plots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..plots import Cloud, Curve, Curves, Mark, Outlines, Plot, Points, Reference
from . import sights
from .solution import Array

Tell = Callable[[str], None]
EXPECTED_SECONDS = 60.0
"""Time that all pictures take, for a progress bar."""


def trace_by_scale(tell: Tell) -> Plot:
    """Return the trace of eq. (5) as a function of r."""
    d, n = 30, 100
    r, trace, floor = sights.trace_by_scale(d, n)

    def mark(formula: str, value: float, side: str) -> Mark:
        height = float(np.interp(value, r, trace))
        label = f"{formula}\nTr = {height:.2f}"
        return Mark(label, value, height, "left" if side == "left" else "right")

    panel = Curves(
        "trace of the network of four neurons",
        f"Tr ∇²L, d = {d}, n = {n}",
        (Curve("", "sam", r, trace[None]),),
        (Reference("floor 4√(d+1)", floor),),
        ylim=(0, 1.05 * float(trace.max())),
        xlabel="r",
        xscale="linear",
        marks=(
            mark("r = (d+1)^¼", (d + 1) ** 0.25, "right"),
            mark("printed: r = (d²+1)^¼", (d**2 + 1) ** 0.25, "left"),
        ),
    )
    return Plot("trace-by-scale", "The scale of the xor network, eq. (5)", ((panel,),))


def circle(tell: Tell) -> Plot:
    """Return where the neurons of memorising networks on the circle fire."""
    return memorising_on_the_circle("circle", sights.circle_regions())


def memorising_on_the_circle(name: str, found: sights.Circle) -> Plot:
    """Draw each point of the circle with the arc on which its own neuron fires, for each ε."""
    ring = np.linspace(0, 2 * np.pi, 400)[None]
    categories = (
        (found.angles[found.labels > 0], "y = 1", "positive"),
        (found.angles[found.labels < 0], "y = −1", "negative"),
    )
    clouds = tuple(Cloud(label, role, *_on_circle(at)) for at, label, role in categories)
    panels = []
    for epsilon, half in found.half.items():
        arc = np.linspace(-half, half, 40)
        arcs = tuple(
            Outlines(role, *_on_circle(at[:, None] + arc), filled=True)
            for at, _, role in categories
        )
        share = min(1.0, len(found.angles) * half / np.pi)
        panels.append(
            Points(
                f"ε = {epsilon:.3g}: f ≠ 0 on {share:.1%}",
                "",
                "",
                clouds,
                outlines=(Outlines("neutral", *_on_circle(ring)), *arcs),
                drawing=True,
            )
        )
    return Plot(
        name,
        "Memorising on the circle: one neuron, one point",
        (tuple(panels),),
        "Shaded: where the point's own neuron is active. "
        "Every ε has the same trace, the least possible.",
    )


def _on_circle(angles: Array) -> tuple[Array, Array]:
    return np.cos(angles), np.sin(angles)


def batch_norm(tell: Tell) -> Plot:
    """Return the trace with simplified BatchNorm against the scale of the first layer."""
    K, trace = sights.batch_norm_path()
    x = "scale K of the first layer"
    law = (trace[0] - 8) * (K[0] / K) ** 2
    left = Curves(
        "trace",
        "Tr ∇²L",
        (Curve("xor network", "sam", K, trace[None]),),
        (Reference("8", 8.0),),
        yscale="log",
        xlabel=x,
        xscale="log",
    )
    right = Curves(
        "distance from the infimum",
        "Tr ∇²L − 8",
        (
            Curve("xor network", "sam", K, trace[None] - 8),
            Curve("1/K²", "reference", K, law[None]),
        ),
        yscale="log",
        xlabel=x,
        xscale="log",
    )
    return Plot(
        "batch-norm", "Simplified BatchNorm: the infimum 8 is at infinity", ((left, right),)
    )


def between_minima(tell: Tell) -> Plot:
    """Return the straight line and a flat path between two flattest minima."""
    d, n = 8, 40
    straight, flat = sights.between_minima(d, n)

    def panel(title: str, line: Array, path: Array, top: float | None = None) -> Curves:
        return Curves(
            title,
            "",
            (
                Curve("straight line", "gd", straight.t, line[None]),
                Curve("flat path: √(1−t), √t", "sam", flat.t, path[None]),
            ),
            ylim=(0, top) if top else None,
            xlabel="t: 0 memorises, 1 generalises",
            xscale="linear",
        )

    panels = (
        panel("training loss", straight.loss, flat.loss),
        panel("Tr ∇²L", straight.trace, flat.trace, 1.15 * float(flat.trace.max())),
        panel("squared test error", straight.test_loss, flat.test_loss),
    )
    return Plot(
        "between-minima",
        "From the memorising to the generalising flattest minimum",
        (panels,),
        f"xor, d = {d}, n = {n}. On the flat path every network interpolates and has the least "
        f"trace; its zero-one error is {flat.test_error[0]:.0%} at t = 0 and "
        f"{flat.test_error[1]:.0%} at every t > 0 drawn.",
    )


def rademacher(tell: Tell) -> Plot:
    """Return the Rademacher complexity of Θ_1 against its bound."""
    d = 10
    found = list(sights.rademacher_by_samples(d))
    n = np.array([size for size, _ in found], float)
    panel = Curves(
        "complexity of Θ₁, and its bound",
        "empirical Rademacher complexity",
        (
            Curve(
                "found by ascent",
                "sam",
                n,
                np.array([[each.value for _, each in found]]),
                1.96 * np.array([each.standard_error for _, each in found]),
            ),
            Curve("bound 2CB/√n", "reference", n, np.array([[each.bound for _, each in found]])),
        ),
        yscale="log",
        xlabel=f"n points of the cube, d = {d}",
        xscale="log",
    )
    return Plot("rademacher", "Rademacher complexity of path norm 1", ((panel,),))


def flattest_accuracy(tell: Tell) -> Plot:
    """Return the test accuracy of the flattest minimiser found against n/d."""
    d = 10
    found = sights.flattest_accuracy(d, tell=tell)
    names = {"no-bias": ("no bias", "sam"), "bias": ("bias", "gd"), "sim-bn": ("Sim-BN", "sim-bn")}

    def panel(ylabel: str, values: list[Array], chance: tuple[Reference, ...] = ()) -> Curves:
        return Curves(
            "",
            ylabel,
            tuple(
                Curve(*names[each.family], each.ratios, y.T)
                for each, y in zip(found, values, strict=True)
            ),
            chance,
            xlabel=f"n/d (d = {d}, xor)",
            xscale="linear",
        )

    panels = (
        panel(
            "accuracy on unseen points",
            [each.accuracy for each in found],
            (Reference("chance", 0.5, above=True),),
        ),
        panel(
            "trace / floor (Sim-BN: / xor network)", [each.trace_over_reference for each in found]
        ),
    )
    return Plot(
        "flattest-accuracy",
        "Does the flattest minimiser generalise?",
        (panels,),
        "Found by linear programmes with column generation; three seeds, band: all of them. "
        "f = 0 counts as wrong.\nPoints on a kink have relu' = 0.",
    )


PICTURES: dict[str, Callable[[Tell], Plot]] = {
    "trace-by-scale": trace_by_scale,
    "circle": circle,
    "batch-norm": batch_norm,
    "between-minima": between_minima,
    "rademacher": rademacher,
    "flattest-accuracy": flattest_accuracy,
}
