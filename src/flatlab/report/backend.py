"""Import matplotlib whatever MPLBACKEND says: pictures are drawn by Agg, PDF and SVG alone.

A name that matplotlib does not know would stop its import. A name it knows is left to the user's
own pyplot.
"""

from __future__ import annotations

import contextlib
import os
import sys

if "matplotlib" not in sys.modules:
    asked = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    finally:
        if asked is not None:
            os.environ["MPLBACKEND"] = asked
    if asked:
        with contextlib.suppress(ValueError):  # an unknown name
            matplotlib.rcParams["backend"] = asked
