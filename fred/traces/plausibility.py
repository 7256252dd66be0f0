"""A check that numbers which were read as times can be times. Guesses pass it before a message proposes them."""

import numpy as np
from numpy.typing import NDArray

from fred.base.words import briefly

_MOST_RATIO = 1000.0  # between the median times of two workers
_FEWEST = 8  # iterations over which a time does not keep growing by chance


def find_implausibility(seconds: NDArray[np.float64], workers: tuple[str, ...]) -> str:
    """Return why a table can hold no step times, as a sentence without its full stop; an empty text if it can.

    Args:
        seconds: times, s [iterations, workers].
        workers: names of the workers.

    >>> steps = np.arange(1.0, 21)[:, None]
    >>> find_implausibility(np.hstack([1e9 + steps, steps % 3 + 1]), ("Wall time", "Value"))
    'Wall time only grows, like a moment or a counter'
    >>> find_implausibility(steps % 3 + np.array([[1.0, 5e4]]), ("rank0", "loss"))
    'loss is 25000 times rank0, so they are not times of the same step'
    >>> find_implausibility(steps % 3 + np.array([[1.0, 2.0]]), ("rank0", "rank1"))
    ''
    """
    medians = np.median(seconds, axis=0)
    if len(seconds) >= _FEWEST:
        growing = np.flatnonzero((np.diff(seconds, axis=0) > 0).all(axis=0))
        if len(growing):
            return f"{briefly([workers[worker] for worker in growing])} only grows, like a moment or a counter"
    low, high = int(np.argmin(medians)), int(np.argmax(medians))
    ratio = medians[high] / medians[low] if medians[low] > 0 else 1.0
    if ratio > _MOST_RATIO:
        return f"{workers[high]} is {ratio:.5g} times {workers[low]}, so they are not times of the same step"
    return ""
