"""On which machine each worker is, in a trace as in a cluster."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def spread(nodes: int | Sequence[int], workers: int) -> NDArray[np.int64]:
    """The node of each worker, [workers]: evenly over so many `nodes`, in order, or as many workers on each as `nodes` says.

    Raises ValueError if that is not how so many workers can be spread.

    Args:
        nodes: how many, or the number of workers on each [nodes].
        workers: how many.

    >>> spread(2, 5).tolist(), spread([1, 4], 5).tolist()
    ([0, 0, 0, 1, 1], [0, 1, 1, 1, 1])
    """
    if isinstance(nodes, int):
        if not 1 <= nodes <= workers:
            raise ValueError(f"`nodes` is {nodes}; expected 1 to {workers}, as many as there are workers at most")
        return np.arange(workers) * nodes // workers
    if min(nodes, default=0) < 1 or sum(nodes) != workers:
        sizes = ", ".join(map(str, nodes)) or "none"
        raise ValueError(f"`nodes` ({sizes}) must be sizes that add up to the {workers} workers")
    return np.repeat(np.arange(len(nodes)), nodes)
