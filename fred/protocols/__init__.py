"""Protocols, which decide which workers wait for which: their contract, one file each, shared parts. SimPy, never JAX."""
