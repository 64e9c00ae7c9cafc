"""Timings of the engine against code a user would write without it; `python benchmarks/run.py`."""
