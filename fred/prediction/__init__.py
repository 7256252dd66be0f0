"""Rules that predict compute times and decide how many workers to wait for. Loaded by name only; only `deep/` imports JAX."""
