"""Busy times of steps from the operations of workers.

Operations of several streams or threads overlap and nest, so the time of a step is that of the union of their intervals.
Communication is left out: it lasts as long as the slowest worker takes, so with it all workers look alike
[Lin et al. 2025, OSDI, arXiv:2505.05713, who recompute steps from operations].
"""

import numpy as np
from numpy.typing import NDArray


def busy(step: NDArray[np.int64], start: NDArray[np.float64], end: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Return the length of the union of each step's intervals: [steps], 0 for a step without any.

    Args:
        step: number of each operation's step, from 0 [operations].
        start: start of each operation, in any unit [operations].
        end: end of each operation [operations].
        steps: number of steps.

    >>> busy(np.array([0, 0, 0, 1]), np.array([0.0, 1.0, 5.0, 9.0]), np.array([3.0, 2.0, 6.0, 9.5]), 3).tolist()
    [4.0, 0.5, 0.0]
    """
    steps_of, times = np.concatenate((step, step)), np.concatenate((start, end))
    change = np.repeat([1, -1], len(step))
    order = np.lexsort((-change, times, steps_of))
    steps_of, times = steps_of[order], times[order]
    running = np.cumsum(change[order])[:-1] > 0  # none runs from one step to the next
    return np.bincount(steps_of[1:], np.where(running, np.diff(times), 0.0), minlength=steps).astype(np.float64)
