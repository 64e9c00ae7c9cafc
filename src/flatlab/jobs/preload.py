"""What every run needs, imported once in the server that the executor's processes are forked from.

pyarrow looks for pandas at its first array, and numba fills its tables at the first kernel it
loads: half a second each, in every process that does it for itself.
"""

from __future__ import annotations

import pandas as pd  # noqa: F401
import pyarrow.parquet  # noqa: F401
import safetensors.numpy  # noqa: F401

from ..engine.tables import fill_tables
from ..training import session as session

fill_tables()
