"""What is learned, and what an update does: models, data, losses, and a file for each update rule. JAX, never SimPy."""
