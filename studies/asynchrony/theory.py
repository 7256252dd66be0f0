"""What theory says of fixed times, but for constants [Tyurin, Richtarik 2023, arXiv:2305.12387; arXiv:2602.03802].

Workers take t_1 <= ... <= t_n seconds for a gradient; S is a gradient's variance over the accuracy that is asked of the squared
gradient. Times are a multiple of the seconds below, which depends on the smooth function alone.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def best_time(seconds: NDArray[Any], noise: float) -> float:
    """Return a time that no method undercuts: min over m of (mean of 1 / t_i, i <= m)^-1 (1 + S / m).

    Args:
        seconds: of each worker's gradient [workers].
        noise: S.

    >>> best_time(np.ones(4), 4.0), best_time(np.array([1.0, 100.0]), 0.0)
    (2.0, 1.0)
    """
    return float((_harmonic(np.sort(seconds)) * _rounds(len(seconds), noise)).min())


def best_of_m_sync(seconds: NDArray[Any], noise: float) -> tuple[float, int]:
    """Return the time of the best m-synchronous method, and its m: min of t_m (1 + S / m).

    Args:
        seconds: of each worker's gradient [workers].
        noise: S.

    >>> best_of_m_sync(np.array([1.0, 2.0, 100.0]), 4.0)
    (5.0, 1)
    """
    times = np.sort(seconds) * _rounds(len(seconds), noise)
    return float(times.min()), int(times.argmin()) + 1


def _harmonic(ordered: NDArray[Any]) -> NDArray[Any]:
    return np.arange(1, len(ordered) + 1) / np.cumsum(1 / ordered)


def _rounds(workers: int, noise: float) -> NDArray[Any]:
    return 1 + noise / np.arange(1, workers + 1)
