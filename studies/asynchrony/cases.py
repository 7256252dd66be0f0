"""The cases: workers' times, tasks, costs of messages, and numbers of workers."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.asynchrony.theory import best_time

WORKERS, OTHER_NUMBERS = 32, (8, 128)
LATENCY, ON_THE_CARD = 0.25, 0.01  # s, of each message, where messages cost
LOOKS = 400  # evaluations in the budget; 800 in half of it for exponential times, where the fastest need 2 %

FIXED: dict[str, Callable[[int], NDArray[Any]]] = {  # seconds of each worker's gradient, by the number of workers
    "all take 1 s": np.ones,
    "worker i takes sqrt(i) s": lambda workers: np.sqrt(_numbers(workers)),
    "worker i takes i s": lambda workers: _numbers(workers),
    "half take 1 s, half 10 s": lambda workers: np.repeat([1.0, 10.0], workers // 2),
    "one in eight takes 20 s, the others 1 s": lambda workers: np.repeat([1.0, 20.0], [workers - workers // 8, workers // 8]),
}
EXPONENTIAL = "exponential"
DRAWN: dict[str, dict[str, Any]] = {  # all workers alike, 1 s on average
    EXPONENTIAL: {"compute": {"name": "exponential", "scale": 1.0}},
    "Pareto, alpha = 1.5": {"compute": {"name": "pareto", "minimum": 1 / 3, "alpha": 1.5}},
    "nodes five times as slow for a quarter of the time": {
        "compute": {"name": "lognormal", "median": 0.5, "sigma": 0.1},
        "nodes": 4,
        "contention": [{"name": "markov-switching", "of": "node", "slowdown": 5.0, "fast_seconds": 30.0, "slow_seconds": 10.0}],
    },
}
TRACE = "recorded: 32 of 256 workers"
_FILE = "traces/lambda-256-workers.csv"
TASKS = ("little noise", "much noise", "digits")
IN_PROPORTION = "noise in proportion to n"  # much noise with 32 workers; for the other numbers only
UNEQUAL = ("worker i takes sqrt(i) s", "worker i takes i s")  # laws for which that task is measured


def _numbers(workers: int) -> NDArray[Any]:
    return np.arange(1.0, workers + 1)


@dataclass(frozen=True)
class Learned:
    """A task with its target.

    Args:
        task: as in a scenario.
        target: error, or squared length of the gradient.
        noise: S, the gradients' variance over the target.
        budget: run time in multiples of theory's time for the best method, which leaves constants out.
        tuned_for: share of the budget for which runs last while settings are chosen.
    """

    task: dict[str, Any]
    target: float
    noise: float
    budget: float
    tuned_for: float = 0.5


def learned(task: str, workers: int) -> Learned:
    """Return a task by its name.

    Args:
        task: one of TASKS, or IN_PROPORTION.
        workers: number of workers.
    """
    if task == "digits":  # its S is a guess, for the budget alone
        own = {"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "batch_size": 8}
        return Learned(own, target=0.12, noise=20.0, budget=60.0, tuned_for=0.75)
    if task == "little noise":
        return _quadratic(0.01, 0.001, 60.0)
    return _quadratic(0.1 * (float(np.sqrt(workers / WORKERS)) if task == IN_PROPORTION else 1.0), 0.005, 30.0)


def _quadratic(deviation: float, accuracy: float, budget: float) -> Learned:
    data = {"name": "noise", "features": 32, "deviation": deviation}
    task = {"data": data, "model": {"name": "quadratic", "dimension": 32}, "loss": "value", "batch_size": 1}
    return Learned(task, accuracy, 32 * deviation**2 / accuracy, budget)


@dataclass(frozen=True)
class Case:
    """One cluster and one task.

    Args:
        times: law of the gradients' times, a key of FIXED or DRAWN, or TRACE.
        task: one of TASKS, or IN_PROPORTION.
        messages: True if messages take time.
        workers: number of workers.
    """

    times: str
    task: str
    messages: bool = False
    workers: int = WORKERS

    @property
    def name(self) -> str:
        """Return the name for files."""
        words = f"{self.times} {self.task} {'messages' if self.messages else ''} n{self.workers}"
        return "-".join("".join(letter if letter.isalnum() else " " for letter in words.lower()).split())

    @property
    def learned(self) -> Learned:
        """Return the task with its target."""
        return learned(self.task, self.workers)

    @property
    def seconds(self) -> NDArray[Any]:
        """Return the mean time from the beginning of a gradient to its arrival, s [workers]."""
        computing = FIXED.get(self.times, np.ones)(self.workers)
        return computing + (2 * (LATENCY + ON_THE_CARD) if self.messages else 0.0)

    @property
    def budget(self) -> float:
        """Return the virtual time after which runs end, s."""
        share = 0.5 if self._is_quick else 1.0
        return float(f"{share * self.learned.budget * best_time(self.seconds, self.learned.noise):.2g}")

    @property
    def looks(self) -> int:
        """Return the number of evaluations of a run."""
        return 2 * LOOKS if self._is_quick else LOOKS

    @property
    def tuning_looks(self) -> int:
        """Return the number of evaluations in the budget while settings are chosen."""
        return self.looks if self.task in ("little noise", "much noise") and self._is_plain else self.looks // 4

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that all systems share, as a scenario has them."""
        return self._settings(self.budget, self.looks)

    @property
    def tuning_settings(self) -> dict[str, Any]:
        """Return these settings for shorter runs, with which systems are tuned."""
        return self._settings(self.learned.tuned_for * self.budget, self.tuning_looks)

    def _settings(self, seconds: float, looks: int) -> dict[str, Any]:
        return {
            "task": self.learned.task,
            "cluster": self._cluster(),
            "stop": {"seconds": seconds},
            "evaluate": {"every_seconds": self.budget / looks, "target_error": self.learned.target},
        }

    @property
    def _is_plain(self) -> bool:
        return self.workers == WORKERS and not self.messages

    @property
    def _is_quick(self) -> bool:
        return self.times == EXPONENTIAL and self._is_plain

    def _cluster(self) -> dict[str, Any]:
        cluster: dict[str, Any] = {"workers": self.workers}
        if self.times in FIXED:
            speeds = (1 / FIXED[self.times](self.workers)).tolist()
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


def laws() -> list[str]:
    """Return the laws of times; the trace's only if its data are there."""
    return [*FIXED, *DRAWN] + ([TRACE] if (Path(os.environ.get("FRED_DATA", "")) / _FILE).is_file() else [])


def main_cases(messages: bool) -> Iterator[Case]:
    """Yield the cases with 32 workers.

    Args:
        messages: True if messages take time.
    """
    for task in TASKS:
        yield from (Case(times, task, messages) for times in laws())


def other_cases() -> Iterator[Case]:
    """Yield the cases with other numbers of workers, for theory's logarithm."""
    for workers in OTHER_NUMBERS:
        yield from (Case(times, IN_PROPORTION, workers=workers) for times in UNEQUAL)
        for task in ("much noise", "little noise"):
            yield from (Case(times, task, workers=workers) for times in FIXED)
