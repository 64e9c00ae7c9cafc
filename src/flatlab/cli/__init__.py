"""The command line: parse, call, print, exit code; and its commands as calls (`verbs`)."""

# Each registers its commands; --help lists them in this order.
from . import anatomy, data, experiments, measuring, running, theory, training  # noqa: F401
from .app import app as app
from .app import main as main

__all__ = ["app", "main"]
