"""From rows to parameters: an interpreter, which says what rows mean, and a compiler to one program. JAX, never SimPy."""
