"""The training side of FRED: models, data, losses, codecs, and the base class of algorithms. It uses JAX, never SimPy."""
