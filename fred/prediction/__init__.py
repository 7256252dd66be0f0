"""Predicting run-times, and how many workers to wait for. Loaded by name only; JAX is in `deep/` and nowhere else."""
