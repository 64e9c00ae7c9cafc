"""The rooms of src/flatlab as their imports have them: the reader, and the picture drawn from it.

`test_layers.py` judges what the reader finds. As a script, `python tests/rooms.py` (`make rooms`)
draws docs/images/rooms.png, which carries the list of imports it was drawn from.
"""

from __future__ import annotations

import ast
import functools
import itertools
import textwrap
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1] / "src" / "flatlab"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "rooms.png"
NAMES = [str(path.relative_to(ROOT)) for path in sorted(ROOT.rglob("*.py"))]
DOORS = {"__init__", "__main__"}  # they re-export names or start the command line


@functools.cache
def tree_of(name: str) -> ast.Module:
    """Return the syntax tree of a file of the package."""
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), filename=name)


def room_of(name: str) -> str:
    """Return the room of a file: its folder, or itself."""
    return Path(name).parts[0].removesuffix(".py")


def rooms_imported(name: str) -> set[str]:
    """Return the rooms a file imports, also inside functions and for type checking only."""
    package = ["flatlab", *Path(name).parent.parts]
    found = set()
    for node in ast.walk(tree_of(name)):
        targets = []
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = [*start, *(node.module or "").split(".")] if node.module else start
            targets = [[*module, alias.name] for alias in node.names]
        found |= {target[1] for target in targets if target[0] == "flatlab" and len(target) > 1}
    return found - {room_of(name)}


def arrows() -> dict[str, set[str]]:
    """Return the rooms that each room imports."""
    found: dict[str, set[str]] = {room_of(name): set() for name in NAMES}
    for name in NAMES:
        found[room_of(name)] |= rooms_imported(name) & found.keys()
    return {room: targets for room, targets in found.items() if room not in DOORS}


def listed(found: dict[str, set[str]]) -> str:
    """Return the arrows as text, a line for each room."""
    return "\n".join(f"{room}: {' '.join(sorted(found[room]))}".strip() for room in sorted(found))


def drawn() -> str:
    """Return the list of arrows that the committed picture carries."""
    with Image.open(PICTURE) as image:
        return image.info["Description"]


