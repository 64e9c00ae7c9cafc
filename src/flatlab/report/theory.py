"""Pictures of the theory: what `theory.sights` computes, drawn."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from ..files.store import ensure_directory, write_atomically
from ..theory import sights
from .figures import COLOURS, FAINT, FALLBACK, INK, STYLE

Tell = Callable[[str], None]
EXPECTED_SECONDS = 60.0
BLUE, ORANGE, GREEN = COLOURS["sam"], COLOURS["gd"], FALLBACK[0]


def save_theory(folder: Path, tell: Tell) -> list[Path]:
    """Compute and draw every picture; return the paths."""
    ensure_directory(folder)
    paths = []
    for name, picture in PICTURES.items():
        tell(name)
        paths.append(folder / f"{name}.png")
        write_atomically(paths[-1], drawn(picture, tell))
    return paths


def drawn(picture: Callable[[Tell], bytes], tell: Tell = lambda now: None) -> bytes:
    """Return the PNG of one of `PICTURES`."""
    with matplotlib.rc_context(STYLE):
        return picture(tell)


def trace_by_scale(tell: Tell) -> bytes:
    """Trace of eq. (5) as a function of r."""
    r, trace, floor = sights.trace_by_scale()
    figure, (ax,) = _figure(1, "The scale of the xor network, eq. (5)")
    ax.plot(r, trace, color=BLUE, linewidth=2)
    ax.axhline(floor, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    ax.annotate("floor 4√(d+1)", (6.2, floor), xytext=(0, -4), textcoords="offset points", va="top")
    for value, text, at in (
        (31**0.25, "r = (d+1)^¼", 12),
        (901**0.25, "printed: r = (d²+1)^¼", -130),
    ):
        height = float(np.interp(value, r, trace))
        ax.plot([value], [height], "o", color=ORANGE, zorder=4)
        ax.annotate(
            f"{text}\nTr = {height:.2f}", (value, height), xytext=(at, 24),
            textcoords="offset points", color=INK,
        )  # fmt: skip
    ax.set_xlabel("r")
    ax.set_ylabel("Tr ∇²L, d = 30, n = 100")
    ax.set_ylim(0, None)
    return _png(figure)


def circle(tell: Tell) -> bytes:
    """Regions where the neurons of a memorising network fire."""
    found = sights.circle_regions()
    figure, axes = _figure(len(found.half), "Memorising on the circle: one neuron, one point")
    for ax, (epsilon, half) in zip(axes, found.half.items(), strict=True):
        ring = np.linspace(0, 2 * np.pi, 400)
        ax.plot(np.cos(ring), np.sin(ring), color=FAINT, linewidth=1)
        for angle, label in zip(found.angles, found.labels, strict=True):
            colour = BLUE if label > 0 else ORANGE
            arc = np.linspace(angle - half, angle + half, 40)
            ax.add_patch(
                Polygon(np.stack([np.cos(arc), np.sin(arc)], 1), color=colour, alpha=0.35, lw=0)
            )
            ax.plot(np.cos(arc), np.sin(arc), color=colour, linewidth=3)
            ax.plot([np.cos(angle)], [np.sin(angle)], "o", color=colour, markersize=5)
        share = min(1.0, len(found.angles) * half / np.pi)
        ax.set_title(f"ε = {epsilon:g}: f ≠ 0 on {share:.0%}", loc="left", color=INK)
        ax.set_aspect("equal")
        ax.set_axis_off()
    figure.supxlabel(
        "Blue y = 1, orange y = −1. Shaded: where the point's own neuron is active. "
        "Every ε has the same trace, the least possible.",
        fontsize=9, color=FAINT, x=0.01, ha="left",
    )  # fmt: skip
    return _png(figure)


def batch_norm(tell: Tell) -> bytes:
    """Trace with simplified BatchNorm against the scale of the first layer."""
    K, trace = sights.batch_norm_path()
    figure, (left, right) = _figure(2, "Simplified BatchNorm: the infimum 8 is at infinity")
    left.loglog(K, trace, color=BLUE, linewidth=2)
    left.axhline(8, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    left.set_ylabel("Tr ∇²L")
    right.loglog(K, trace - 8, color=BLUE, linewidth=2)
    right.loglog(K, (trace[0] - 8) * (K[0] / K) ** 2, color=INK, linewidth=1, linestyle=":")
    right.set_ylabel("Tr ∇²L − 8")
    right.annotate("1/K²", (30, (trace[0] - 8) * (K[0] / 30) ** 2), xytext=(8, 4),
                   textcoords="offset points")  # fmt: skip
    for ax in (left, right):
        ax.set_xlabel("scale K of the first layer")
    return _png(figure)


def between(tell: Tell) -> bytes:
    """The straight line and a flat path between two flattest minima."""
    straight, flat = sights.between_minima()
    figure, axes = _figure(3, "From the memorising to the generalising flattest minimum")
    names = (("loss", "training loss"), ("trace", "Tr ∇²L"), ("test_loss", "squared test error"))
    for ax, (name, label) in zip(axes, names, strict=True):
        ax.plot(
            straight.t, getattr(straight, name), color=ORANGE, linewidth=2, label="straight line"
        )
        ax.plot(flat.t, getattr(flat, name), color=BLUE, linewidth=2, label="flat path: √(1−t), √t")
        ax.set_title(label, loc="left", color=INK)
        ax.set_xlabel("t: 0 memorises, 1 generalises")
    axes[1].set_ylim(0, 1.15 * float(flat.trace.max()))
    axes[2].legend(loc="upper right", fontsize=9)
    figure.supxlabel(
        f"xor, d = 8, n = 40. On the flat path every network interpolates and has the least trace; "
        f"its zero-one error is {flat.test_error[0]:.0%} at t = 0 and {flat.test_error[1]:.0%} "
        "at every t > 0 drawn.",
        fontsize=9, color=FAINT, x=0.01, ha="left",
    )  # fmt: skip
    return _png(figure)


def rademacher(tell: Tell) -> bytes:
    """Rademacher complexity of Θ_1 against its bound."""
    found = list(sights.rademacher_by_samples())
    n = np.array([size for size, _ in found], float)
    value = np.array([each.value for _, each in found])
    error = np.array([each.standard_error for _, each in found])
    figure, (ax,) = _figure(1, "Rademacher complexity of path norm 1")
    ax.errorbar(n, value, 1.96 * error, fmt="o-", color=BLUE, linewidth=2, label="found by ascent")
    ax.plot(n, [each.bound for _, each in found], color=INK, linestyle=(0, (4, 3)),
            label="bound 2CB/√n")  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("n points of the cube, d = 10")
    ax.legend()
    return _png(figure)


def accuracy(tell: Tell) -> bytes:
    """Test accuracy of the flattest minimiser found against n/d."""
    found = sights.flattest_accuracy(tell=tell)
    figure, (left, right) = _figure(2, "Does the flattest minimiser generalise?")
    names = {"no-bias": "no bias", "bias": "bias", "sim-bn": "Sim-BN"}
    for each, colour in zip(found, (BLUE, ORANGE, GREEN), strict=True):
        for ax, values in ((left, each.accuracy), (right, each.trace_over_reference)):
            middle = np.nanmean(values, 1)
            ax.plot(each.ratios, middle, "o-", color=colour, linewidth=2, label=names[each.family])
            ax.fill_between(each.ratios, np.nanmin(values, 1), np.nanmax(values, 1), color=colour,
                            alpha=0.18, linewidth=0)  # fmt: skip
            ax.set_xlabel("n/d (d = 10, xor)")
    left.set_ylabel("accuracy on unseen points")
    right.set_ylabel("trace / floor (Sim-BN: / xor network)")
    left.axhline(0.5, color=FAINT, linewidth=1, linestyle=":")
    left.legend()
    figure.supxlabel(
        "Found by linear programmes with column generation; three seeds, band: all of them. "
        "f = 0 counts as wrong.\nPoints on a kink have relu' = 0.",
        fontsize=9, color=FAINT, x=0.01, ha="left",
    )  # fmt: skip
    return _png(figure)


PICTURES: dict[str, Callable[[Tell], bytes]] = {
    "trace-by-scale": trace_by_scale,
    "circle": circle,
    "batch-norm": batch_norm,
    "between-minima": between,
    "rademacher": rademacher,
    "flattest-accuracy": accuracy,
}


def _figure(columns: int, title: str) -> tuple[Figure, list[Axes]]:
    size = (4.1 * columns + (1.5 if columns == 1 else 0.4), 4.0)
    figure = Figure(figsize=size, layout="constrained")
    axes: Any = figure.subplots(1, columns, squeeze=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold", color=INK)
    return figure, list(axes[0])


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()
