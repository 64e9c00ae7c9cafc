"""Pictures of a solution: its neurons, its activation matrices, its scores through training."""

from __future__ import annotations

import numpy as np

from ..plots import Bar, Bars, Curve, Curves, Heat, Plot, Reference, Span
from .gallery import ANGLE, Gallery
from .portrait import Anatomy, sign_of

SATURATES = 98.0  # per cent of the values within the range of colours
FEW = 45  # up to this many coordinates each have a label
ROLES = {"+": "positive", "−": "negative", "±": "neutral"}


def pictures(anatomy: Anatomy, title: str) -> list[Plot]:
    """Return the pictures of a solution; scores through training only if it was trained."""
    made = [gallery_plot(anatomy, title), activations_plot(anatomy, title)]
    if len(anatomy.history.get("epoch", ())) > 1:
        made.append(through_training_plot(anatomy, title))
    return made


def gallery_plot(anatomy: Anatomy, title: str) -> Plot:
    """Return the first-layer weights of the largest neurons, a row each, and their shares."""
    g = anatomy.gallery
    rows, bias = len(g.neurons), g.columns[-1:] == ("bias",)
    inputs = len(g.columns) - bias
    named = any(g.features)
    names = g.features if named else tuple(map(str, g.neurons))
    starts = [k for k in range(rows) if k == 0 or g.features[k] != g.features[k - 1]]
    stops = [*starts, rows][1:]
    weights = Heat(
        "",
        "",
        "neuron, with its feature" if named else "neuron",
        g.weights[:, :inputs],
        _columns(g, inputs),
        names,
        colour="weight / ‖w‖",
        signed=True,
        saturates=SATURATES,
        xspans=(Span("", 0, g.relevant), Span("", g.relevant, inputs)) if g.relevant else (),
        yspans=tuple(Span("", *ends) for ends in zip(starts, stops, strict=True)),
    )
    biases = Heat(
        "", "", "", g.weights[:, inputs:], ("bias",), names, signed=True, saturates=SATURATES
    )
    signs = [sign_of(value) for value in g.signs]
    shares = Bars(
        "",
        "% of contributions",
        tuple(
            Bar(name, ROLES[sign], 100 * float(size), sign)
            for name, sign, size in zip(names, signs, g.sizes, strict=True)
        ),
    )
    caption = f"The {rows} largest of {g.total} neurons, each divided by its norm."
    caption += " Bias on a scale of its own." if bias else ""
    caption += f"\nNamed: direction within {ANGLE:g}° of the feature." if named else ""
    caption += "\nBars: share of all contributions, with the sign of the output."
    row = (weights, biases, shares) if bias else (weights, shares)
    return Plot("anatomy-gallery", f"First layer: {title}", (row,), caption)


def _columns(g: Gallery, inputs: int) -> tuple[str, ...]:
    """Return the names of the input coordinates; of many, some are left empty."""
    step = 1 if inputs <= FEW else max(g.relevant, inputs // 10)
    return tuple(
        g.columns[k] if k < g.relevant <= FEW or k % step == 0 else "" for k in range(inputs)
    )


def activations_plot(anatomy: Anatomy, title: str) -> Plot:
    """Return what each neuron contributes at each training point, a map for each hidden layer."""
    found = anatomy.matrices
    panels = tuple(
        Heat(
            (f"hidden layer {m.layer}: " if len(anatomy.layers) > 1 else "")
            + f"memorisation {m.memorisation:.3f}",
            "training point",
            f"neuron ({len(m.neurons)} of {m.total})",
            m.contributions,
            colour="contribution to f",
            signed=True,
            saturates=SATURATES,
            xspans=m.groups,
        )
        for m in found
    )
    least = min(m.covered for m in found)
    caption = f"Neurons with {100 * least:.1f} % of all contributions, sorted by their main point."
    if len(found) < len(anatomy.layers):
        caption += f" {len(found)} of {len(anatomy.layers)} hidden layers."
    caption += "\nMemorisation is 1 where no two points share a neuron: a diagonal."
    return Plot("anatomy-activations", f"Who fires where: {title}", (panels,), caption)


def through_training_plot(anatomy: Anatomy, title: str) -> Plot:
    """Return the picture of scores, test error (or loss) and trace through training.

    A history without scores shows those of the last epoch alone.
    """
    h = anatomy.history
    epoch = np.asarray(h.get("epoch", [0]), np.float64)

    def curve(name: str, role: str, last: float | None = None) -> tuple[Curve, ...]:
        x, y = (epoch, h[name]) if name in h else (epoch[-1:], [last])
        return (Curve("", role, x, np.asarray(y, np.float64)[None]),)

    cells, chance = anatomy.cells, anatomy.chance
    memorisation = curve("memorisation", "gd", anatomy.memorisation)
    (values,) = memorisation[0].y
    level = (Reference("a neuron a cell", cells, above=True),) if cells else ()
    # Up to 1, so that a small score looks small.
    limits = (min([1 / anatomy.data.n, *values[values > 0]]) / 1.2, 1.2)
    panels = [Curves("memorisation", "score", memorisation, level, yscale="log", ylim=limits)]
    if anatomy.features is not None and chance is not None:
        features = curve("features", "sam", anatomy.features)
        level = (Reference("chance", chance, above=True),)
        panels.append(Curves("features", "score", features, level, ylim=(-0.02, 1.05)))
    if "test_error" in h:
        error, most = curve("test_error", "test"), 0.6 if max(h["test_error"]) <= 0.6 else 1.05
        panels.append(Curves("test error", "test error", error, ylim=(-0.02, most)))
    elif "test_loss" in h:
        panels.append(Curves("test loss", "test loss", curve("test_loss", "test"), yscale="log"))
    if "trace" in h:
        panels.append(Curves("sharpness", "trace", curve("trace", "test"), yscale="log"))
    missing = bool(h) and "memorisation" not in h
    caption = "The history has no scores: they are those of the last epoch." if missing else ""
    return Plot("anatomy-scores", f"Through training: {title}", (tuple(panels),), caption)
