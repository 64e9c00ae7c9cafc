"""The imports that every run needs, done once in the server that local processes fork from.

pyarrow looks for pandas at its first array, and numba fills its tables at the first kernel it
loads: half a second each, in every process that does it for itself.

The garbage collector then leaves these objects alone. Otherwise its first pass in a child writes to
all of them, which copies 45 MB and takes 85 of the 90 ms of a job that does nothing.
"""

from __future__ import annotations

import gc

import pandas as pd  # noqa: F401
import pyarrow.parquet  # noqa: F401
import safetensors.numpy  # noqa: F401

from ..engine.loading import fill_tables
from ..training import session as session

fill_tables()
gc.collect()
gc.freeze()
