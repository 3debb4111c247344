"""Promised speeds, as ratios in one run and as growth: `python -m benchmarks`."""
