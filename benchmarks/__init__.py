"""Timings of the engine against what a user would write without it; `python benchmarks/run.py`."""
