"""One answer from a trace: what is lost, through whom, what helps, what that costs, and how surely. NumPy and SciPy only."""
