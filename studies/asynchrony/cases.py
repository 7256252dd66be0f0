"""The cases: whose gradients take how long, what is learned, what messages cost."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fred
from fred.specification.loading import Scenario
from studies.asynchrony.theory import best_time

HERE = Path(__file__).parent
WORKERS = 32
LATENCY, ON_THE_CARD = 0.25, 0.01  # s, of each message, where messages cost

_NUMBERS = np.arange(1, WORKERS + 1)
FIXED: dict[str, NDArray[Any]] = {  # seconds of each worker's gradient
    "all take 1 s": np.ones(WORKERS),
    "worker i takes sqrt(i) s": np.sqrt(_NUMBERS),
    "worker i takes i s": _NUMBERS.astype(float),
    "half take 1 s, half 10 s": np.repeat([1.0, 10.0], WORKERS // 2),
    "four of 32 take 20 s, the others 1 s": np.repeat([1.0, 20.0], [28, 4]),
}
DRAWN: dict[str, dict[str, Any]] = {  # all workers alike, 1 s on average
    "exponential": {"compute": {"name": "exponential", "scale": 1.0}},
    "Pareto, alpha = 1.5": {"compute": {"name": "pareto", "minimum": 1 / 3, "alpha": 1.5}},
    "nodes five times as slow for a quarter of the time": {
        "compute": {"name": "lognormal", "median": 0.5, "sigma": 0.1},
        "nodes": 4,
        "contention": [{"name": "markov-switching", "of": "node", "slowdown": 5.0, "fast_seconds": 30.0, "slow_seconds": 10.0}],
    },
}
TRACE = "recorded: 32 of 256 workers"
_FILE = "traces/lambda-256-workers.csv"


@dataclass(frozen=True)
class Learned:
    """What is learned, to where, and how noisy its gradients are.

    Args:
        task: as in a scenario.
        target: error, or squared length of the gradient.
        noise: S, the gradients' variance over the target.
        budget: of theory's time for the best method, which says nothing of constants: some times what the best one takes.
    """

    task: dict[str, Any]
    target: float
    noise: float
    budget: float


def _quadratic(deviation: float, accuracy: float, budget: float) -> Learned:
    data = {"name": "noise", "features": 32, "deviation": deviation}
    task = {"data": data, "model": {"name": "quadratic", "dimension": 32}, "loss": "value", "batch_size": 1}
    return Learned(task, accuracy, 32 * deviation**2 / accuracy, budget)


TASKS = {
    "little noise": _quadratic(0.01, 0.001, 60.0),
    "much noise": _quadratic(0.1, 0.005, 30.0),
    "digits": Learned(
        {"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "batch_size": 8},
        target=0.12,
        noise=20.0,  # a guess, for the budget alone
        budget=60.0,
    ),
}


@dataclass(frozen=True)
class Case:
    """One clock, one task.

    Args:
        times: whose gradients take how long, a key of FIXED or DRAWN, or TRACE.
        task: a key of TASKS.
        messages: whether they take time.
    """

    times: str
    task: str
    messages: bool

    @property
    def name(self) -> str:
        """Return the name for files."""
        words = f"{self.times} {self.task} {'messages' if self.messages else ''}"
        return "-".join("".join(letter if letter.isalnum() else " " for letter in words.lower()).split())

    @property
    def seconds(self) -> NDArray[Any]:
        """Return the mean time from the beginning of a gradient to its arrival, s [workers]."""
        computing = FIXED.get(self.times, np.ones(WORKERS))
        return computing + (2 * (LATENCY + ON_THE_CARD) if self.messages else 0.0)

    def scenario(self) -> Scenario:
        """All systems with all their settings on this case."""
        learned = TASKS[self.task]
        budget = float(f"{learned.budget * best_time(self.seconds, learned.noise):.2g}")
        changes: dict[str, Any] = {"title": f"Is asynchrony needed? ({self.task}; {self.times})", "cluster": self._cluster()}
        changes |= {"task": learned.task, "stop.seconds": budget, "evaluate.target_error": learned.target}
        return fred.load(HERE / "scenario.yaml").replace(changes)

    def _cluster(self) -> dict[str, Any]:
        cluster: dict[str, Any] = {"workers": WORKERS}
        if self.times in FIXED:
            speeds = (1 / FIXED[self.times]).tolist()
            cluster |= {"compute": {"name": "constant", "seconds": 1.0}, "speeds": speeds}
        elif self.times in DRAWN:
            cluster |= DRAWN[self.times]
        else:
            file = Path(os.environ["FRED_DATA"]) / _FILE
            cluster |= {"compute": {"name": "trace", "file": str(file), "rows": "block", "block": 5, "workers": "cycled"}}
        if self.messages:
            size = 1000
            latency: dict[str, Any] = {"name": "constant", "seconds": LATENCY}
            cluster["network"] = {"latency": latency, "message_bytes": size, "server_bandwidth": size / ON_THE_CARD}
            cluster["network"]["collective"] = "recursive-doubling"  # cutoff's: 5 latencies, where a ring would take 62
        return cluster


def cases() -> Iterator[Case]:
    """All; the trace's if its data are there."""
    drawn = [*FIXED, *DRAWN] + ([TRACE] if (Path(os.environ.get("FRED_DATA", "")) / _FILE).is_file() else [])
    for messages in (False, True):
        for task in TASKS:
            yield from (Case(times, task, messages) for times in drawn)
