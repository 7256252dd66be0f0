"""Built-in models, and adapters for Flax and Equinox."""
