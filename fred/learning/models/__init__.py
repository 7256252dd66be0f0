"""Models: a file for each, and adapters for Flax and Equinox."""
