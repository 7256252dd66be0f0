"""Algorithms that make plain steps: whatever sets them apart is in their protocols, and so in the schedule."""

from tests.plain.base import Plain

PLAIN = dict.fromkeys(
    (
        *("ssgd", "m-sync", "rennala", "malenia", "mindflayer", "ata", "cutoff-sgd", "allreduce-sgd", "dbw"),
        *("asgd", "softsync-sgd", "k-async", "k-batch-async", "ssp", "ringmaster", "async-batch", "eager-sgd"),
        *("local-sgd", "adacomm", "stsyn", "swarm-sgd", "d-psgd", "ad-psgd", "wagma-sgd"),
    ),
    Plain,
)
