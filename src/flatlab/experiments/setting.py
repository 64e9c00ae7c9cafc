"""The setting of an experiment in words: its data, sizes and seeds, and what a request changed.

A changed setting is part of the name of the results' folder, so the preset's own files stay as they
are.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..specs import digest
from .contract import Computation, Experiment, Planned, seeds_in, sizes

LONGEST = 80  # letters of a folder's name that are readable; a longer part becomes a digest


def changed(
    experiment: Experiment, preset: str, settings: Any, names: Iterable[str]
) -> dict[str, Any]:
    """Return the named settings whose values differ from the preset's: name → value."""
    own = experiment.complete(experiment.presets[preset])
    return {
        name: getattr(settings, name)
        for name in names
        if hasattr(own, name) and getattr(settings, name) != getattr(own, name)
    }


def folder_name(ids: Sequence[str], preset: str, changes: Mapping[str, Any] | None = None) -> str:
    """Return the name of a request's folder, which is in the folder of all results.

    >>> folder_name(["source/figure"], "lab"), folder_name(["one/a", "one/b"], "lab")
    ('source-figure-lab', 'one-a+one-b-lab')
    >>> folder_name(["source/figure"], "lab", {"d": 4, "rates": (0.5, 1.0)})
    'source-figure-lab-d=4,rates=0.5+1'
    """
    name = "+".join(id.replace("/", "-") for id in ids)
    if len(name) > LONGEST:
        name = f"{ids[0].replace('/', '-')}+{len(ids) - 1}-more-{digest({'ids': list(ids)})}"
    if not changes:
        return f"{name}-{preset}"
    texts = [f"{key}={_text(value)}" for key, value in changes.items()]
    told = ",".join(texts)
    if len(told) > LONGEST or not re.fullmatch(r"[\w.,=+-]*", told):
        first = texts[0] if re.fullmatch(r"[\w.,=+-]{,40}", texts[0]) else ""
        more = f"{len(texts) - 1}-more" if len(texts) > 1 else ""
        told = "-".join(filter(None, (first, more, digest({"changes": texts}))))
    return f"{name}-{preset}-{told}"


def file_name(id: str, name: str, with_source: bool) -> str:
    """Return a picture's or table's name; it starts with the name of its experiment.

    >>> file_name("source/fig1", "errors", False), file_name("source/fig1", "fig1", True)
    ('fig1-errors', 'source-fig1')
    """
    source, _, own = id.partition("/")
    full = name if name.startswith(own) else f"{own}-{name}"
    return f"{source}-{full}" if with_source else full


def _text(value: Any) -> str:
    """Write a value briefly and without loss."""
    if isinstance(value, list | tuple):
        return "+".join(_text(part) for part in value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_words(plan: Iterable[Planned | Computation], settings: Any) -> str:
    """Write the data, sizes and seeds of an experiment for a caption.

    Data and widths are those of the planned runs; without runs, the sizes are the settings'.
    """
    configs = [p.config for p in plan if isinstance(p, Planned)]
    parts = []
    for name in dict.fromkeys(str(c.data.get("name", "data")) for c in configs):
        of_it = [c.data for c in configs if c.data.get("name", "data") == name]
        told = [
            f"{key} = {text}" for key in ("d", "n") if (text := _range(d.get(key) for d in of_it))
        ]
        if tested := _range(d.get("n_test") for d in of_it):
            told.append(f"{tested} test points")
        parts.append(f"{name}: {', '.join(told)}" if told else name)
    if not configs:
        parts += [
            f"{name} = {size:,}"
            for name, size in sizes(settings).items()
            if name != "seeds" and "epochs" not in name
        ]
    if width := _range(getattr(c.arch, "width", None) for c in configs):
        parts.append(f"width {width}")
    if getattr(settings, "seeds", None) is not None:
        seeds = seeds_in(settings)
        several = len(seeds) > 1
        parts.append(f"seeds {seeds[0]} to {seeds[-1]}" if several else f"seed {seeds[0]}")
    return "; ".join(parts) + "." if parts else ""


def _range(values: Iterable[Any]) -> str:
    """Write a number, or the smallest and the largest of several.

    >>> _range([100, 20, None]), _range([10_000]), _range([None])
    ('20 to 100', '10,000', '')
    """
    found = sorted({value for value in values if isinstance(value, int)})
    return " to ".join(f"{value:,}" for value in dict.fromkeys(found[:1] + found[-1:]))


def changes_in_words(experiment: Experiment, preset: str, changes: Mapping[str, Any]) -> str:
    """Write what was changed, with the preset's own value beside it; empty if nothing was."""
    own = experiment.complete(experiment.presets[preset])
    return ", ".join(
        f"{name} = {_text(value)} ({preset}: {_own(getattr(own, name))})"
        for name, value in changes.items()
    )


def _own(value: Any) -> str:
    return "as planned" if value is None else _text(value)


def with_setting(plots: Iterable[Any], *lines: str) -> tuple[Any, ...]:
    """Return pictures with further lines in their captions."""
    said = [line for line in lines if line]
    return tuple(
        dataclasses.replace(plot, caption="\n".join(filter(None, (plot.caption, *said))))
        for plot in plots
    )
