"""Pictures, tables and pages; the only package that uses matplotlib and jinja2."""

from .compact import compact as compact
from .figures import draw as draw
from .figures import save as save
from .publishing import publish as publish
from .tables import markdown as markdown
from .tables import number as number

__all__ = ["compact", "draw", "markdown", "number", "publish", "save"]
