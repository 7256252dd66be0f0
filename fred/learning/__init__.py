"""What runs compute: models, data, algorithms, and the replay of a schedule. With jax, never with simpy."""

from fred.learning import portable as portable  # first of all: it decides the bits