def below(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return all rooms that each room reaches, directly or through others."""
    reached: dict[str, set[str]] = {}

    def visit(room: str) -> set[str]:
        if room not in reached:
            reached[room] = set().union(*({each} | visit(each) for each in found[room]))
        return reached[room]

    for room in found:
        visit(room)
    return reached


def layers(found: dict[str, set[str]]) -> dict[str, int]:
    """Return the height of each room: one more than the highest room it imports."""
    height: dict[str, int] = {}
    for room in sorted(found, key=lambda room: len(below(found)[room])):
        height[room] = 1 + max((height[each] for each in found[room]), default=-1)
    return height


def purpose(room: str) -> str:
    """Return what a room says it is for: the first sentence of its docstring."""
    name = f"{room}/__init__.py" if f"{room}/__init__.py" in NAMES else f"{room}.py"
    first = (ast.get_docstring(tree_of(name)) or "").splitlines()[0]
    return first.split(". ")[0].rstrip(".").replace("`", "")


BOX, LANE, HEIGHT, LEVEL = 2.1, 0.4, 0.78, 1.25  # inches: widths, a box's height, between layers
# Drawn as one box: every room stands on them.
FOUNDATIONS = ("errors", "outside", "randomness", "specs")


def shown(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows to draw: none to the foundations, none that a longer way implies."""
    reached = below(found)
    return {
        room: targets - set().union(*(reached[each] for each in targets)) - {*FOUNDATIONS}
        for room, targets in found.items()
        if room not in FOUNDATIONS
    }


Place = tuple[str, str, int]  # a room twice and its layer, or an arrow where it crosses a layer


def routes(found: dict[str, set[str]], height: dict[str, int]) -> list[list[Place]]:
    """Return each arrow as places from top to bottom, one a layer, so that it passes no box."""
    return [
        [
            (room, room, height[room]),
            *((room, target, h) for h in range(height[room] - 1, height[target], -1)),
            (target, target, height[target]),
        ]
        for room, targets in found.items()
        for target in sorted(targets)
    ]


def places(found: dict[str, set[str]]) -> tuple[dict[Place, float], list[list[Place]]]:
    """Return where each place is from left to right, and the ways of the arrows.

    In every layer the places are sorted by the mean of their neighbours', over and over.
    """
    height = layers(found)
    ways = routes(found, height)
    spots = {(room, room, height[room]) for room in found}.union(*ways)
    rows = [sorted(s for s in spots if s[2] == h) for h in sorted(set(height.values()))]
    near: dict[Place, list[Place]] = {spot: [] for spot in spots}
    for way in ways:
        for one, two in itertools.pairwise(way):
            near[one].append(two)
            near[two].append(one)
    x: dict[Place, float] = {}

    def spread(row: list[Place]) -> None:
        widths = [BOX if spot[0] == spot[1] else LANE for spot in row]
        edge = -sum(widths) / 2
        for spot, width in zip(row, widths, strict=True):
            x[spot], edge = edge + width / 2, edge + width

    for row in rows:
        spread(row)
    for _ in range(30):
        for row in [*rows, *reversed(rows)]:
            row.sort(key=lambda spot: sum(x[o] for o in near[spot]) / max(len(near[spot]), 1))
            spread(row)
    return x, ways


def draw(found: dict[str, set[str]]) -> None:
    """Write the picture."""
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
    from matplotlib.path import Path as Curve

    x, ways = places(shown(found))
    half, top = max(map(abs, x.values())) + 0.6 * BOX, LEVEL * max(spot[2] for spot in x)
    figure = Figure(figsize=(2 * half, top + LEVEL + 1.4 * HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-half, half))
    axes.set(ylim=(-LEVEL - HEIGHT, top + 0.7 * HEIGHT))
    axes.set_axis_off()

    def box(at: float, y: float, width: float, title: str, text: str, colour: str) -> None:
        height = max(HEIGHT, 0.3 + 0.12 * len(text.splitlines()))
        corner = (at - width / 2, y + HEIGHT / 2 - height)
        style = {"boxstyle": "round,pad=0,rounding_size=0.08", "fc": colour, "ec": "#445577"}
        axes.add_patch(FancyBboxPatch(corner, width, height, **style))
        axes.text(at, y + 0.23, title, ha="center", va="center", weight="bold", size=10)
        middle = corner[1] + (height - 0.22) / 2
        axes.text(at, middle, text, ha="center", va="center", size=7)

    for way in ways:
        points, codes = [(x[way[0]], LEVEL * way[0][2] - HEIGHT / 2)], [Curve.MOVETO]
        for spot in way[1:]:
            end = LEVEL * spot[2] + HEIGHT / 2
            (x0, y0), bend = points[-1], (points[-1][1] - end) / 2
            points += [(x0, y0 - bend), (x[spot], end + bend), (x[spot], end)]
            codes += [Curve.CURVE4] * 3
            if spot != way[-1]:  # straight past the boxes of this layer
                points, codes = [*points, (x[spot], end - HEIGHT)], [*codes, Curve.LINETO]
        style = {"arrowstyle": "-|>", "mutation_scale": 9, "color": "#8893a8", "fc": "none"}
        axes.add_patch(FancyArrowPatch(path=Curve(points, codes), zorder=0, **style))
    for spot, at in x.items():
        if spot[0] == spot[1]:
            lines = textwrap.wrap(purpose(spot[0]), 34, max_lines=3, placeholder=" …")
            box(at, LEVEL * spot[2], BOX - 0.2, spot[0], "\n".join(lines), "#eef3fb")
    text = "\n".join(f"{room}: {purpose(room)}" for room in FOUNDATIONS)
    box(0, -LEVEL, 2 * half - 0.4, "foundations, which every room may import", text, "#f4f1e8")
    figure.savefig(PICTURE, dpi=100, metadata={"Description": listed(found)})


if __name__ == "__main__":
    draw(arrows())
    print(listed(arrows()))
