"""Pictures of the theory: what `sights` computes, as plots."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..plots import Cloud, Curve, Curves, Mark, Outlines, Plot, Points, Reference
from . import sights
from .illustration import LINEAR, LOGARITHMIC, Tell
from .solution import Array


def trace_by_scale_plot(tell: Tell) -> Plot:
    """Return the trace of eq. (5) as a function of r."""
    d, n = 30, 100
    r, trace, floor = sights.trace_by_scale(d, n)
    right, wrong = (d + 1) ** 0.25, (d**2 + 1) ** 0.25
    at_right, at_wrong = (float(np.interp(each, r, trace)) for each in (right, wrong))
    marks = (
        Mark(f"r = (d+1)^¼\nTr = {at_right:.2f}", right, at_right, "right"),
        Mark(f"printed: r = (d²+1)^¼\nTr = {at_wrong:.2f}", wrong, at_wrong, "left"),
    )
    title, ylabel = "trace of the network of four neurons", f"Tr ∇²L, d = {d}, n = {n}"
    curves, floors = (Curve("", "sam", r, trace[None]),), (Reference("floor 4√(d+1)", floor),)
    top = (0, 1.05 * float(trace.max()))
    panel = LINEAR(title, ylabel, curves, floors, ylim=top, xlabel="r", marks=marks)
    return Plot("trace-by-scale", "The scale of the xor network, eq. (5)", ((panel,),))


def circle_plot(tell: Tell) -> Plot:
    """Return where the neurons of memorising networks on the circle fire."""
    return memorising_on_the_circle("circle", sights.circle_regions())


def memorising_on_the_circle(name: str, found: sights.Circle) -> Plot:
    """Draw each point of the circle with the arc on which its own neuron fires, for each ε."""
    ring = Outlines("neutral", *_on_circle(np.linspace(0, 2 * np.pi, 400)[None]))
    categories = (
        (found.angles[found.labels > 0], "y = 1", "positive"),
        (found.angles[found.labels < 0], "y = −1", "negative"),
    )
    clouds = tuple(Cloud(label, role, *_on_circle(at)) for at, label, role in categories)
    panels = []
    for epsilon, half in found.half.items():
        arc = np.linspace(-half, half, 40)
        arcs = (
            Outlines(role, *_on_circle(at[:, None] + arc), filled=True)
            for at, _, role in categories
        )
        title = f"ε = {epsilon:.3g}: f ≠ 0 on {min(1.0, len(found.angles) * half / np.pi):.1%}"
        panels.append(Points(title, "", "", clouds, outlines=(ring, *arcs), drawing=True))
    caption = (
        "Shaded: where the point's own neuron is active. "
        "Every ε has the same trace, the least possible."
    )
    return Plot(name, "Memorising on the circle: one neuron, one point", (tuple(panels),), caption)


def _on_circle(angles: Array) -> tuple[Array, Array]:
    return np.cos(angles), np.sin(angles)


def batch_norm_plot(tell: Tell) -> Plot:
    """Return the trace with simplified BatchNorm against the scale of the first layer."""
    K, trace = sights.batch_norm_path()
    panel = partial(LOGARITHMIC, xlabel="scale K of the first layer")
    law = Curve("1/K²", "reference", K, ((trace[0] - 8) * (K[0] / K) ** 2)[None])
    found, excess = (Curve("xor network", "sam", K, y[None]) for y in (trace, trace - 8))
    left = panel("trace", "Tr ∇²L", (found,), (Reference("8", 8.0),))
    right = panel("distance from the infimum", "Tr ∇²L − 8", (excess, law))
    title = "Simplified BatchNorm: the infimum 8 is at infinity"
    return Plot("batch-norm", title, ((left, right),))


def between_minima_plot(tell: Tell) -> Plot:
    """Return the straight line and a flat path between two flattest minima."""
    d, n = 8, 40
    straight, flat = sights.between_minima(d, n)

    def panel(title: str, line: Array, path: Array, top: float | None = None) -> Curves:
        curves = (
            Curve("straight line", "gd", straight.t, line[None]),
            Curve("flat path: √(1−t), √t", "sam", flat.t, path[None]),
        )
        ylim = (0, top) if top else None
        return LINEAR(title, "", curves, ylim=ylim, xlabel="t: 0 memorises, 1 generalises")

    panels = (
        panel("training loss", straight.loss, flat.loss),
        panel("Tr ∇²L", straight.trace, flat.trace, 1.15 * float(flat.trace.max())),
        panel("squared test error", straight.test_loss, flat.test_loss),
    )
    caption = (
        f"xor, d = {d}, n = {n}. On the flat path every network interpolates and has the least "
        f"trace; its zero-one error is {flat.test_error[0]:.0%} at t = 0 and "
        f"{flat.test_error[1]:.0%} at every t > 0 drawn."
    )
    title = "From the memorising to the generalising flattest minimum"
    return Plot("between-minima", title, (panels,), caption)


def rademacher_plot(tell: Tell) -> Plot:
    """Return the Rademacher complexity of Θ_1 against its bound."""
    d = 10
    sizes, found = zip(*sights.rademacher_by_samples(d), strict=True)
    n = np.array(sizes, float)
    values = np.array([[each.value for each in found]])
    bounds = np.array([[each.bound for each in found]])
    bars = 1.96 * np.array([each.standard_error for each in found])
    curves = (
        Curve("found by ascent", "sam", n, values, bars),
        Curve("bound 2CB/√n", "reference", n, bounds),
    )
    title, ylabel = "complexity of Θ₁, and its bound", "empirical Rademacher complexity"
    panel = LOGARITHMIC(title, ylabel, curves, xlabel=f"n points of the cube, d = {d}")
    return Plot("rademacher", "Rademacher complexity of path norm 1", ((panel,),))


def flattest_accuracy_plot(tell: Tell) -> Plot:
    """Return the test accuracy of the flattest minimiser found against n/d."""
    d = 10
    found = sights.flattest_accuracy(d, tell=tell)
    names = {"no-bias": ("no bias", "sam"), "bias": ("bias", "gd"), "sim-bn": ("Sim-BN", "sim-bn")}
    panel = partial(LINEAR, "", xlabel=f"n/d (d = {d}, xor)")
    accuracy = tuple(Curve(*names[one.family], one.ratios, one.accuracy.T) for one in found)
    traces = tuple(
        Curve(*names[one.family], one.ratios, one.trace_over_reference.T) for one in found
    )
    chance = (Reference("chance", 0.5, above=True),)
    panels = (
        panel("accuracy on unseen points", accuracy, chance),
        panel("trace / floor (Sim-BN: / xor network)", traces),
    )
    caption = (
        "Found by linear programmes with column generation; three seeds, band: all of them. "
        "f = 0 counts as wrong.\nPoints on a kink have relu' = 0."
    )
    title = "Does the flattest minimiser generalise?"
    return Plot("flattest-accuracy", title, (panels,), caption)
