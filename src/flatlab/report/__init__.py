"""Pictures, tables and pages; the only package that uses matplotlib and jinja2."""

from . import backend as backend  # before anything imports matplotlib
from .compact import compact as compact
from .figures import draw as draw
from .figures import figure as figure
from .figures import formats_of as formats_of
from .figures import save as save
from .publishing import publish as publish

__all__ = ["compact", "draw", "figure", "formats_of", "publish", "save"]
