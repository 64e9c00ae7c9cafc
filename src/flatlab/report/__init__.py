"""Figures and tables from findings; the only room with matplotlib."""

from .figures import draw as draw
from .figures import save as save
from .tables import markdown as markdown
from .tables import number as number
from .theory import save_theory as save_theory

__all__ = ["draw", "markdown", "number", "save", "save_theory"]
