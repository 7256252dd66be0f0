"""The part of the times that all workers share, and the rest: what each worker does relative to its usual time."""

from typing import NamedTuple

import numpy as np
from scipy.ndimage import median_filter

from fred.diagnosis.spells import Floats

_WINDOW = 31  # rounds of the running median, within which single slow rounds do not count


class Levels(NamedTuple):
    """Log times in two parts.

    Args:
        shared: log of the time that all workers share in each round, relative to the usual one [rounds].
        deviations: log of each worker's time relative to its usual time and to the shared part [rounds, workers].
    """

    shared: Floats
    deviations: Floats


def split_times(seconds: Floats) -> Levels:
    """Split log times into a part that all workers share and a part of each worker.

    The shared part is a median over workers of times relative to each worker's median. So workers that are always slow do
    not move it, however many they are. If half of the workers are slow for some time, it is that of the others.

    Args:
        seconds: compute times, s [rounds, workers].

    Here one worker is always twice as slow, and in the last round all are four times slower:

        >>> levels = split_times(np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 2.0], [4.0, 4.0, 8.0]]))
        >>> np.exp(levels.shared).round(6).tolist(), float(abs(levels.deviations).max()) < 1e-9
        ([1.0, 1.0, 4.0], True)
    """
    logs = np.log(seconds)
    relative = logs - np.median(logs, axis=0)
    shared = np.quantile(relative, 0.5, axis=1, method="lower")
    shared -= np.median(shared)
    return Levels(shared, relative - shared[:, None])


def above_usual(series: Floats) -> Floats:
    """Return a series less its running median, which follows slow changes and not single rounds [rounds, ...].

    Args:
        series: logarithms of times [rounds, ...].

    >>> above_usual(np.array([0.0, 0.0, 1.0, 0.0, 0.0])).tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0]
    """
    size = (_WINDOW, *([1] * (series.ndim - 1)))
    return np.asarray(series - median_filter(series, size=size, mode="reflect"))
