"""Rates of single TCP connections between regions, measured by others, and FRED's."""

from pathlib import Path

import pandas as pd

from fred.cluster.bandwidths import Connection
from fred.cluster.collectives import CONNECTIONS

FILE = Path(__file__).parent / "streams.csv"
SEGMENT = 1408  # bytes; as the measurements say
FORECASTS = {"table": "round_trip_ms", "own": "own_round_trip_ms"}  # whose round trip -> column


def table_of(path: Path = FILE) -> pd.DataFrame:
    """Return the measured rates, and FRED's in Mbit/s, by the round trips of a table and by those of the connection itself.

    Args:
        path: CSV file with sender, receiver, round_trip_ms from a table, own_round_trip_ms while it sent, gbit_per_s, bytes
            (none: long after the beginning), mbit_per_s, and retransmits.
    """
    rows = pd.read_csv(path)
    for name, column in FORECASTS.items():
        inputs = zip(rows[column], rows["gbit_per_s"], rows["bytes"], strict=True)
        rows[name] = [rate(1e-3 * trip, gbit * 1e9 / 8, size) * 8e-6 for trip, gbit, size in inputs]
    return rows


def rate(round_trip: float, bandwidth: float, size: float) -> float:
    """Return the rate of a connection with Linux's default windows, bytes/s.

    Args:
        round_trip: time to the receiver and back, s.
        bandwidth: of the sender, bytes/s.
        size: bytes that are sent from the beginning; nan: the rate long after it.

    Example: 2.7 MiB are under way at most.
        >>> round(rate(0.1, 1e9, float("nan")))
        28311552
    """
    connection = Connection(round_trip / 2, bandwidth, CONNECTIONS["gloo"].window, 10 * SEGMENT)
    if pd.isna(size):
        return connection.rate
    return size / (connection.latency + size / connection.rate + connection.startup_delay(size))
