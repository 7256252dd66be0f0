"""Who waits for whom: the contract, a file for each protocol, and what several of them share. SimPy, never JAX."""
