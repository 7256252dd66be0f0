"""Timings against stated limits, as ratios within one process: `python -m benchmarks [NAME ...]` (see `make bench`)."""

import fred  # noqa: F401  before any benchmark imports jax
