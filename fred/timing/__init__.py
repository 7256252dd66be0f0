"""The simulation engine: virtual time, worker availability, messages in transit and the verbs that record schedules.

Uses SimPy, never JAX.
"""
