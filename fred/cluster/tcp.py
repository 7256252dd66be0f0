"""Connections: latency and bandwidth, and the windows of TCP.

A TCP connection has at most a window of bytes under way, so its rate is at most window / round trip. It begins with a small
window, and doubles it every round trip [slow start, RFC 5681; ten segments, RFC 6928].
"""

import math
from typing import NamedTuple


class Connection(NamedTuple):
    """A connection between two workers.

    Args:
        latency: time of a message in one direction, s.
        bandwidth: bandwidth of the slowest link, bytes/s.
        window: bytes under way at most.
        initial_window: bytes under way at most in the first round trip.

    Example: Linux's default window of 3 MiB limits a transfer over 10 Gbit/s and 20 ms to 157 MB/s.
        >>> connection = Connection(latency=0.01, bandwidth=1.25e9, window=3 * 2**20, initial_window=89_490)
        >>> connection.rate / 1e6
        157.2864
        >>> round(connection.lost(64 * 2**20), 3)  # s
        0.084
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
        round_trip, rate, window = 2 * self.latency, self.rate, self.initial_window
        lost = sent = 0.0
        while window < rate * round_trip and sent + window < size:
            lost += round_trip - window / rate
            sent += window
            window *= 2
        return lost
