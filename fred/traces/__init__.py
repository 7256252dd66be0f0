"""Recorded compute times of clusters: readers, repairs, and groups of workers. Imports NumPy, SciPy and Arrow only."""
