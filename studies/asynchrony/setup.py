"""The clusters, tasks and systems; each system is tuned in each case, and its times are measured there with other seeds."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from studies.kit.runs import parts
from studies.kit.study import Study
from studies.kit.tuning import REPORTED, Knobs, Settings, tuned

STUDY = Study("asynchrony", "Is asynchrony needed?", ("", "tuning"), core_hours=3)
WORKERS = 32
LATENCY, CARD_SECONDS = 0.25, 0.01  # s, of each message, where messages cost: on its way, and on the server's card
LOOKS = 400  # evaluations in the budget; 800 in half of it for exponential times, where the fastest need 2 %
POINTS = 24  # of each system in each case
CASE = ["messages", "task", "times"]

_NUMBERS = np.arange(1.0, WORKERS + 1)
FIXED: dict[str, NDArray[np.float64]] = {  # seconds of each worker's gradient
    "all take 1 s": np.ones(WORKERS),
    "worker i takes sqrt(i) s": np.sqrt(_NUMBERS),
    "worker i takes i s": _NUMBERS,
    "half take 1 s, half 10 s": np.repeat([1.0, 10.0], WORKERS // 2),
    "one in eight takes 20 s, the others 1 s": np.repeat([1.0, 20.0], [WORKERS - WORKERS // 8, WORKERS // 8]),
}
_EXPONENTIAL, _TRACE = "exponential", "recorded: 32 of 256 workers"
RANDOM: dict[str, dict[str, Any]] = {  # all workers alike, 1 s on average
    _EXPONENTIAL: {"compute": {"name": "exponential", "scale": 1.0}},
    "Pareto, alpha = 1.5": {"compute": {"name": "pareto", "minimum": 1 / 3, "alpha": 1.5}},
    "nodes five times as slow for a quarter of the time": {
        "compute": {"name": "lognormal", "median": 0.5, "sigma": 0.1},
        "nodes": 4,
        "contention": [{"name": "markov-switching", "of": "node", "slowdown": 5.0, "fast_seconds": 30.0, "slow_seconds": 10.0}],
    },
}
_FILE = Path(os.environ.get("FRED_DATA", "")) / "traces/lambda-256-workers.csv"
LAWS = [*FIXED, *RANDOM, *([_TRACE] if _FILE.is_file() else [])]


class Task(NamedTuple):
    """A task with its target.

    Args:
        settings: as in a scenario.
        target: error, or squared length of the gradient.
        noise: S, the gradients' variance over the target; of digits a guess, for the budget alone.
        budget: run time in multiples of theory's time for the best method, which leaves constants out.
        tuning_share: share of the budget for which runs last while settings are chosen.
    """

    settings: dict[str, Any]
    target: float
    noise: float
    budget: float
    tuning_share: float = 0.5


def _quadratic(deviation: float, target: float, budget: float) -> Task:
    data = {"name": "noise", "features": 32, "deviation": deviation}
    settings = {"data": data, "model": {"name": "quadratic", "dimension": 32}, "loss": "value", "batch_size": 1}
    return Task(settings, target, 32 * deviation**2 / target, budget)


_DIGITS = {"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "batch_size": 8}
TASKS = {
    "little noise": _quadratic(0.01, 0.001, 60.0),
    "much noise": _quadratic(0.1, 0.005, 30.0),
    "digits": Task(_DIGITS, target=0.12, noise=20.0, budget=60.0, tuning_share=0.75),
}


@dataclass(frozen=True)
class Case:
    """One cluster and one task.

    Args:
        times: law of the gradients' times, one of LAWS.
        task: one of TASKS.
        messages: True if messages take time.
    """

    times: str
    task: str
    messages: bool

    @property
    def budget(self) -> float:
        """Return the virtual time after which runs end, s."""
        seconds = FIXED.get(self.times, np.ones(WORKERS)) + (2 * (LATENCY + CARD_SECONDS) if self.messages else 0.0)
        share = 0.5 if self._is_quick else 1.0
        return float(f"{share * TASKS[self.task].budget * best_time(seconds, TASKS[self.task].noise):.2g}")

    @property
    def looks(self) -> int:
        """Return the number of evaluations of a run."""
        return 2 * LOOKS if self._is_quick else LOOKS

    @property
    def _is_quick(self) -> bool:
        return self.times == _EXPONENTIAL and not self.messages

    def settings(self, tuning: bool = False) -> dict[str, Any]:
        """Return the settings that all systems share, as a scenario has them.

        Args:
            tuning: True for the shorter runs, most of which look at the target less often, with which systems are tuned.
        """
        task = TASKS[self.task]
        looks = self.looks if not tuning or (self.task != "digits" and not self.messages) else self.looks // 4
        return {
            "task": task.settings,
            "cluster": self._cluster(),
            "stop": {"seconds": task.tuning_share * self.budget if tuning else self.budget},
            "evaluate": {"every_seconds": self.budget / looks, "target_error": task.target},
        }

    def _cluster(self) -> dict[str, Any]:
        cluster: dict[str, Any] = {"workers": WORKERS}
        if self.times in FIXED:
            cluster |= {"compute": {"name": "constant", "seconds": 1.0}, "speeds": (1 / FIXED[self.times]).tolist()}
        elif self.times in RANDOM:
            cluster |= RANDOM[self.times]
        else:
            cluster |= {"compute": {"name": "trace", "file": str(_FILE), "rows": "block", "block": 5, "workers": "cycled"}}
        if self.messages:
            size = 1000
            latency: dict[str, Any] = {"name": "constant", "seconds": LATENCY}
            cluster["network"] = {"latency": latency, "message_bytes": size, "server_bandwidth": size / CARD_SECONDS}
            cluster["network"]["collective"] = "recursive-doubling"  # cutoff's: 5 latencies, where a ring would take 62
        return cluster


def best_time(seconds: NDArray[np.float64], noise: float) -> float:
    """Return a time that no method undercuts, but for a constant: min over m of (mean of 1 / t_i, i <= m)^-1 (1 + S / m).

    Workers take t_1 <= ... <= t_n seconds for a gradient [Tyurin, Richtarik 2023, arXiv:2305.12387].

    Args:
        seconds: of each worker's gradient [workers].
        noise: S.

    >>> best_time(np.ones(4), 4.0), best_time(np.array([1.0, 100.0]), 0.0)
    (2.0, 1.0)
    """
    numbers = np.arange(1, len(seconds) + 1)
    return float((numbers / np.cumsum(1 / np.sort(seconds)) * (1 + noise / numbers)).min())


class System(NamedTuple):
    """An algorithm, its knobs, and the fixed options of its protocol; all knobs but the learning rate are the protocol's."""

    algorithm: str
    knobs: Knobs
    protocol: Settings = {}

    def run(self, settings: Settings) -> dict[str, Any]:
        """Return the run with some settings, as a scenario has it.

        Args:
            settings: value of each knob.
        """
        algorithm = {"name": self.algorithm, _RATE: settings[_RATE]}
        protocol = self.protocol | {name: value for name, value in settings.items() if name != _RATE}
        return {"algorithm": algorithm} | ({"protocol": protocol} if protocol else {})


