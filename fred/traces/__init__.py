"""Recorded run-times of clusters: what they are, how they are read, what they look like. NumPy and Arrow only."""
