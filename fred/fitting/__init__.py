"""Statistics of a recorded trace, and simulated clusters fitted to it."""
