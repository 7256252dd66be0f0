"""The assignment of workers to nodes, in a trace as in a cluster."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def spread_workers(nodes: int | Sequence[int], workers: int) -> NDArray[np.int64]:
    """Return the node of each worker, [workers]: spread evenly over a number of `nodes`, in order, or by sizes.

    Raises ValueError if the workers cannot be spread this way.

    Args:
        nodes: number of nodes, or number of workers on each [nodes].
        workers: number of workers.

    >>> spread_workers(2, 5).tolist(), spread_workers([1, 4], 5).tolist()
    ([0, 0, 0, 1, 1], [0, 1, 1, 1, 1])
    """
    if isinstance(nodes, int):
        if not 1 <= nodes <= workers:
            raise ValueError(f"`nodes` is {nodes}; expected 1 to {workers}, the number of workers")
        return np.arange(workers) * nodes // workers
    if min(nodes, default=0) < 1 or sum(nodes) != workers:
        sizes = ", ".join(map(str, nodes)) or "none"
        raise ValueError(f"`nodes` ({sizes}) must be sizes that add up to the {workers} workers")
    return np.repeat(np.arange(len(nodes)), nodes)
