"""Figures and tables from findings; the only room with matplotlib."""

from .compact import compact as compact
from .figures import draw as draw
from .figures import save as save
from .reproduction import write as write_reproduction
from .tables import markdown as markdown
from .tables import number as number
from .theory import save_theory as save_theory

__all__ = ["compact", "draw", "markdown", "number", "save", "save_theory", "write_reproduction"]
