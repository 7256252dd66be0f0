"""What benchmarks share: medians of several runs taken in turn, and a row with its limit."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


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
    """Median seconds of each action: after one round unmeasured, `rounds` rounds in turn, so that drift hits all alike."""
    times: list[list[float]] = [[] for _ in actions]
    for number in range(rounds + 1):
        for own, action in zip(times, actions, strict=True):
            start = time.perf_counter()
            action()
            if number:
                own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in times]