_RATE = "learning_rate"
_FRESH_ENDS, _NOISY_ENDS, _STALE_ENDS = (0.1, 1.9), (0.03, 1.9), (0.01, 0.8)  # at 2 descent diverges on the quadratic
_BACKUPS = {"backup_workers": [WORKERS - m for m in (2, 4, 8, 16, 24, 28)]}
_SIZES = [2, 4, 8, 16, 32, 64, 128]


def _rates(ends: tuple[float, float], number: int = POINTS) -> Knobs:
    return {_RATE: [float(f"{rate:.3g}") for rate in np.geomspace(*ends, number)]}


SYSTEMS = {
    "sync": System("ssgd", _rates(_FRESH_ENDS)),
    "backup-workers": System("ssgd", {**_rates(_FRESH_ENDS, 9), **_BACKUPS}),
    "m-sync": System("m-sync", {**_rates(_FRESH_ENDS, 9), **_BACKUPS}),
    "cutoff": System("cutoff-sgd", _rates(_FRESH_ENDS), {"name": "cutoff", "rule": "hmm"}),
    "rennala": System("rennala", {**_rates(_FRESH_ENDS, 9), "batch": _SIZES}),
    "first-gradient": System("m-sync", _rates(_NOISY_ENDS), {"backup_workers": WORKERS - 1}),  # Ringmaster with R = 1, too
    "asgd": System("asgd", _rates(_STALE_ENDS)),
    "delay-adaptive": System("delay-adaptive", _rates(_STALE_ENDS)),
    "ringmaster": System("ringmaster", {**_rates(_STALE_ENDS, 12), "threshold": _SIZES}),
}
ROUNDS = ("sync", "backup-workers", "m-sync", "cutoff")  # wait for workers
STALE = ("asgd", "delay-adaptive", "ringmaster")  # use stale gradients


