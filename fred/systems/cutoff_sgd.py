"""Cutoff SGD: a step with the gradients that made the cutoff [Teng & Wood 2018, algorithm 1]."""

ALGORITHMS = {
    "cutoff-sgd": {
        "about": "One step with the mean of the gradients that made the cutoff.",
        "family": "fresh",
        "rule": "w <- w - step(mean of the first c of n g)",
        "protocol": "cutoff",
    },
}
