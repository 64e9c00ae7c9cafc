"""Figures and tables from findings; the only room with matplotlib."""

from .compact import compact as compact
from .figures import draw as draw
from .figures import save as save
from .reproduction import write as write_reproduction
from .tables import markdown as markdown
from .tables import number as number

__all__ = ["compact", "draw", "markdown", "number", "save", "write_reproduction"]
