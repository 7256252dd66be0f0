"""The methods that are compared, as in scenarios."""

from typing import Any

NEAR = 0.1  # of the other program's number

Run = dict[str, Any]


def ringmaster(rate: float, threshold: int) -> Run:
    """Return asynchronous SGD that drops gradients as old as the threshold."""
    return {
        "algorithm": {"name": "ringmaster", "learning_rate": rate},
        "protocol": {"name": "bounded-delay", "threshold": threshold},
    }


def rennala(rate: float, batch: int) -> Run:
    """Return SGD with a batch of gradients at one point for each step."""
    return {"algorithm": {"name": "rennala", "learning_rate": rate}, "protocol": {"name": "fresh-batch", "batch": batch}}


def m_sync(rate: float, waited_for: int, workers: int) -> Run:
    """Return synchronous SGD that waits for the first m of all workers."""
    protocol = {"name": "synchronous", "backup_workers": workers - waited_for, "late": "interrupt"}
    return {"algorithm": {"name": "m-sync", "learning_rate": rate}, "protocol": protocol}
