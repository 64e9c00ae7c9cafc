"""The command line: parse, call, print, exit code."""

from . import anatomy as _anatomy  # noqa: F401  (each registers its commands)
from . import experiments as _experiments  # noqa: F401
from . import measuring as _measuring  # noqa: F401
from . import running as _running  # noqa: F401
from . import theory as _theory  # noqa: F401
from . import training as _training  # noqa: F401
from .app import app as app
from .app import main as main

__all__ = ["app", "main"]
