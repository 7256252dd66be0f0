"""Diagnosis of a trace: the loss, its causes, and remedies with gains, costs and intervals. Imports NumPy and SciPy only."""
