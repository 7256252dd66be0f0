"""From schedules to parameters: an interpreter, which specifies the verbs, and a compiler. Uses JAX, never SimPy."""
