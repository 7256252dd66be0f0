"""The path of a message: latency, bandwidth, and what a TCP connection adds to them.

A connection has at most a window of bytes under way, so its rate is at most window / round trip. It begins with a small
window, and doubles it every round trip [slow start, RFC 5681; ten segments, RFC 6928].
"""

import math
from typing import NamedTuple


class Path(NamedTuple):
    """A path between two workers.

    Args:
        latency: time of a message in one direction, s.
        bandwidth: bandwidth of the slowest link, bytes/s.
        window: bytes under way at most.
        initial_window: bytes under way at most in the first round trip.

    Example: Linux's default window of 3 MiB limits a transfer over 10 Gbit/s and 20 ms to 157 MB/s.
        >>> path = Path(latency=0.01, bandwidth=1.25e9, window=3 * 2**20, initial_window=89_490)
        >>> path.rate / 1e6
        157.2864
        >>> round(path.lost(64 * 2**20), 3)  # s
        0.083
    """

    latency: float = 0.0
    bandwidth: float = math.inf
    window: float = math.inf
    initial_window: float = math.inf

    @property
    def rate(self) -> float:
        """Return the highest rate, bytes/s."""
        return min(self.bandwidth, self.window / (2 * self.latency)) if self.latency else self.bandwidth

    def lost(self, size: float) -> float:
        """Return the time that a message loses because its window still grows, s.

        Args:
            size: size of the message, bytes.
        """
        first, round_trip, rate = self.initial_window, 2 * self.latency, self.rate
        full = min(rate * round_trip, size + first)  # window at the end of the slow start
        if not round_trip or full <= first:
            return 0.0
        return round_trip * math.log2(full / first) - (full - first) / rate
