"""The engine: virtual time, who is there, messages under way, and the verbs that record schedules. SimPy, never JAX."""
