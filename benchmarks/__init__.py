"""Timings against stated limits, as ratios within one process: `python -m benchmarks [NAME ...]` (see `make bench`)."""
