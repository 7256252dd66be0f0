"""Results of scenarios: all runs together, computed, written to a folder, read, verified and compared."""