def measure() -> None:
    """Measure all cases that have no file, and write the tables."""
    cases = [(times, task, messages) for messages in (False, True) for task in TASKS for times in LAWS]
    rows = pd.concat(parts(STUDY, measure_case, cases))
    choices = ["settings", "points", "edges"]
    STUDY.write("", rows.drop(columns=choices))
    STUDY.write("tuning", rows.drop_duplicates([*CASE, "system"])[["times", "task", "messages", "system", *choices]])


def measure_case(times: str, task: str, messages: bool) -> pd.DataFrame:
    """Return the times of all systems in a case, each with its tuned settings: a row for each system and reported seed.

    Args:
        times: law of the gradients' times.
        task: name.
        messages: True if messages take time.
    """
    case, tables = Case(times, task, messages), list[pd.DataFrame]()
    for name, system in SYSTEMS.items():
        best = tuned(partial(scores, case, name), system.knobs, POINTS)
        table = ends(case, name, [best.settings], REPORTED)[["seed", "seconds"]]
        facts: dict[str, Any] = {
            "times": times,
            "task": task,
            "messages": messages,
            "system": name,
            "tuning_seconds": best.value,
        }
        for place, (column, value) in enumerate(facts.items()):
            table.insert(place, column, value)
        choice: dict[str, Any] = {"settings": json.dumps(best.settings), "points": best.points, "edges": " ".join(best.edges)}
        tables.append(table.assign(budget=case.budget, **choice))
    return pd.concat(tables)


def scores(case: Case, system: str, points: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the time to the target [settings, seeds], s, in the shorter runs for tuning.

    A run that misses the target counts as its length, times one more than the logarithm of its error over the target.

    Args:
        case: the case.
        system: name.
        points: settings.
        seeds: of the runs.
    """
    table, task = ends(case, system, points, seeds, tuning=True), TASKS[case.task]
    lateness = 1 + np.maximum(0.0, np.log(table["error"] / task.target))
    score = table["seconds"].where(np.isfinite(table["seconds"]), task.tuning_share * case.budget * lateness)
    return np.asarray(table.assign(score=score).pivot(index="point", columns="seed", values="score")[list(seeds)], float)


def ends(case: Case, system: str, points: Sequence[Settings], seeds: Sequence[int], tuning: bool = False) -> pd.DataFrame:
    """Return the time to the target, infinite if it was missed, and the error at the end: a row for each point and seed.

    Args:
        case: the case.
        system: name.
        points: settings.
        seeds: of the runs.
        tuning: True for shorter runs.
    """
    runs = {f"p{number}": SYSTEMS[system].run(settings) for number, settings in enumerate(points)}
    summary = fred.run(fred.scenario(case.settings(tuning), seeds=list(seeds), runs=runs)).summary
    columns = {"seconds": "target_seconds", "error": "error"}
    numbers = {column: pd.to_numeric(summary[source]).fillna(np.inf) for column, source in columns.items()}
    return pd.DataFrame({"point": summary["name"].str[1:].astype(int), "seed": summary["seed"], **numbers})
