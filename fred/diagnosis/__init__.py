"""One answer from a trace: the loss, its causes, remedies with their gains and costs, and intervals. NumPy and SciPy only."""
