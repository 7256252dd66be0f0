"""What benchmarks share: a row with its limit, medians of several runs taken in turn, and recorded runs."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fred.cluster.cluster import Cluster
from fred.protocols.protocol import Protocol
from fred.timing.recorder import Recorder
from fred.timing.simulation import Simulation


@dataclass(frozen=True)
class Row:
    """One measured figure."""

    name: str
    value: float
    unit: str  # "x" for ratios
    limit: float | None = None  # None: for information
    at_least: bool = False  # whether the limit is a lower one

    @property
    def verdict(self) -> str:
        """Return whether the figure keeps its limit."""
        if self.limit is None:
            return ""
        return "ok" if (self.value >= self.limit if self.at_least else self.value <= self.limit) else "MISSED"

    def __str__(self) -> str:
        sign = "" if self.limit is None else f"{'>=' if self.at_least else '<='} {self.limit:,g}"
        return f"{self.name:<66}{self.value:>12,.2f} {self.unit:<12}{sign:<12}{self.verdict}"


def medians(actions: list[Callable[[], object]], rounds: int = 5) -> list[float]:
    """Return the median seconds of each action. Rounds in turn let drift hit all alike; the first one does not count."""
    times = [[time_action(action) for action in actions] for _ in range(rounds + 1)]
    return [statistics.median(seconds) for seconds in zip(*times[1:], strict=True)]


def time_action(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def record(cluster: Cluster, protocol: Protocol, sizes: int = 1000, **options: Any) -> tuple[Recorder, int]:
    """Run a protocol, timing only.

    Args:
        cluster: machines.
        protocol: which worker waits for which.
        sizes: bytes of a message.
        options: of the recorder, such as its limits.

    Returns:
        The recorder, and the time of the end, ns.
    """
    recorder = Recorder(cluster.size, protocol.layout(cluster), **options)
    simulation = Simulation(cluster, recorder, seed=0, sizes=sizes)
    protocol.start(simulation)
    simulation.run()
    return recorder, simulation.now
