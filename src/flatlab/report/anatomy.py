"""Pictures of a solution: its neurons, its activation matrices, its scores through training."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..anatomy import ANGLE, Anatomy, Gallery, Matrix, sign_of
from ..files.store import ensure_directory, write_atomically
from ..plots import Curve, Curves, Plot, Reference
from .figures import COLOURS, FAINT, INK, STYLE, draw

NEGATIVE, POSITIVE = COLOURS["gd"], COLOURS["sam"]
SIGNED = LinearSegmentedColormap.from_list("signed", [NEGATIVE, "#ffffff", POSITIVE])
SATURATES = 98.0  # per cent of the values that are not zero are within the colours
FEW = 45  # so many coordinates can each have a label


def save_anatomy(anatomy: Anatomy, folder: Path, title: str) -> list[Path]:
    """Draw the pictures of a solution to PNGs in the folder; return the paths.

    Scores through training are left out where there was none.
    """
    ensure_directory(folder)
    paths = []
    for name, picture in PICTURES.items():
        if name == "scores" and len(anatomy.history.get("epoch", ())) < 2:
            continue  # nothing was trained
        with matplotlib.rc_context(STYLE):
            png = picture(anatomy, title)
        paths.append(folder / f"anatomy-{name}.png")
        write_atomically(paths[-1], png)
    return paths


def gallery(anatomy: Anatomy, title: str) -> bytes:
    """Draw the first-layer weights of the largest neurons, a row each."""
    g = anatomy.gallery
    rows, bias = len(g.neurons), g.columns[-1:] == ("bias",)
    inputs = len(g.columns) - bias
    wide = min(max(0.2 * inputs, 2.2), 9.0)
    figure = Figure(figsize=(wide + 3.4, 0.17 * max(rows, 12) + 2.1), layout="constrained")
    widths = [wide, *([0.3] if bias else []), 1.5]
    axes: Any = figure.subplots(1, len(widths), width_ratios=widths, sharey=True, squeeze=False)
    heat, bars = axes[0, 0], axes[0, -1]
    image = _heat(heat, g.weights[:, :inputs])
    _name_columns(heat, g, inputs)
    heat.set_yticks(range(rows), g.features if any(g.features) else g.neurons.tolist())
    heat.tick_params(axis="y", labelsize=8, length=0)
    heat.set_ylabel("neuron" if not any(g.features) else "neuron, with its feature")
    if bias:
        _heat(axes[0, 1], g.weights[:, inputs:])
        axes[0, 1].set_xticks([0], ["bias"], fontsize=7.5, rotation=90)
        axes[0, 1].tick_params(axis="y", length=0)
    colours = {"+": POSITIVE, "−": NEGATIVE, "±": FAINT}
    signs = [sign_of(value) for value in g.signs]
    bars.barh(range(rows), 100 * g.sizes, 0.8, color=[colours[sign] for sign in signs])
    for row, sign in enumerate(signs):
        bars.annotate(
            sign, (100 * g.sizes[row], row), xytext=(3, 0), textcoords="offset points",
            va="center", fontsize=8, color=colours[sign],
        )  # fmt: skip
    bars.margins(x=0.15)
    bars.set_xlim(left=0)
    bars.set_xlabel("% of contributions")
    bars.tick_params(axis="y", length=0)
    for k in range(1, rows):
        if g.features[k] != g.features[k - 1]:
            for ax in axes[0]:
                ax.axhline(k - 0.5, color=INK, linewidth=0.7)
    figure.colorbar(image, ax=list(axes[0]), label="weight / ‖w‖", shrink=0.5, extend="both")
    said = f"The {rows} largest of {g.total} neurons, each divided by its norm."
    said += " Bias on a scale of its own." if bias else ""
    said += f"\nNamed: direction within {ANGLE:g}° of the feature." if any(g.features) else ""
    said += "\nBars: share of all contributions, with the sign of the output."
    return _png(figure, f"First layer: {title}", said)


def _name_columns(ax: Axes, g: Gallery, inputs: int) -> None:
    step = 1 if inputs <= FEW else max(g.relevant, inputs // 10)
    chosen = [k for k in range(inputs) if k < g.relevant <= FEW or k % step == 0]
    ax.set_xticks(chosen, [g.columns[k] for k in chosen], fontsize=7.5, rotation=90)
    if 0 < g.relevant < inputs:
        ax.axvline(g.relevant - 0.5, color=INK, linewidth=1)


def activations(anatomy: Anatomy, title: str) -> bytes:
    """Draw what each neuron contributes at each training point, an image a hidden layer."""
    found = anatomy.matrices
    figure = Figure(figsize=(4.6 * len(found) + 1.6, 6.4), layout="constrained")
    axes: Any = figure.subplots(1, len(found), squeeze=False)
    for ax, m in zip(axes[0], found, strict=True):
        image = _heat(ax, m.contributions)
        _mark_groups(ax, m)
        ax.set_xlabel("training point")
        ax.set_ylabel(f"neuron ({len(m.neurons)} of {m.total})")
        ax.set_yticks([])
        layer = f"hidden layer {m.layer}: " if len(anatomy.layers) > 1 else ""
        ax.set_title(f"{layer}memorisation {m.memorisation:.3f}", loc="left", pad=22, color=INK)
        figure.colorbar(image, ax=ax, label="contribution to f", shrink=0.6, extend="both")
    least = min(m.covered for m in found)
    said = f"Neurons with {100 * least:.1f} % of all contributions, sorted by their main point."
    if len(found) < len(anatomy.layers):
        said += f" {len(found)} of {len(anatomy.layers)} hidden layers."
    said += "\nMemorisation is 1 where no two points share a neuron: a diagonal."
    return _png(figure, f"Who fires where: {title}", said)


def _mark_groups(ax: Axes, m: Matrix) -> None:
    ax.set_xticks([])
    for group in m.groups:
        if group.start:
            ax.axvline(group.start - 0.5, color=INK, linewidth=0.7)
        ax.annotate(
            group.name, ((group.start + group.stop - 1) / 2, 1),
            xycoords=("data", "axes fraction"), xytext=(0, 4), textcoords="offset points",
            ha="center", fontsize=8.5 if len(m.groups) <= 4 else 6, color=INK,
        )  # fmt: skip


def through_training(anatomy: Anatomy, title: str) -> Plot:
    """Return the picture of scores, test error (or loss) and trace through training.

    A run made before scores were logged shows those of its last epoch alone.
    """
    h = anatomy.history
    epoch = np.asarray(h.get("epoch", [0]), np.float64)

    def curve(name: str, role: str, last: float | None = None) -> tuple[Curve, ...]:
        x, y = (epoch, h[name]) if name in h else (epoch[-1:], [last])
        return (Curve("", role, x, np.asarray(y, np.float64)[None]),)

    cells, chance = anatomy.cells, anatomy.chance
    memorisation = curve("memorisation", "gd", anatomy.memorisation)
    (values,) = memorisation[0].y
    panels = [
        Curves(
            "memorisation",
            "score",
            memorisation,
            (Reference("a neuron a cell", cells, above=True),) if cells else (),
            yscale="log",
            # Up to 1, so that a small score looks small.
            ylim=(min([1 / anatomy.data.n, *values[values > 0]]) / 1.2, 1.2),
        )
    ]
    if anatomy.features is not None and chance is not None:
        panels.append(
            Curves(
                "features",
                "score",
                curve("features", "sam", anatomy.features),
                (Reference("chance", chance, above=True),),
                ylim=(-0.02, 1.05),
            )
        )
    if "test_error" in h:
        error, most = curve("test_error", "test"), 0.6 if max(h["test_error"]) <= 0.6 else 1.05
        panels.append(Curves("test error", "test error", error, ylim=(-0.02, most)))
    elif "test_loss" in h:
        panels.append(Curves("test loss", "test loss", curve("test_loss", "test"), yscale="log"))
    if "trace" in h:
        panels.append(Curves("sharpness", "trace", curve("trace", "test"), yscale="log"))
    missing = bool(h) and "memorisation" not in h
    caption = "The history has no scores: they are those of the last epoch." if missing else ""
    return Plot("anatomy-scores", f"Through training: {title}", (tuple(panels),), caption=caption)


PICTURES: dict[str, Callable[[Anatomy, str], bytes]] = {
    "gallery": gallery,
    "activations": activations,
    "scores": lambda anatomy, title: draw(through_training(anatomy, title)),
}


def _heat(ax: Axes, values: NDArray[np.floating[Any]]) -> Any:
    """Draw signed values, white at zero; the largest few saturate."""
    size = np.abs(values[values != 0])
    most = float(np.percentile(size, SATURATES)) if len(size) else 1.0
    shown = values if values.size else np.zeros((1, 1))
    image = ax.imshow(shown, cmap=SIGNED, vmin=-most, vmax=most, aspect="auto")
    for spine in ax.spines.values():
        spine.set_visible(True)
    return image


def _png(figure: Figure, title: str, caption: str) -> bytes:
    figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold", color=INK)
    figure.supxlabel(caption, fontsize=9, color=FAINT, x=0.01, ha="left")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()
