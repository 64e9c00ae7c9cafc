"""Markdown pages from templates (`templates/*.md.j2`)."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..outside.tables import markdown


def render(template: str, **values: Any) -> str:
    """Fill in a template; in it, `rows | table` is a Markdown table.

    Several empty lines become one, so a template can omit parts.
    """
    environment = Environment(
        loader=PackageLoader("flatlab.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, not HTML
    )
    environment.filters["table"] = markdown
    text = environment.get_template(f"{template}.md.j2").render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
