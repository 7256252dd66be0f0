"""The simulated machines, as a scenario describes them: compute times, networks, contention and faults."""
